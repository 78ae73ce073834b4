"""The command ``train-draft``."""

from itertools import repeat
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.options import options_of
from spectool.commands.console import guarded, reading, say, show
from spectool.commands.options import Finite, corpora_option, json_option, out_option, text_options, tokenizer_option
from spectool.lab.training.options import SIZES, TrainOptions, shape_of
from spectool.lab.training.run_options import named


@click.command("train-draft")
@tokenizer_option(required=True, help="Directory, tokenizer.json or hub id; mostly the target's.")
@corpora_option(
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
@out_option
@click.option(
    "--size",
    type=click.Choice(list(SIZES)),
    default="4m",
    show_default=True,
    help="Parameters where 11,000 ids are common: 0.2, 1.4, 7, 26 or 85 million without embeddings, and 96, 224, 384, "
    "512 or 768 for each id. While training, rare ids share a row; in the stored model each id has its own.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Shape from the config.json of a Llama-type model, instead of --size.",
)
@click.option("--rate", type=Finite(0, min_open=True), metavar="R", help="Peak learning rate; by default the size's.")
@click.option("--step-tokens", type=click.IntRange(2), metavar="N", help="Tokens in a step; by default the size's.")
@click.option(
    "--length",
    type=click.IntRange(2),
    metavar="N",
    help="Tokens in a row of a step, half as many in the first two thirds of the steps; by default the size's.",
)
@options_of(TrainOptions)
@text_options
@json_option
@guarded
def train_draft(
    tokenizer: str,
    corpora: tuple[str, ...],
    weights: tuple[float, ...],
    valid: tuple[str, ...],
    out: Path | None,
    size: str,
    config: Path | None,
    rate: float | None,
    step_tokens: int | None,
    length: int | None,
    reads: dict[str, Any],
    as_json: bool,
    **others: Any,
) -> None:
    """Train a small Llama-type model from scratch, for mlx-lm to load from OUT.

    Beside it lie training.json (arguments, versions, bits per byte on held-out text), the loss curve
    as curve.parquet and, with spectool[report], as a plot. Checkpoints lie beside OUT until all is
    done; after a kill or Ctrl-C, the same command resumes, with the same numbers.

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
    from spectool.corpora import open_corpus
    from spectool.lab.training.stage import train_draft as run
    from spectool.lab.training.text import TrainingCorpus
    from spectool.tokenization.opening import open_tokenizer

    suited = SIZES[size]
    options = TrainOptions(
        shape=shape_of(size, config),
        rate=rate or suited.rate,
        step_tokens=step_tokens or suited.step_tokens,
        length=length or suited.length,
        **others,
    )
    held_out = (open_corpus(spec, **reads) for spec in valid) if valid else repeat(None)
    sources = {
        name: TrainingCorpus(open_corpus(spec, **reads), kept, weight)
        for (name, spec), kept, weight in zip(specs.items(), held_out, weights or repeat(1.0), strict=False)
    }
    opened = open_tokenizer(tokenizer)
    path = out or default_path(
        f"{slug('-'.join(specs))}.{opened.fingerprint[:8]}-{digest(options, corpora, weights, valid)}.draft"
    )
    first = mx.distributed.init().rank() == 0
    note = say if first else lambda text: None
    for line in opened.notes:
        note(f"{opened.name}: {line}")
    record = run(sources, opened, path, options, note, reading, reads)
    if not first:
        return
    if "curve.svg" not in record["files"]:
        say("there is no plot, which needs: pip install 'spectool[report]'")
    facts = {"path": str(path), **record}
    show(facts if as_json else _in_short(facts), as_json)


def _in_short(record: dict[str, Any]) -> dict[str, Any]:
    held_out, parameters = record["held_out"], record["parameters"]
    corpora = held_out["corpora"] if len(held_out["corpora"]) > 1 else {}
    figures = {"held out": held_out} | {f"held out, {name}": found for name, found in corpora.items()}
    return {
        "path": record["path"],
        "parameters": f"{parameters['stored']:,} ({parameters['without_embeddings']:,} without embeddings; "
        f"{parameters['trained']:,} while training)",
        "trained": f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:,} s",
        "loss": f"{record['loss']:.3f} nats per token in the last step",
        **{
            name: f"{found['bits_per_byte']:.4f} bits per byte, {found['nats_per_token']:.3f} nats per token "
            f"({found['tokens']:,} tokens)"
            for name, found in figures.items()
        },
        "files": list(record["files"]),
    }
