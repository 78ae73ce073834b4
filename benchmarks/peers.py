"""Dictionaries beside Arctic Inference's suffix tree, fed the same text and replayed on the same other text.

    pip install --no-deps arctic-inference        # compiles C++, some minutes
    python benchmarks/peers.py --train-tokens 2000000 --tokens 50000

The suffix tree (`SuffixDecodingCache`) gets every training document as a finished request and drafts
from these alone (static), or from the replayed document's own beginning as well (with history), under
several limits on how far it guesses. The dictionary is built from the same documents.
At most 8 draft tokens a cycle. MB: a dictionary's files; the memory that a tree takes (Linux only).

Prints a Markdown table and saves ``benchmarks/results/peers.jsonl``. Tokenizers and corpora come
from the folder named by SPECTOOL_SHARED.
"""

import json
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
from arctic_inference.suffix_decoding import SuffixDecodingCache
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts import Dictionary, Tokenizer
from spectool.build import DictSpecOptions, build_dictspec, count_corpus
from spectool.build.dictionary import Reading
from spectool.corpora import open_corpus
from spectool.runtime.dictionary_drafter import DictionaryDrafter
from spectool.runtime.drafter import Drafter, Proposal
from spectool.runtime.emulator import replay
from spectool.runtime.hybrid import HybridDrafter
from spectool.runtime.prompt_lookup import PromptLookupDrafter

RESULTS = Path(__file__).parent / "results" / "peers.jsonl"
_DRAFT = 8
_DEPTH = 24  # of the suffix tree, as its documentation has it
_FACTORS, _LEAST = (1.0, 2.0, 4.0), (0.1, 0.3)


class SuffixTreeDrafter:
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
        """Begin a request."""
        if "replayed" in self._cache.active_requests:
            self._cache.stop_request("replayed")
            self._cache.evict_cached_response("replayed")
        self._context = list(prompt)
        self._cache.start_request("replayed", self._context)

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
@click.option("--tokenizer", "names", multiple=True, default=("bielik-11b-v2.5",), show_default=True)
@click.option("--language", "languages", multiple=True, default=("uk", "pl"), show_default=True)
@click.option("--train-tokens", default=2_000_000, show_default=True, help="Tokens of text for both.")
@click.option("--tokens", default=50_000, show_default=True, help="Tokens to replay.")
def main(names: tuple[str, ...], languages: tuple[str, ...], train_tokens: int, tokens: int) -> None:
    """Measure both on every tokenizer and language; save and print."""
    rows: list[dict[str, Any]] = []
    # A process of its own for each case: memory given back by one would hide what the next one takes.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for name, language in product(names, languages):
            rows += pool.submit(_case, name, language, train_tokens, tokens).result()
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = ("tokenizer", "language", "drafter", "tokens per pass", "acceptance", "us per proposal", "MB")
    click.echo("| " + " | ".join(columns) + " |\n|" + "---|" * 3 + "---:|" * 4)
    for row in rows:
        click.echo("| " + " | ".join(str(row[column]) for column in columns) + " |")


def _case(name: str, language: str, train_tokens: int, tokens: int) -> list[dict[str, Any]]:
    """Measure everything on one tokenizer and language."""
    tokenizer = real_tokenizer(name)
    documents = list(encoded(tokenizer, real_corpus(language, "valid"), tokens))
    trained = list(encoded(tokenizer, real_corpus(language, "train"), train_tokens))
    common = {"tokenizer": name, "language": language, "train tokens": sum(map(len, trained))}
    trees = [common | row for row in _suffix_trees(trained, documents)]
    return [common | row for row in _dictionaries(tokenizer, language, len(trained), documents)] + trees


def _dictionaries(
    tokenizer: Tokenizer, language: str, count: int, documents: list[list[int]]
) -> Iterator[dict[str, Any]]:
    """Replay with dictspec dictionaries of the same documents, alone and with history."""
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "train.txt"
        with text.open("w", encoding="utf-8") as file:
            for document, _ in zip(real_corpus(language, "train"), range(count), strict=False):
                file.write(document.text.replace("\n", " ") + "\n")
        counted = count_corpus(open_corpus(str(text)))
        readings: tuple[Reading, ...] = ("whole", "path")
        for reading in readings:
            out = Path(scratch) / f"{reading}.dict"
            options = DictSpecOptions(min_probability=0.2, reading=reading)
            manifest = build_dictspec(tokenizer, counted, out, options, lambda step: None)
            for history in (False, True):
                drafter: Drafter = DictionaryDrafter(Dictionary(out))
                if history:
                    drafter = HybridDrafter([drafter, PromptLookupDrafter()])
                row = _replayed(drafter, documents, f"dictspec {reading} 0.2" + " + history" * history)
                yield row | {"MB": round(manifest.total_bytes / 1e6, 1)}


def _suffix_trees(trained: list[list[int]], documents: list[list[int]]) -> Iterator[dict[str, Any]]:
    """Replay with the suffix tree under all settings."""
    before = _memory()
    cache = SuffixDecodingCache(max_tree_depth=_DEPTH)
    for number, document in enumerate(trained):
        cache.start_request(number, [])
        cache.add_active_response(number, document)
        cache.stop_request(number)
    grown = round(_memory() - before)
    for history, factor, least in product((False, True), _FACTORS, _LEAST):
        name = f"suffix tree, factor {factor:g}, p >= {least:g}" + " + history" * history
        yield _replayed(SuffixTreeDrafter(cache, factor, least, history), documents, name) | {"MB": grown}


def _replayed(drafter: Drafter, documents: list[list[int]], name: str) -> dict[str, Any]:
    begun = time.perf_counter()
    statistics = replay(documents, drafter, _DRAFT)
    seconds = time.perf_counter() - begun
    return {
        "drafter": name,
        "tokens": statistics.tokens,
        "tokens per pass": round(statistics.tokens_per_pass, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "us per proposal": round(1e6 * seconds / statistics.passes, 1),
    }


def _memory() -> float:
    """Return the memory of this process in MB, where the system tells (Linux); else not a number."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    main()
