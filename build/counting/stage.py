"""The stage behind ``spectool count``: corpus in, exact counts of word n-grams or of token windows out.

Order by order: blocks of text become symbols, shards of symbols become sorted (key, count) pairs, and buckets of keys
are merged over all shards. What each task does is in `symbols` and `ngrams`. Here is their order, what is handed out
when, and what is thrown away.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from spectool import SpectoolError, __version__
from spectool.artifacts.counts import FORMAT, VERSION, write_level, write_vocabulary
from spectool.artifacts.manifest import Manifest, seal
from spectool.artifacts.replacing import check_replaceable, writing
from spectool.artifacts.work import Figures, discard, finished, read_json, save, working, write_json
from spectool.build.counting import engines
from spectool.build.counting import ngrams as count_ngrams
from spectool.build.counting import symbols as count_symbols
from spectool.build.counting.engines import Runner, Task
from spectool.build.counting.options import CountOptions
from spectool.build.counting.plan import SAMPLE_EVERY, Plan, bucket_number, in_blocks, make_plan, shards_of
from spectool.build.inputs import Progress, Reader, describe_corpus
from spectool.corpora import Corpus
from spectool.tokenization.tokenizer import Tokenizer

WORD_ORDERS = 3
WINDOW_ORDERS = 8
_MOST_ROWS = 2**31 - 1
_FEW_BLOCKS = 2  # are counted sooner than processes start


def count(
    corpus: Corpus,
    out: Path,
    options: CountOptions,
    tokenizer: Tokenizer | None,
    progress: Progress,
    reader: Reader = iter,
    plan: Plan | None = None,
) -> Manifest:
    """Count a corpus and write the counts to ``out``.

    With several workers this starts processes: in a script, call it under ``if __name__ == "__main__":``.

    Args:
        corpus: The text.
        out: Directory of the artifact; replaced in one step when everything is counted. Until then the
            work lies beside it, and the same call resumes after a kill.
        options: See `CountOptions`.
        tokenizer: Count windows of its tokens; None to count words.
        progress: Called with a phrase when a step begins.
        reader: Iterates over the corpus.
        plan: Sizes of the pieces; made from the options' memory and workers by default.

    Returns:
        The manifest of the finished artifact.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: Too little memory, no such engine, or a worker that was killed.
    """
    check_replaceable(out, FORMAT)
    plan = plan or _plan(options)
    kind, unit, longest = ("words", "words", WORD_ORDERS) if tokenizer is None else ("windows", "tokens", WINDOW_ORDERS)
    orders = options.orders or longest
    arguments = {"kind": kind, "orders": orders, "min_count": options.min_count}
    texts = (document.text.encode() for document in reader(corpus))
    cut = in_blocks(texts, lambda text: len(text) + 1, plan.block_bytes)
    start = list(islice(cut, _FEW_BLOCKS + 1))
    key = {
        "tool": __version__,
        "format": VERSION,
        "corpus": corpus.spec,
        "files": [list(file) for file in corpus.describe_inputs()],
        # distinguishes what name and files do not: another column, or another reader
        "first_block": hashlib.sha256(b"\0".join(start[0])).hexdigest(),
        "arguments": arguments,
        "language": options.language,
        "tokenizer": None if tokenizer is None else tokenizer.identity,
        "specials": None if tokenizer is None else sorted(tokenizer.specials),
        "pieces": asdict(plan),
    }
    with working(out, key) as work, _engine(options, plan, len(start)) as executor:
        runner = Runner(work, executor, 2 * plan.workers)
        job = _Job(corpus, options, orders, tokenizer, progress, plan, runner, unit)
        try:
            inputs, figures = job.run(chain(start, cut))
        except BrokenProcessPool as error:
            raise SpectoolError(
                "a worker was killed, perhaps for lack of memory. Give a lower --memory or fewer --workers; the same "
                "command with the same limits goes on where this one ended"
            ) from error
        progress("writing")
        with writing(out) as directory:
            for order in range(1, orders + 1):
                write_level(directory, order, count_ngrams.collect(work, order))
            if tokenizer is None:
                write_vocabulary(directory, count_symbols.read_words(work, "vocabulary")[0])
                inputs["language"] = options.language
            manifest = Manifest(
                format=FORMAT,
                version=VERSION,
                arguments=arguments,
                tokenizers={} if tokenizer is None else {"target": tokenizer.identity},
                inputs=inputs,
                statistics={
                    "total": figures[0]["occurrences"],
                    "orders": {str(order): of_order for order, of_order in enumerate(figures, 1)},
                },
            )
            return seal(directory, manifest)


def _plan(options: CountOptions) -> Plan:
    return make_plan(options.memory, options.workers)


def _engine(options: CountOptions, plan: Plan, blocks: int) -> AbstractContextManager[Executor]:
    return engines.embedded(plan.workers if blocks > _FEW_BLOCKS else 1)


@dataclass(frozen=True, slots=True)
class _Job:
    """The tasks of one count: those that are not finished are run."""

    corpus: Corpus
    options: CountOptions
    orders: int
    tokenizer: Tokenizer | None
    progress: Progress
    plan: Plan
    runner: Runner
    unit: str  # words or tokens

    def run(self, blocks: Iterator[list[bytes]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return what the manifest says of the corpus, and of each order."""
        self.progress(f"splitting into {self.unit}")
        read: dict[str, Any] = read_json(self.runner.work / "read.json") or self._encode(blocks)
        encoded: list[Figures] = read["blocks"]
        discard(self.runner.work, "text-*")
        self.progress("counting single " + self.unit)
        merged = [self._count_words(encoded) if self.tokenizer is None else self._count_tokens(encoded)]
        shards = shards_of([figures["symbols"] for figures in encoded], self.plan)
        for order in range(2, self.orders + 1):
            self.progress(f"counting {order}-grams")
            merged.append(self._count_order(order, shards, encoded))
        windows = np.sum([figures["windows"] for figures in encoded], axis=0).tolist()
        return read["inputs"], [
            _figures(order, number, self.options.min_count, buckets)
            for order, (number, buckets) in enumerate(zip(windows, merged, strict=True), 1)
        ]

    def _encode(self, blocks: Iterator[list[bytes]]) -> dict[str, Any]:
        """Hand out the blocks of text, a few at a time; note their figures, and those of the corpus."""
        work = self.runner.work
        function: Callable[..., Figures] = count_symbols.encode_words
        arguments: tuple[Any, ...] = self.orders, self.options.language
        if self.tokenizer is not None:
            function, arguments = count_symbols.encode_tokens, (self.orders, self.tokenizer.name)
            (work / "tokenizer.json").write_text(self.tokenizer.backend.to_str(), encoding="utf-8")
            save(work, "token_symbols", count_symbols.token_symbols(self.tokenizer.size, self.tokenizer.specials))

        with tqdm(total=self.corpus.total_bytes, desc="splitting", unit="B", unit_scale=True, disable=None) as bar:

            def tasks() -> Iterator[Task]:
                for number, texts in enumerate(blocks):
                    if finished(work, f"encode-{number}") is None:
                        count_symbols.write_text(work, number, texts)
                    yield f"encode-{number}", function, (number, *arguments)
                    bar.update(self.corpus.bytes_read - bar.n)

            started, seen, results = time.monotonic(), 0, {}
            for name, figures in self.runner.results(tasks()):
                (work / name.replace("encode", "text")).unlink(missing_ok=True)
                results[name] = figures
                seen += figures["windows"][0]
                bar.set_postfix_str(f"{seen / (time.monotonic() - started):,.0f} {self.unit}/s")
        encoded = [results[f"encode-{number}"] for number in range(len(results))]
        read = {"inputs": describe_corpus(self.corpus), "blocks": encoded}
        write_json(work / "read.json", read)
        return read

    def _count_tokens(self, encoded: list[Figures]) -> list[Figures]:
        merged = self.runner.run([("merge-1-0", count_symbols.merge_tokens, (len(encoded), self.options.min_count))])
        discard(self.runner.work, "uses-*")
        return merged

    def _count_words(self, encoded: list[Figures]) -> list[Figures]:
        """Make the vocabulary and write every block in its symbols."""
        run, blocks = self.runner.run, len(encoded)
        records = sum(figures["records"] for figures in encoded)
        buckets = bucket_number(records, blocks, self.plan, count_symbols.WORDS_EVERY)
        run([("cut-1", count_symbols.cut_words, (blocks, buckets))])
        arguments = blocks, self.options.min_count
        merged = run([(f"merge-1-{b}", count_symbols.merge_words, (b, *arguments)) for b in range(buckets)])
        run([("number", count_symbols.number_words, (buckets,))])
        run([(f"place-{b}", count_symbols.place_words, (b,)) for b in range(blocks)])
        discard(self.runner.work, "local-*", "words-*", "words.*")
        return merged

    def _count_order(self, order: int, shards: list[tuple[int, int]], encoded: list[Figures]) -> list[Figures]:
        """Count the n-grams of one order, from those of the order before."""
        runner, last = self.runner, order == self.orders
        counting: list[Task] = [
            (f"count-{order}-{s}", count_ngrams.count_shard, (order, s, *shard, last)) for s, shard in enumerate(shards)
        ]
        lengths = [sum(figures["windows"][0] for figures in encoded[first:stop]) for first, stop in shards]
        results = runner.run(counting, lengths, f"{order}-grams", self.unit)
        discard(runner.work, *(f"n{order - 1}.{name}-*" for name in ("places", "rows", "starts")))
        records = sum(figures["records"] for figures in results)
        buckets = bucket_number(records, len(shards), self.plan, SAMPLE_EVERY)
        runner.run([(f"cut-{order}", count_ngrams.cut_keys, (order, len(shards), buckets))])
        arguments = len(shards), self.options.min_count, last
        merging: list[Task] = [
            (f"merge-{order}-{b}", count_ngrams.merge_bucket, (order, b, *arguments)) for b in range(buckets)
        ]
        merged = runner.run(merging, [records // buckets] * buckets, f"merging {order}-grams", "n-grams")
        bases = np.cumsum([0, *(figures["kept"] for figures in merged)])
        if bases[-1] > _MOST_ROWS:
            raise SpectoolError(
                f"{bases[-1]:,} different {order}-grams occur {self.options.min_count} times or more, expected at most "
                f"{_MOST_ROWS:,}. Give a higher --min-count"
            )
        save(runner.work, f"n{order}.bases", bases)
        discard(runner.work, *(f"n{order}.{name}-*" for name in ("found", "uses", "sample")))
        return merged


def _figures(order: int, windows: int, min_count: int, merged: list[Figures]) -> dict[str, Any]:
    """Return what the manifest says of an order, from the figures of its buckets.

    From order 2 on, an n-gram below the minimum may never have been looked at. So the number of these is known only
    where all of them occur once. Then it is that of all occurrences that are not of a kept n-gram. Else it is None.
    """
    distinct, kept, of_kept = (sum(figures[name] for figures in merged) for name in ("distinct", "kept", "occurrences"))
    times = np.sum([figures["counts_of_counts"] for figures in merged], axis=0).tolist()
    if order > 1 and min_count > 1:
        times[: min_count - 1] = [None] * min(min_count - 1, len(times))
        distinct = None
        if min_count == 2:
            times[0] = windows - of_kept
            distinct = kept + windows - of_kept
    return {
        "occurrences": windows,
        "distinct": distinct,
        "kept": kept,
        "kept_occurrences": of_kept,
        "counts_of_counts": times,
    }
