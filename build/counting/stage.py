"""The stage behind ``spectool count``: corpus in, exact counts of token windows out.

The text is cut into parts. Each becomes tokens, which are counted as n-grams of order 1. Then, order by order,
the n-grams of every part are counted, and buckets of n-grams are merged over all parts. The tasks themselves are in
`symbols` and `ngrams`. This module runs them in order and removes files that are no longer needed. Threads are enough,
because NumPy and the tokenizer do their work outside Python's lock.
"""

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain, islice, pairwise
from operator import length_hint
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from spectool import SpectoolError, __version__
from spectool.artifacts.artifact import require_replaceable
from spectool.artifacts.counts import KIND, Counts, count_arrays
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.resumable import (
    TaskResult,
    discard,
    finished_task,
    read_json,
    resumable_work,
    run_task,
    write_json,
)
from spectool.build.corpus_reading import Progress, describe_corpus, in_parts
from spectool.build.counting import ngrams, symbols
from spectool.build.counting.options import CountOptions
from spectool.build.counting.plan import Plan, bucket_cuts, make_plan
from spectool.corpora import Corpus, Document
from spectool.tokenization.tokenizer import Tokenizer

WINDOW_ORDERS = 8
_MOST_ROWS = 2**31 - 1

_Task: TypeAlias = tuple[str, Callable[..., TaskResult], tuple[Any, ...]]
"""Name, function, arguments after the work directory."""


def count_text(
    corpus: Corpus,
    out: Path,
    options: CountOptions,
    tokenizer: Tokenizer,
    progress: Progress,
    documents: Iterable[Document] | None = None,
    plan: Plan | None = None,
) -> Manifest:
    """Count a corpus and write the counts to ``out``.

    Args:
        corpus: The text.
        out: The artifact, replaced in one step when everything is counted. Until then the
            work is kept next to it, and the same call resumes after a kill.
        options: Orders, minimum count and limits.
        tokenizer: Counts are of windows of its tokens.
        progress: Called at the start of each step with a short description.
        documents: Those of the corpus that are counted; all by default.
        plan: Sizes of the pieces; made from the options' memory by default.

    Raises:
        CorpusError: The text cannot be read.
        SpectoolError: Too little memory.
    """
    require_replaceable(out, Counts.format, {"target": tokenizer.fingerprint})
    plan = plan or make_plan(options.memory)
    orders = options.orders or WINDOW_ORDERS
    arguments = {"kind": KIND, "orders": orders, "min_count": options.min_count}
    texts = (document.text.encode() for document in (corpus if documents is None else documents))
    cut = in_parts(texts, lambda text: len(text) + 1, plan.part_bytes)
    start = list(islice(cut, 1))
    key = {
        "tool": __version__,
        "format": Counts.version,
        "corpus": corpus.spec,
        "files": [list(file) for file in corpus.describe_inputs()],
        "division": corpus.division,
        # distinguishes what name and files do not: another column, or another reader
        "first_part": hashlib.sha256(b"\0".join(start[0])).hexdigest(),
        "arguments": arguments,
        "tokenizer": tokenizer.identity,
        "specials": sorted(tokenizer.specials),
        "pieces": asdict(plan),
    }
    with resumable_work(out, key) as work:
        inputs, parts = _encode(work, corpus, chain(start, cut), tokenizer, plan, progress)
        merged = _count_orders(work, parts, orders, options, plan, progress)
        progress("writing")
        kept = [[bucket["kept"] for bucket in buckets] for buckets in merged]
        return Counts.write(
            out,
            count_arrays({order: ngrams.collect(work, order, sizes) for order, sizes in enumerate(kept, 1)}),
            arguments=arguments,
            tokenizers={"target": tokenizer.identity},
            inputs=inputs,
            statistics={
                "total": sum(part["tokens"] for part in parts),
                "orders": {str(order): {"kept": sum(sizes)} for order, sizes in enumerate(kept, 1)},
            },
        )


