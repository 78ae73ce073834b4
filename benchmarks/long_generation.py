"""Memory over a long generation: what grows beside the caches of the models.

    python benchmarks/train_models.py pl three           # the models, once
    python benchmarks/long_generation.py                 # 10,000 tokens with each drafter

The trained target decodes at a temperature, since greedy text of a small model runs in circles. Its cache grows, or has
a window that wraps. Read at every thousandth token: the memory that MLX has in use less what the caches of target and
draft model hold. Beside it stand Python's heap (tracemalloc) and the resident memory of the process. Growth is the line
through the second half of these readings, in bytes a token.

Prints a Markdown table and adds to ``benchmarks/results/long_generation.jsonl``. Tokenizers and corpora come from
the folder named by SPECTOOL_SHARED.
"""

import gc
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import numpy as np
import real_artifacts
from memory import resident_mb
from mlx_lm.models.cache import KVCache, RotatingKVCache
from real_data import real_corpus
from tqdm import tqdm
from train_models import MODELS
from wall_clock import SAME_TOKENIZER, Noise

from spectool.artifacts import Alignment, Dictionary
from spectool.runtime import HybridDrafter, LookupDrafter, ModelDrafter, generate_step
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.loading import load_model
from spectool.runtime.translation.factory import make_translator
from spectool.tokenization import open_tokenizer

RESULTS = Path(__file__).parent / "results" / "long_generation.jsonl"
LANGUAGE = "pl"
CACHES: dict[str, Callable[[], Any]] = {"growing": KVCache, "window of 512": lambda: RotatingKVCache(max_size=512)}
_PROMPT = 24  # tokens

Made = tuple[Drafter | None, list[Any]]  # a drafter, and what holds the cache of its draft model


@click.command()
@click.option("--models", type=click.Path(path_type=Path), default=MODELS, help="Where the trained models are.")
@click.option("--drafter", "names", multiple=True, help="Of those in the table, by name; all of them by default.")
@click.option("--tokens", default=10_000, show_default=True)
@click.option("--every", default=500, show_default=True, help="Tokens between two readings.")
@click.option("--cache", "kinds", multiple=True, type=click.Choice(list(CACHES)), default=list(CACHES))
@click.option("--save/--no-save", default=True)
def main(models: Path, names: tuple[str, ...], tokens: int, every: int, kinds: tuple[str, ...], save: bool) -> None:
    """Generate, print and save."""
    target, loaded = load_model(str(models / LANGUAGE / "target"))
    prompt = open_tokenizer(loaded).encode(next(iter(real_corpus(LANGUAGE, "valid"))).text)[:_PROMPT]
    lines = []
    made = drafters(models)
    for name in names or made:
        for kind in kinds:
            lines.append(
                {"drafter": name, "cache": kind, **measured(target, prompt, made[name], CACHES[kind], tokens, every)}
            )
            click.echo(json.dumps(lines[-1]))
    if save:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    columns = [column for column in lines[0] if column != "readings"]
    click.echo("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for line in lines:
        click.echo("| " + " | ".join(str(line[column]) for column in columns) + " |")


def drafters(models: Path) -> dict[str, Callable[[], Made]]:
    """Return what makes each drafter anew, by name."""
    folder = models / LANGUAGE
    dictionary = Dictionary(real_artifacts.dictionary(folder, LANGUAGE))
    same = load_model(str(SAME_TOKENIZER[LANGUAGE]))[0]
    other, loaded = load_model(str(folder / "apt4"))
    sides = open_tokenizer(loaded), open_tokenizer(str(folder / "target"))
    alignment = Alignment(real_artifacts.alignment(folder, "apt4", LANGUAGE))

    def hybrid() -> Made:
        model = ModelDrafter(same)
        return HybridDrafter([LookupDrafter(dictionary, history=True), model]), [model.cache]

    def translated() -> Made:
        source = ModelSource(other, bos=sides[0].roles.bos, size=sides[0].size)
        return TranslatedDrafter(source, make_translator("anchored", alignment, *sides)), [source.cache]

    return {
        "none": lambda: (None, []),
        "dictionary + history": lambda: (LookupDrafter(dictionary, history=True), []),
        "dictionary + history + draft model": hybrid,
        "draft model, anchored": translated,
    }


def measured(
    target: Any, prompt: list[int], make: Callable[[], Made], make_cache: Callable[[], Any], tokens: int, every: int
) -> dict[str, Any]:
    """Generate once and return the readings and what grew."""
    drafter, owners = make()
    cache = [make_cache() for _ in target.layers]
    steps = generate_step(
        mx.array(prompt),
        target,
        drafter=drafter,
        num_draft_tokens=8,
        prompt_cache=cache,
        max_tokens=tokens,
        logits_processors=[Noise(0.7, 0, target.args.vocab_size)],
    )
    readings = []
    tracemalloc.start()
    for number, _ in enumerate(tqdm(steps, total=tokens, leave=False, unit=" tokens"), 1):
        if number % every == 0:
            readings.append((number, *reading([*cache, *(layer for owner in owners for layer in owner.content()[0])])))
    tracemalloc.stop()
    late = np.array(readings[len(readings) // 2 :])
    growth = [float(np.polyfit(late[:, 0], late[:, column], 1)[0]) for column in range(1, late.shape[1])]
    caches, beside, heap, resident = (round(each, 1) for each in growth)
    return {
        "tokens": number,
        "caches, bytes a token": caches,
        "other MLX memory, bytes a token": beside,
        "Python heap, bytes a token": heap,
        "resident, bytes a token": resident,
        "readings": readings,
    }


def reading(cache: list[Any]) -> tuple[int, int, int, int]:
    """Return bytes: of the caches, of what else MLX has in use, of Python's heap, of the process."""
    gc.collect()
    held = sum(int(layer.nbytes) for layer in cache)
    return held, mx.get_active_memory() - held, tracemalloc.get_traced_memory()[0], round(resident_mb() * 1e6)


if __name__ == "__main__":
    main()
