"""The command ``train-draft``."""

from itertools import repeat
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import show
from spectool.commands.shared.options import (
    Finite,
    Whole,
    command,
    option,
    out_option,
    tokenizer_option,
)
from spectool.lab.options import by_name, corpora_option, count_option, rate_option, run_options
from spectool.lab.training.options import SIZES, TrainOptions, shape_of


@command("train-draft")
@tokenizer_option(required=True, help="Directory, tokenizer.json or hub id; usually the target's.")
@corpora_option(
    help="Text to train on: a corpus, as for build-dict. It is held in memory. May be repeated.",
)
@option(
    "--weight",
    "weights",
    type=Finite(0, 1_000_000, min_open=True),
    multiple=True,
    metavar="W",
    help="Share of each corpus in the tokens, in the order of the corpora; by default equal.",
)
@option(
    "--valid",
    multiple=True,
    metavar="SPEC",
    help="Text to measure on, one for each corpus; by default a hundredth of the corpus, which is then not trained on.",
)
@out_option
@option(
    "--size",
    type=click.Choice(list(SIZES)),
    default="4m",
    show_default=True,
    help="Parameters where 11,000 ids are common: 0.2, 1.4 or 7 million without embeddings, and 96, 224 or 384 for "
    "each id. While training, rare ids share a row; in the stored model each id has its own.",
)
@rate_option(help="Peak learning rate; by default the size's.")
@count_option("--step-tokens", help="Tokens in a step; by default the size's.")
@count_option(
    "--length",
    help="Tokens in a row of a step, half as many in the first two thirds of the steps; by default the size's.",
)
@run_options
@option(
    "--min-count",
    type=Whole(0),
    default=3,
    show_default=True,
    help="Ids that occur less often share one row of the vocabulary while training.",
)
@option(
    "--softmax-classes",
    type=Whole(0),
    default=3584,
    show_default=True,
    help="Classes in the softmax of a step, the rare ones sampled; 0 for all.",
)
@count_option("--valid-tokens", default=20_000, help="Held-out tokens of each corpus.")
def train_draft(
    tokenizer: str,
    corpora: tuple[str, ...],
    weights: tuple[float, ...],
    valid: tuple[str, ...],
    out: Path | None,
    size: str,
    rate: float | None,
    step_tokens: int | None,
    length: int | None,
    steps: int,
    measure_every: int | None,
    checkpoint_every: int | None,
    seed: int,
    min_count: int,
    softmax_classes: int,
    valid_tokens: int,
    as_json: bool,
) -> None:
    """Train a small Llama-type model from scratch, for mlx-lm to load from OUT.

    In addition to the model, OUT has training.json (arguments, versions, bits per byte on held-out text) and the loss
    curve as curve.parquet. Checkpoints are kept next to OUT until the model is written; after a kill or Ctrl-C, the
    same command resumes at the last one, with the same numbers.

    On Linux, MLX's CPU build links a slow BLAS. Preload another one, as in the last example; it is 50 times as fast.

    \b
    Examples:
        spectool lab train-draft --tokenizer ./Bielik-11B --corpus pl.txt.zst --steps 3600 -o pl-draft
        spectool lab train-draft --tokenizer T --corpus pl.txt --corpus uk.txt --weight 2 --weight 1 --steps 3600 -o D
        export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 OPENBLAS_NUM_THREADS=1
        spectool lab train-draft --tokenizer T --corpus pl.txt --steps 3600 -o D
    """
    specs = by_name(corpora, "--corpus")
    for name, values in (("--weight", weights), ("--valid", valid)):
        if values and len(values) != len(specs):
            raise click.UsageError(f"{len(values)} {name} for {len(specs)} corpora: give one for each, in their order")

    from spectool.artifacts.default_paths import default_path, digest, slug
    from spectool.corpora import open_corpus
    from spectool.lab.training.stage import train_from_scratch
    from spectool.lab.training.text import TrainingCorpus
    from spectool.tokenization.opening import open_tokenizer

    suited = SIZES[size]
    options = TrainOptions(
        shape=shape_of(size),
        rate=rate or suited.rate,
        step_tokens=step_tokens or suited.step_tokens,
        length=length or suited.length,
        steps=steps,
        measure_every=measure_every,
        checkpoint_every=checkpoint_every,
        seed=seed,
        min_count=min_count,
        softmax_classes=softmax_classes,
        valid_tokens=valid_tokens,
    )
    held_out = (open_corpus(spec) for spec in valid) if valid else repeat(None)
    sources = {
        name: TrainingCorpus(open_corpus(spec), kept, weight)
        for (name, spec), kept, weight in zip(specs.items(), held_out, weights or repeat(1.0), strict=False)
    }
    opened = open_tokenizer(tokenizer)
    path = out or default_path(
        f"{slug('-'.join(specs))}.{opened.fingerprint[:8]}-{digest(options, corpora, weights, valid)}.draft"
    )
    record = train_from_scratch(sources, opened, path, options)
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
