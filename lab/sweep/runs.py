"""``spectool emulate --sweep``: a grid of drafters built and replayed, in parallel, resumable.

    DIR/runs.parquet           every run that was measured; see `results`
    DIR/report.html report.md  tables and plots of them

A group of runs is measured in one go by one process. What a killed sweep had finished waits in the work directory
(`artifacts.resumable`) and is not measured again.

A method (`_METHODS`) takes a tokenizer, the text of a language, and its documents to replay. It also takes the rows of
a group, in the order of their settings. It yields each row with what was built, and the counts of its replay.
"""

import hashlib
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectool import SpectoolError
from spectool.artifacts.counts import Counts
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.resumable import Figures, finished, work_path, working
from spectool.build.corpus_reading import quiet
from spectool.build.counting.options import CountOptions
from spectool.build.counting.processes import Runner, Task, executor_of
from spectool.build.counting.stage import count
from spectool.build.dictionary.backoff_stage import build_backoff, prepare_backoff
from spectool.build.dictionary.dictspec_stage import ORDERS
from spectool.build.dictionary.held_out import passes, split_off
from spectool.build.dictionary.options import BackoffOptions
from spectool.commands.console import progress
from spectool.lab.sweep.grid import Grid
from spectool.lab.sweep.nested_dictspec import Drafts, Ints, NestedDictSpec
from spectool.lab.sweep.results import KEY, RUNS, SCHEMA, Row, key, read_runs, write_runs
from spectool.lab.sweep.text import SweptText
from spectool.measure.emulate import EncodedText, replay
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_COUNTED = ("passes", "drafted_passes", "proposed", "accepted", "tokens_per_pass", "mean_accepted_length", "coverage")
_BATCH = 1 << 14  # n-grams encoded at once
Documents = Sequence[Sequence[int]]
Measured = Iterator[tuple[Row, DraftStatistics]]


class Group(NamedTuple):
    """Runs that one process measures in one go: all that a method makes at once of a language and a tokenizer."""

    text: SweptText  # the language's text
    source: str  # where the tokenizer is opened from
    rows: list[Row]  # of each run the columns of `results.KEY`


def run_sweep(grid: Grid, out: Path, workers: int = 1, **reads: Any) -> tuple[list[Row], int]:
    """Measure what is missing of a grid, under a progress bar, and write ``out/runs.parquet``.

    Args:
        grid: What to measure.
        out: Folder of results; made if needed. Runs of other grids in it are kept.
        workers: Processes; 1 measures in this one.
        reads: How to `open_corpus`.

    Returns:
        All runs of the grid, sorted by their settings, and how many of them were measured now.

    Raises:
        SpectoolError: A corpus or tokenizer cannot be used, or a process died.
    """
    path = out / RUNS
    groups = _groups(grid, work_path(path), reads)
    saved = read_runs(path) if path.exists() else []
    done = {key(row) for row in saved}
    left = [group._replace(rows=[row for row in group.rows if key(row) not in done]) for group in groups]
    tasks: list[Task] = [(_name(group), _measure, (group,)) for group in left if group.rows]
    with working(path, {"runs": SCHEMA.names}, what="sweep") as work:
        missing = [group for name, _, (group,) in tasks if finished(work, name) is None]
        for text in dict.fromkeys(group.text for group in missing):
            text.count()
        number = sum(len(group.rows) for group in missing)
        with progress("replaying", number, "runs") as update, executor_of(min(workers, len(missing)) or 1) as executor:
            try:
                for _, figures in Runner(work, executor, 2 * workers).results(tasks):
                    saved += figures["rows"]
                    update(len(figures["rows"]))
            except BrokenProcessPool as error:
                raise SpectoolError(
                    f"a process of the sweep died, perhaps for want of memory: expected {workers} to live. What was "
                    "measured is kept: run the same command again, with fewer --workers"
                ) from error
            except BaseException:
                for child in multiprocessing.active_children():
                    child.terminate()
                raise
        if tasks:
            write_runs(path, saved)
    wanted = {key(row) for group in groups for row in group.rows}
    return [row for row in read_runs(path) if key(row) in wanted], number


def _groups(grid: Grid, work: Path, reads: Mapping[str, Any]) -> list[Group]:
    """Return all groups of a grid. Opens tokenizers and finds corpora, so that what is missing is said at once."""
    fingerprints = {name: open_tokenizer(source).fingerprint for name, source in grid.tokenizers.items()}
    groups = []
    for name, language in grid.languages.items():
        text = SweptText(language, work, **reads)
        settings: dict[str, list[dict[str, Any]]] = {"plain": [{}]}
        if language.build or language.counts:
            settings = {method: list(axes.settings()) for method, axes in grid.methods.items()}
            text = replace(text, order=max((one["order"] for one in settings.get("dictspec", ())), default=""))
        measured_on = {**text.measured_on(), "replay_limit": grid.replay_tokens}
        for method, (tokenizer, source) in product(settings, grid.tokenizers.items()):
            names = {"language": name, "tokenizer": tokenizer, "method": method}
            columns = {**dict.fromkeys(KEY), **names, "fingerprint": fingerprints[tokenizer], **measured_on}
            lengths = (0,) if method == "plain" else grid.num_draft_tokens
            for _, alike in groupby(settings[method], lambda one: one.get("order")):
                rows = [{**columns, **one, "num_draft_tokens": length} for one, length in product(alike, lengths)]
                groups.append(Group(text, source, rows))
    return groups


