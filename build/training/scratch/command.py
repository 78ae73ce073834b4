"""The command ``train-draft``."""

import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import Finite, guarded, json_option, out_option, reading, say, show, text_options
from spectool.build.training.run_options import named, run_options
from spectool.build.training.scratch.shapes import SIZES, shape_of


@click.command("train-draft")
@click.option(
    "--tokenizer",
    "--model",
    "tokenizer",
    required=True,
    metavar="T",
    help="Directory, tokenizer.json or hub id; mostly the target's.",
)
@click.option(
    "--corpus",
    "corpora",
    required=True,
    multiple=True,
    metavar="[NAME=]SPEC",
    help="Text to train on: file, directory, hf:OWNER/NAME:CONFIG#COLUMN, preset or sample:pl. It is held in memory. "
    "May be repeated.",
)
@click.option(
    "--weight",
    "weights",
    type=Finite(0, 1_000_000, min_open=True),
    multiple=True,
    metavar="W",
    help="Part of each corpus in the tokens, in their order; by default the same of each.",
)
@click.option(
    "--valid",
    multiple=True,
    metavar="SPEC",
    help="Text to measure on, one for each corpus; by default a hundredth of it, which is then not trained on.",
)
@click.option("--steps", type=click.IntRange(1), required=True, metavar="N", help="Steps to train for.")
@out_option
@click.option(
    "--size",
    type=click.Choice(list(SIZES)),
    default="4m",
    show_default=True,
    help="Parameters, where some 11,000 ids are common.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Shape from the config.json of a Llama-type model, instead of --size.",
)
@click.option("--hidden", type=click.IntRange(1), metavar="N", help="Another hidden size.")
@click.option("--layers", type=click.IntRange(1), metavar="N", help="Another number of layers.")
@click.option("--heads", type=click.IntRange(1), metavar="N", help="Another number of attention heads.")
@click.option("--kv-heads", type=click.IntRange(1), metavar="N", help="Another number of key and value heads.")
@click.option("--intermediate", type=click.IntRange(1), metavar="N", help="Another intermediate size.")
@click.option("--rate", type=Finite(0, min_open=True), metavar="R", help="Peak learning rate; by default the size's.")
@click.option("--step-tokens", type=click.IntRange(2), metavar="N", help="Tokens in a step; by default the size's.")
@click.option(
    "--length",
    type=click.IntRange(2),
    metavar="N",
    help="Tokens in a row of a step, half as many in the first two thirds of the steps; by default the size's.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens of the corpora to use, from documents in random order; by default as many as the steps take.",
)
@click.option(
    "--min-count",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Ids that occur less often share one row of the vocabulary while training.",
)
@click.option(
    "--softmax-classes",
    type=click.IntRange(0),
    default=3584,
    show_default=True,
    metavar="N",
    help="Classes in the softmax of a step, the others by sample; 0 for all.",
)
@click.option("--boundary", metavar="TOKEN", help="Token between documents; by default BOS before and EOS after.")
@click.option(
    "--valid-tokens", type=click.IntRange(1), default=20_000, show_default=True, help="Held-out tokens of each corpus."
)
@run_options
@text_options
@json_option
@guarded
def train_draft(
    tokenizer: str,
    corpora: tuple[str, ...],
    weights: tuple[float, ...],
    valid: tuple[str, ...],
    steps: int,
    out: Path | None,
    size: str,
    config: Path | None,
    hidden: int | None,
    layers: int | None,
    heads: int | None,
    kv_heads: int | None,
    intermediate: int | None,
    rate: float | None,
    step_tokens: int | None,
    length: int | None,
    text_field: str | None,
    on_error: Any,
    as_json: bool,
    **others: Any,
) -> None:
    """Train a small Llama-type model from scratch, for mlx-lm to load from OUT.

    Beside it lie training.json (arguments, versions, bits per byte on held-out text), the loss curve
    as curve.parquet and, with spectool[report], as a plot. Checkpoints lie beside OUT until all is
    done; after a kill or Ctrl-C, the same command goes on from there, with the same numbers.

    Several processes share a step under mlx.launch. On Linux, MLX's CPU build links a slow BLAS:
    preload another, as in the last example (50 times as fast).

    \b
    Examples:
        spectool train-draft --tokenizer ./Bielik-11B --corpus pl.txt.zst --steps 3600 -o pl-draft
        spectool train-draft --tokenizer T --corpus pl.txt --corpus uk.txt --weight 2 --weight 1 --steps 3600 -o D
        export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 OPENBLAS_NUM_THREADS=1
        mlx.launch -n 2 --backend ring -- spectool train-draft --tokenizer T --corpus C --steps 3600 -o D
    """
    context = click.get_current_context()
    if config is not None and context.get_parameter_source("size") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--size and --config exclude each other: the config has the shape")
    specs = named(corpora)
    for option, values in (("--weight", weights), ("--valid", valid)):
        if values and len(values) != len(specs):
            raise click.UsageError(
                f"{len(values)} {option} for {len(specs)} corpora: give one for each, in their order"
            )

    import mlx.core as mx

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.build.training.curve import Point
    from spectool.build.training.display import Display
    from spectool.build.training.scratch.draft import TrainOptions
    from spectool.build.training.scratch.draft import train_draft as run
    from spectool.build.training.scratch.text import Source
    from spectool.corpora import Corpus, open_corpus

    shape = shape_of(
        size,
        config,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
    )
    suited = SIZES[size]
    options = TrainOptions(
        shape,
        steps,
        rate or suited.rate,
        step_tokens or suited.step_tokens,
        length or suited.length,
        **others,
    )

    def opened_corpus(spec: str | None) -> Corpus | None:
        return None if spec is None else open_corpus(spec, on_error=on_error, text_field=text_field)

    sources = {}
    for (name, spec), held_out, weight in zip_longest(specs.items(), valid, weights or [1.0] * len(specs)):
        corpus = open_corpus(spec, on_error=on_error, text_field=text_field)
        sources[name] = Source(corpus, opened_corpus(held_out), weight)
    opened = open_tokenizer(tokenizer)
    path = out or default_path(
        f"{slug('-'.join(specs))}.{opened.fingerprint[:8]}-{digest(options, corpora, weights, valid)}.draft"
    )

    def quiet(text: str) -> None:
        pass

    first = mx.distributed.init().rank() == 0
    note = say if first else quiet
    for line in opened.notes:
        note(f"{opened.name}: {line}")
    how = {"on_error": on_error, "text_field": text_field}

    def shown(point: Point) -> None:
        display.show(point, "" if point.bits_per_byte is None else f"{point.bits_per_byte:.3f} bits/byte")

    with Display(steps, "training", first) as display:
        try:
            record = run(sources, opened, path, options, note, shown, reading, how)
        except KeyboardInterrupt:
            if display.last is None:
                raise
            display.close()
            note(f"Interrupted after step {display.last.step:,}; the same command goes on from the last checkpoint.")
            sys.exit(130)
    if not first:
        return
    if "curve.svg" not in record["files"]:
        say("no plot without matplotlib: pip install 'spectool[report]'")
    facts = {"path": str(path), **record}
    show(facts if as_json else _in_short(facts), as_json)


def _in_short(record: dict[str, Any]) -> dict[str, Any]:
    held_out, parameters = record["held_out"], record["parameters"]
    apart = {
        f"held out, {name}": f"{found['bits_per_byte']:.4f} bits per byte, {found['nats_per_token']:.3f} nats per token"
        for name, found in held_out["corpora"].items()
    }
    return {
        "path": record["path"],
        "parameters": f"{parameters['stored']:,} ({parameters['trained']:,} while training)",
        "trained": f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:,} s",
        "loss": f"{record['loss']:.3f} nats per token in the last step",
        "held out": f"{held_out['bits_per_byte']:.4f} bits per byte, {held_out['nats_per_token']:.3f} nats per token "
        f"({held_out['tokens']:,} tokens)",
        **(apart if len(apart) > 1 else {}),
        "files": record["files"],
    }
