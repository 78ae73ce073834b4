"""Size, opening time and look-up time of a dictionary; prints, asserts nothing.

    python benchmarks/lookup.py pl.dict --corpus text.txt

Contexts come from a real text in its order, so that hits, misses and lengths occur as in use.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import click
from memory import resident_mb

from spectool.artifacts import Dictionary
from spectool.corpora import open_corpus
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tokenization import open_tokenizer

LIMIT = 50_000  # contexts


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--corpus", required=True, help="Text to take contexts from.")
@click.option("--tokenizer", help="By default the one the dictionary names.")
@click.option("--repeat", default=5, show_default=True)
def main(path: Path, corpus: str, tokenizer: str | None, repeat: int) -> None:
    """Measure one dictionary and print the figures as JSON."""
    openings = [_timed(lambda: Dictionary(path)) for _ in range(20)]
    dictionary = Dictionary(path)
    target = open_tokenizer(tokenizer or dictionary.manifest.tokenizers["target"]["name"])
    documents = [target.encode(document.text) for document in open_corpus(corpus)]
    histories = [ids[max(0, end - 8) : end] for ids in documents for end in range(1, len(ids))][:LIMIT]
    times: list[tuple[int, bool]] = []
    for _ in range(repeat):
        for history in histories:
            started = time.perf_counter_ns()
            match = dictionary.look_up(history)
            times.append((time.perf_counter_ns() - started, match is not None))
    before = resident_mb()
    alone, both = _drafting(LookupDrafter(dictionary), documents), _drafting(LookupDrafter(dictionary, True), documents)
    memory = resident_mb() - before
    figures = {
        "entries": len(dictionary),
        "bytes": dictionary.manifest.total_bytes,
        "open median ms": round(statistics.median(openings) / 1e6, 3),
        "memory of drafting MB": round(memory, 1),
        "contexts": len(histories),
        "hits": round(sum(hit for _, hit in times) / len(times), 3),
        "look-up median us": _median(times, (True, False)),
        "look-up of a hit median us": _median(times, (True,)),
        "look-up of a miss median us": _median(times, (False,)),
        "proposal of 8 median us": alone[0],
        "commit of a token median us": alone[1],
        "with history: proposal of 8 median us": both[0],
        "with history: commit of a token median us": both[1],
    }
    click.echo(json.dumps(figures, indent=1))


def _median(times: list[tuple[int, bool]], wanted: tuple[bool, ...]) -> float:
    return round(statistics.median(ns for ns, hit in times if hit in wanted) / 1e3, 2)


def _timed(call: Callable[[], object]) -> int:
    started = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - started


def _drafting(drafter: LookupDrafter, documents: list[list[int]]) -> tuple[float, float]:
    """Return the median microseconds of a proposal and of a commit, one committed token a cycle."""
    proposing, committing = [], []
    for ids in documents[:500]:
        drafter.start(())
        for token in ids:
            started = time.perf_counter_ns()
            drafter.propose(8)
            proposed = time.perf_counter_ns()
            drafter.commit((token,))
            proposing.append(proposed - started)
            committing.append(time.perf_counter_ns() - proposed)
    return round(statistics.median(proposing) / 1e3, 2), round(statistics.median(committing) / 1e3, 2)


if __name__ == "__main__":
    main()