def _encode(
    work: Path,
    corpus: Corpus,
    parts: Iterator[list[bytes]],
    tokenizer: Tokenizer,
    plan: Plan,
    progress: Progress,
) -> tuple[dict[str, Any], list[TaskResult]]:
    """Turn the text into tokens; return what the manifest says of the corpus, and the figures of the parts."""
    progress("splitting into tokens")
    if read := read_json(work / "read.json"):
        return read["inputs"], read["parts"]
    symbol_of = symbols.token_symbols(tokenizer.size, tokenizer.specials)

    with tqdm(total=corpus.total_bytes, desc="splitting", unit="B", unit_scale=True, disable=None) as bar:

        def tasks() -> Iterator[_Task]:
            for number, texts in enumerate(parts):
                yield f"encode-{number}", symbols.encode_tokens, (number, texts, tokenizer, symbol_of)
                bar.update(corpus.bytes_read - bar.n)

        encoded = _run(work, tasks(), plan)
    read = {"inputs": describe_corpus(corpus), "parts": encoded}
    write_json(work / "read.json", read)
    return read["inputs"], encoded


def _count_orders(
    work: Path,
    parts: list[TaskResult],
    orders: int,
    options: CountOptions,
    plan: Plan,
    progress: Progress,
) -> list[list[TaskResult]]:
    """Count one order after the other; return the figures of the buckets of each."""
    merged: list[list[TaskResult]] = []
    found = parts
    for order in range(1, orders + 1):
        progress(f"counting {order}-grams" if order > 1 else "counting single tokens")
        if order > 1:
            arguments = len(merged[-1]), order == orders
            counting: list[_Task] = [
                (f"count-{order}-{part}", ngrams.count_part, (order, part, *arguments)) for part in range(len(parts))
            ]
            found = _run(work, counting, plan, f"{order}-grams")
            discard(work, *(f"n{order - 1}.{name}-*" for name in ("found", "places")))
        merged.append(_merge(work, order, found, options.min_count, plan))
        if order == 1:
            _run(work, [("number", symbols.number_tokens, (len(merged[0]),))], plan)
    discard(work, f"n{orders}.found-*", f"n{orders}.places-*")
    return merged


def _merge(work: Path, order: int, found: list[TaskResult], min_count: int, plan: Plan) -> list[TaskResult]:
    """Merge what the parts have found of an order; return the figures of the buckets."""
    records = sum(figures["records"] for figures in found)
    cuts = bucket_cuts(records, [figures["sample"] for figures in found], plan)
    merging: list[_Task] = [
        (f"merge-{order}-{k}", ngrams.merge_bucket, (order, k, low, high, len(found), min_count))
        for k, (low, high) in enumerate(pairwise([None, *cuts, None]))
    ]
    merged = _run(work, merging, plan, f"merging {order}-grams")
    discard(work, f"n{order}.uses-*")
    if (kept := sum(figures["kept"] for figures in merged)) > _MOST_ROWS:
        raise SpectoolError(
            f"{kept:,} different {order}-grams occur {min_count} times or more, expected at most {_MOST_ROWS:,}. Give "
            "a higher --min-count"
        )
    return merged


def _run(work: Path, tasks: Iterable[_Task], plan: Plan, title: str | None = None) -> list[TaskResult]:
    """Run tasks, some at the same time, under a progress bar if there is a title; finished ones are not run again."""

    def figures(name: str, function: Callable[..., TaskResult], arguments: tuple[Any, ...]) -> TaskResult:
        return finished_task(work, name) or run_task(function, work, name, *arguments)

    results: list[TaskResult] = []
    waiting: deque[Future[TaskResult]] = deque()
    bar = tqdm(total=length_hint(tasks), desc=title, leave=False, disable=None if title else True)
    own = f"spectool-count-{id(results)}-"  # names of the threads of this pool alone
    pool = ThreadPoolExecutor(plan.threads, thread_name_prefix=own)
    try:
        for task in tasks:
            waiting.append(pool.submit(figures, *task))
            if len(waiting) > plan.threads:  # so that no text is read ahead of them
                results.append(waiting.popleft().result())
                bar.update()
        return [*results, *(future.result() for future in waiting)]
    finally:
        pool.shutdown(cancel_futures=True)
        while any(thread.name.startswith(own) for thread in threading.enumerate()):
            time.sleep(0.01)  # the pool does not know a thread whose start was interrupted
        bar.close()
