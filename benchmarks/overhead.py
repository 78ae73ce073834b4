"""Python time of a cycle outside model calls: what drafting adds to the passes, by kind of cache.

    python benchmarks/overhead.py

A hollow model has the caches of a large one. It feeds them, computes nothing else and returns a real text, so the
thread that runs the loop hardly sleeps, as with a fast device. The time inside the model's ``__call__``, which builds
the pass, and inside the calls that compute it or wait for it is subtracted. Everything else counts: asking the drafter,
checking the proposal, marking and rewinding the caches, log-probabilities, statistics, the policy. Times are
processor microseconds of the thread, medians over cycles after the first ones of each generation. Next to a model that
computes on the same processor, the loop finds cold caches and takes two to three times as long.

Dictionary and history draft four tokens for the bundled demo tokenizer. Appends to
``benchmarks/results/overhead.jsonl``.
"""

import json
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from time import thread_time
from typing import Any
from unittest.mock import patch

import click
import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache
from saving import save

from spectool.build.dictionary import BackoffOptions
from spectool.build.packs.stage import count_and_build
from spectool.corpora import open_corpus
from spectool.runtime import DraftStatistics, generate_step, load_drafter
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer

PROMPT, TOKENS, LEFT_OUT = 128, 256, 16  # tokens of a prompt and of a generation; cycles left out at its beginning
CACHES: dict[str, Callable[[], list[Any]]] = {
    "2 KV": lambda: [KVCache() for _ in range(2)],
    "32 KV": lambda: [KVCache() for _ in range(32)],
    "26 windows, 6 KV": lambda: [*(RotatingKVCache(max_size=64) for _ in range(26)), *(KVCache() for _ in range(6))],
    "24 recurrent, 8 KV": lambda: [*(ArraysCache(2) for _ in range(24)), *(KVCache() for _ in range(8))],
}


class Hollow:
    """A model that feeds its caches, computes nothing, and returns a text of token ids."""

    def __init__(self, make_cache: Callable[[], list[Any]], text: Sequence[int], vocabulary: int) -> None:
        self.make_cache = make_cache
        self._text, self._ids = mx.array(list(text)), mx.arange(vocabulary)

    def __call__(self, tokens: mx.array, cache: Sequence[Any] = ()) -> mx.array:
        """Logits [1, tokens, vocabulary] that cannot be computed before the caches are."""
        count = tokens.shape[1]
        first = 1 + next((entry.offset for entry in cache if isinstance(entry, KVCache)), 0)
        pair, held = mx.zeros((1, 1, count, 8)), []
        for entry in cache:
            if isinstance(entry, ArraysCache):
                entry[0], entry[1] = mx.zeros((1, 3, 8)), mx.zeros((1, 1, 8, 8))
                held += entry.cache
            else:
                held += entry.update_and_fetch(pair, pair)
        logits = (self._text[first : first + count, None] == self._ids).astype(mx.float32)
        return mx.depends([logits], held)[0][None]


@contextmanager
def outside(places: Sequence[tuple[Any, str]]) -> Iterator[list[float]]:
    """Yield seconds spent in functions and methods, as a list of one sum."""
    spent, depth = [0.0], [0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            began = thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                depth[0] -= 1
                if not depth[0]:
                    spent[0] += thread_time() - began

        return run

    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name))))
        yield spent


@click.command()
@click.option("--cycles", default=600, show_default=True, help="Cycles to measure for each kind of cache.")
@click.option("--num-draft-tokens", "lengths", multiple=True, default=("4", "auto"), show_default=True)
def main(cycles: int, lengths: tuple[str, ...]) -> None:
    """Measure every kind of cache; print and save."""
    tokenizer, corpus = open_tokenizer(demo_path("target") / "tokenizer.json"), open_corpus("sample:pl")
    text = [token for document in corpus for token in tokenizer.encode(document)]
    with tempfile.TemporaryDirectory() as scratch:
        dictionary, choice = Path(scratch) / "pl.dict", BackoffOptions(min_count=1)
        count_and_build(tokenizer, open_corpus("sample:pl"), dictionary, choice, lambda step: None)
        drafter = load_drafter(str(demo_path("target")), dictionary=dictionary)
        for name, make_cache in CACHES.items():
            for length in lengths:
                options = {"num_draft_tokens": int(length) if length.isdigit() else None, "drafter": drafter}
                hollow = Hollow(make_cache, text, tokenizer.size)
                row = {"caches": name, "k": length, **measure(hollow, text, cycles, options)}
                click.echo(json.dumps(row))
                save("overhead", {**row, "machine": platform.platform()})


def measure(model: Hollow, text: Sequence[int], cycles: int, options: dict[str, Any]) -> dict[str, Any]:
    """Generate until there are ``cycles`` of them; return medians in microseconds."""
    measured: list[float] = []
    statistics = DraftStatistics()
    with outside([(Hollow, "__call__"), (mx, "async_eval"), (mx, "eval"), (mx.array, "item")]) as spent:
        while len(measured) < cycles:
            ends: list[tuple[float, float]] = []
            done = partial(_note, ends, spent)
            more = {"max_tokens": TOKENS, "statistics": statistics, "on_cycle": done}
            for _ in generate_step(mx.array(text[:PROMPT]), model, **more, **options):
                pass
            pairs = list(pairwise(ends))[LEFT_OUT:]
            measured += [(later - sooner) - (inside - before) for (sooner, before), (later, inside) in pairs]
    microseconds = [1e6 * seconds for seconds in measured]
    return {
        "us": round(median(microseconds), 1),
        "us 10%": round(quantiles(microseconds, n=10)[0], 1),
        "us 90%": round(quantiles(microseconds, n=10)[-1], 1),
        "cycles": len(measured),
        "tokens per pass": round(statistics.tokens_per_pass, 2),
    }


def _note(ends: list[tuple[float, float]], spent: list[float], cycle: object) -> None:
    ends.append((thread_time(), spent[0]))


if __name__ == "__main__":
    main()
