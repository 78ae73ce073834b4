"""Dictionaries beside Arctic Inference's suffix tree, fed the same text and replayed on the same other text.

    pip install --no-deps arctic-inference        # compiles C++, some minutes
    python benchmarks/peers.py                     # every tokenizer and language that is not measured yet
    python benchmarks/peers.py --tokenizer bielik-11b-v2.5 --language uk --train-tokens 2000000

The suffix tree (`SuffixDecodingCache`) gets every training document as a finished request. It drafts from these alone
(static), or from the replayed document's own beginning as well (with history). There are several limits on how far it
guesses. Backoff and dictspec dictionaries are built from the same documents; theirs are replayed at several least
probabilities. At most 8 draft tokens a cycle.

Drafted: draft tokens per pass. us: microseconds per pass, the replay itself included. MB: a dictionary's files. Memory:
what opening and using it adds to the process (Linux only); of a dictionary hardly anything, since what building it took
is used again. `lookup.py` measures it in a fresh process.

Below ours: how many settings of a drafter save fewer passes than backoff does, between its settings, with as many
draft tokens. Prints the best setting of each and saves all in ``benchmarks/results/peers.jsonl``. Tokenizers and
corpora come from the folder named by SPECTOOL_SHARED.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache
from memory import resident_mb
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts import Dictionary
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.dictspec_stage import build_dictspec, open_counts
from spectool.build.dictionary.options import BackoffOptions, DictSpecOptions, DictSpecReading
from spectool.corpora import open_corpus
from spectool.measure.emulate import replay
from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tokenization import Tokenizer

RESULTS = Path(__file__).parent / "results" / "peers.jsonl"
_DRAFT = 8
_DEPTH = 24  # of the suffix tree, as its documentation has it
_FACTORS, _LEAST = (1.0, 2.0, 4.0), (0.0, 0.1, 0.3)
_FLOORS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
_DICTSPEC_FLOORS = (0.0, 0.4)  # those of the build are 0.2
_DICTSPEC_ENTRIES = (200_000, 500_000)  # more need more than 5 MB
TOKENIZERS = ("bielik-11b-v2.5", "llama-3.2", "gemma-3", "mistral-nemo", "qwen2.5", "bielik-4.5b-v3-apt4")
_LEFT_OUT = {("bielik-4.5b-v3-apt4", "uk")}  # a vocabulary for Polish


class SuffixTreeDrafter(Drafter):
    """Arctic Inference's cache as a drafter of ours."""

    name = "suffix tree"

    def __init__(self, cache: Any, factor: float, least: float, history: bool) -> None:
        """Draft from ``cache``.

        Args:
            cache: Holds the training documents.
            factor: At most this many times the matched length is guessed (``max_spec_factor``).
            least: Least estimated probability of a token (``min_token_prob``).
            history: Let the replayed document's own tokens into the tree of its request.
        """
        self._cache, self._factor, self._least, self._history = cache, factor, least, history
        self._context: list[int] = []

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a request.

        Its tokens are kept out of the tree that all requests share, and in that of the request alone. A response that
        is evicted later leaves parts of itself behind. So the replays of one document would help the next replay of it.
        """
        if "replayed" in self._cache.active_requests:
            self._cache.stop_request("replayed")
        self._context = list(prompt)
        self._cache.start_request("replayed", self._context)
        self._cache.evict_cached_response("replayed")

    def propose(self, limit: int) -> Proposal:
        """Guess the most likely continuation."""
        if not self._context:
            return Proposal((), self.name)
        found = self._cache.speculate(
            "replayed",
            self._context[-_DEPTH:],
            max_spec_tokens=limit,
            max_spec_factor=self._factor,
            max_spec_offset=0.0,
            min_token_prob=self._least,
        )
        return Proposal(tuple(found.token_ids[:limit]), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Go on."""
        self._context += tokens
        if self._history:
            self._cache.add_active_response("replayed", list(tokens))