def _name(group: Group) -> str:
    """Name a group by what it measures, whatever grid it is of."""
    return hashlib.sha256(repr([key(row) for row in group.rows]).encode()).hexdigest()[:16]


def _measure(work: Path, group: Group) -> Figures:
    """Measure the runs of a group; return them as ``rows``."""
    started = time.perf_counter()
    method, limit = group.rows[0]["method"], group.rows[0]["replay_limit"]
    replayed = _replayed(group.text, group.source, limit)
    measured_on = {
        "build_words": group.text.words.total if group.text.order else None,
        "replay_words": replayed.words,
        "tokens": replayed.tokens,
        "fertility": replayed.fertility,
    }
    rows = []
    for row, counts in _METHODS[method](_tokenizer(group.source), group.text, replayed.documents, group.rows):
        counted = {name: getattr(counts, name) for name in _COUNTED}
        rows.append({**row, **measured_on, **counted, "acceptance": counts.acceptance_rate})
    seconds = (time.perf_counter() - started) / len(rows)
    return {"rows": [{**row, "seconds": seconds} for row in rows]}


_tokenizer = lru_cache(maxsize=2)(open_tokenizer)


@lru_cache(maxsize=2)
def _replayed(text: SweptText, source: str, limit: int) -> EncodedText:
    return text.replayed(_tokenizer(source), limit)


def _dictspec(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[Row]) -> Measured:
    """Derive all sizes and minimum probabilities of one order from one count of continuations."""
    largest = max(row["entries_asked"] for row in rows)
    ngrams, counts = text.words.most_frequent(largest, ORDERS[rows[0]["order"]])
    batches = (ngrams[start : start + _BATCH] for start in range(0, len(ngrams), _BATCH))
    tokens = [ids for batch in batches for ids in tokenizer.encode_after_space(batch)]
    nested = NestedDictSpec(tokens, counts, documents, tokenizer.specials)
    for (entries, reading), alike in groupby(rows, itemgetter("entries_asked", "reading")):
        proposals = nested.proposals(entries, reading)
        for min_prob, same in groupby(alike, itemgetter("min_prob")):
            lengths = proposals.lengths(min_prob)
            stored = len(nested.kept(proposals, lengths))
            for row in same:
                drafts = nested.drafts(proposals, lengths, row["num_draft_tokens"])
                yield {**row, "entries": stored}, _walked(nested.ends, drafts)


def _walked(ends: Ints, drafts: Drafts) -> DraftStatistics:
    """Walk from pass to pass; since all proposals are known before, the counts are those of `replay`."""
    starts = passes(np.minimum(np.arange(1, len(ends) + 1) + drafts.accepted, ends))
    proposed, accepted = drafts.proposed[starts], drafts.accepted[starts]
    return DraftStatistics(
        passes=len(starts),
        tokens=len(ends),
        proposed=int(proposed.sum()),
        accepted=int(accepted.sum()),
        drafted_passes=int(np.count_nonzero(proposed)),
    )


def _backoff(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[Row]) -> Measured:
    """Count the text's token windows once, and build a dictionary for every size."""
    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        counts, out = Path(scratch) / "windows.counts", Path(scratch) / "one.dict"
        options = CountOptions(orders=BackoffOptions().max_context + 1, workers=1)
        held_out: list[str] = []
        corpus = text.open(str(text.language.build))
        count(corpus, counts, options, tokenizer, quiet, lambda source: split_off(text.read(source), held_out))
        prepared = prepare_backoff(tokenizer, Counts(counts), BackoffOptions(), quiet, held_out)
        for max_bytes, alike in groupby(rows, itemgetter("max_bytes")):
            limits = BackoffOptions(max_bytes=max_bytes)
            manifest = build_backoff(tokenizer, Counts(counts), out, limits, quiet, prepared=prepared)
            dictionary = Dictionary(out)
            built = {"entries": len(dictionary), "file_bytes": manifest.total_bytes}
            for row in alike:
                drafter = LookupDrafter(dictionary, min_probability=row["min_prob"])
                yield {**row, **built}, replay(documents, drafter, row["num_draft_tokens"])


def _plain(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[Row]) -> Measured:
    """Draft nothing: the row that has the fertility of a language without text to build from."""
    tokens = sum(map(len, documents))
    yield rows[0], DraftStatistics(passes=tokens, tokens=tokens)


_METHODS = {"dictspec": _dictspec, "backoff": _backoff, "plain": _plain}