@click.command()
@click.option("--tokenizer", "names", multiple=True, default=TOKENIZERS, show_default=True)
@click.option("--language", "languages", multiple=True, default=("uk", "pl"), show_default=True)
@click.option("--train-tokens", default=13_000_000, show_default=True, help="Tokens of text for all.")
@click.option("--tokens", default=40_000, show_default=True, help="Tokens to replay.")
def main(names: tuple[str, ...], languages: tuple[str, ...], train_tokens: int, tokens: int) -> None:
    """Measure all on every tokenizer and language that is not measured yet; save and print."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for name, language in product(names, languages):
        case = {"tokenizer": name, "language": language, "asked": train_tokens}
        if not any(case.items() <= row.items() for row in rows) and (name, language) not in _LEFT_OUT:
            # A process of its own for each case: memory given back by one would hide what the next one takes.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                found = pool.submit(_case, name, language, train_tokens, tokens).result()
            rows += [case | row for row in found]
            RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for case in dict.fromkeys((row["tokenizer"], row["language"], row["asked"]) for row in rows):
        alike = [row for row in rows if (row["tokenizer"], row["language"], row["asked"]) == case]
        if case[0] in names and case[1] in languages and case[2] == train_tokens:
            click.echo(_summary(*case, alike))


def _summary(tokenizer: str, language: str, asked: int, rows: list[dict[str, Any]]) -> str:
    """Return the best setting of every drafter, and how its curve lies to ours."""
    lines = [f"\n{tokenizer}, {language}, {asked:,} tokens of text\n"]
    columns = ("drafter", "tokens per pass", "acceptance", "drafted", "us", "MB", "memory MB")
    lines += ["| " + " | ".join((*columns, "below ours")) + " |", "|---|" + "---:|" * len(columns)]
    kinds = ("backoff", "dictspec whole", "dictspec path", "suffix tree")
    for history, kind in product((False, True), kinds):
        alike = [row for row in rows if row["drafter"].startswith(kind) and ("history" in row["drafter"]) == history]
        ours = [
            row for row in rows if row["drafter"].startswith("backoff") and ("history" in row["drafter"]) == history
        ]
        best = max(alike, key=lambda row: row["tokens per pass"])
        below = sum(row["tokens per pass"] < _interpolated(ours, row["drafted"]) for row in alike)
        place = "" if kind == "backoff" else f"{below} of {len(alike)}"
        lines.append("| " + " | ".join([*(str(best[column]) for column in columns), place]) + " |")
    return "\n".join(lines)


def _interpolated(rows: list[dict[str, Any]], drafted: float) -> float:
    """Return tokens per pass at so many draft tokens per pass, between the nearest settings; 1 at none."""
    points = sorted([(0.0, 1.0), *((row["drafted"], row["tokens per pass"]) for row in rows)])
    return float(np.interp(drafted, *zip(*points, strict=True)))


def _case(name: str, language: str, train_tokens: int, tokens: int) -> list[dict[str, Any]]:
    """Measure everything on one tokenizer and language."""
    tokenizer = real_tokenizer(name)
    documents = list(encoded(tokenizer, real_corpus(language, "valid"), tokens))
    trained = list(encoded(tokenizer, real_corpus(language, "train"), train_tokens))
    common = {"train tokens": sum(map(len, trained)), "documents": len(trained)}
    found = [common | row for row in _dictionaries(tokenizer, language, len(trained), documents)]
    return found + [common | row for row in _suffix_trees(trained, documents)]


def _dictionaries(
    tokenizer: Tokenizer, language: str, number: int, documents: list[list[int]]
) -> Iterator[dict[str, Any]]:
    """Replay with dictionaries of the same documents, alone and with history."""
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "train.txt"
        with text.open("w", encoding="utf-8") as file:
            for document, _ in zip(real_corpus(language, "train"), range(number), strict=False):
                file.write(document.text.replace("\n", " ") + "\n")
        for label, out in _built(tokenizer, text, Path(scratch)):
            size = round(sum(file.stat().st_size for file in out.iterdir()) / 1e6, 2)
            floors = _FLOORS if label == "backoff" else _DICTSPEC_FLOORS
            for history, floor in product((False, True), floors):
                before = resident_mb()
                drafter = LookupDrafter(Dictionary(out), history, floor)
                name = f"{label}, p >= {floor:g}" + " + history" * history
                row = _replayed(drafter, documents, name)
                yield row | {"MB": size, "memory MB": round(max(0, resident_mb() - before))}


def _built(tokenizer: Tokenizer, text: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Build every dictionary from the text."""
    out = scratch / "backoff.dict"
    limits = CountOptions(workers=1)
    count_and_build(tokenizer, open_corpus(str(text)), out, BackoffOptions(), limits, lambda step: None)
    yield "backoff", out
    words = scratch / "words.counts"
    count(open_corpus(str(text)), words, limits, None, lambda step: None)
    readings: tuple[DictSpecReading, ...] = ("whole", "path")
    for reading, entries in product(readings, _DICTSPEC_ENTRIES):
        out = scratch / f"{reading}-{entries}.dict"
        options = DictSpecOptions(min_probability=0.2, reading=reading, entries=entries)
        build_dictspec(tokenizer, open_counts(words), out, options, lambda step: None)
        yield f"dictspec {reading} {entries // 1000}k", out


def _suffix_trees(trained: list[list[int]], documents: list[list[int]]) -> Iterator[dict[str, Any]]:
    """Replay with the suffix tree under all settings."""
    before = resident_mb()
    cache = SuffixDecodingCache(max_tree_depth=_DEPTH)
    for number, document in enumerate(trained):
        cache.start_request(number, [])
        cache.add_active_response(number, document)
        cache.stop_request(number)
    grown = round(resident_mb() - before)
    for history, factor, least in product((False, True), _FACTORS, _LEAST):
        name = f"suffix tree, factor {factor:g}, p >= {least:g}" + " + history" * history
        row = _replayed(SuffixTreeDrafter(cache, factor, least, history), documents, name)
        yield row | {"MB": "", "memory MB": grown}


def _replayed(drafter: Drafter, documents: list[list[int]], name: str) -> dict[str, Any]:
    begun = time.perf_counter()
    statistics = replay(documents, drafter, _DRAFT)
    seconds = time.perf_counter() - begun
    return {
        "drafter": name,
        "tokens": statistics.tokens,
        "tokens per pass": round(statistics.tokens_per_pass, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "drafted": round(statistics.proposed / statistics.passes, 3),
        "us": round(1e6 * seconds / statistics.passes, 1),
    }


if __name__ == "__main__":
    main()
