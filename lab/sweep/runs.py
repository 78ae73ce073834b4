"""Builds and replays a grid of dictionaries; a sweep that was killed resumes.

    DIR/runs.parquet    every run that was measured; see `results`

A group of runs is measured at a time. Finished groups wait in the work directory (`lab.resumable`), so
they are not measured again after a kill.

A method (`_METHODS`) takes a tokenizer, the text of a language, the documents to replay, and the rows of a group in the
order of their settings. It yields each row with what was built, and the statistics of its replay.
"""

import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from spectool.artifacts.dictionary import Dictionary
from spectool.build.corpus_reading import describe_corpus, quiet
from spectool.build.counting import count_windows
from spectool.build.dictionary import BackoffOptions
from spectool.build.dictionary.backoff import build_dictionary
from spectool.lab.dictspec import (
    DictSpecDrafter,
    DictSpecOptions,
    continuations,
    encoded_ngrams,
    probable_continuations,
    without_redundant,
)
from spectool.lab.progress import progress
from spectool.lab.resumable import TaskResult, finished_task, resumable_work, run_task, work_path
from spectool.lab.sweep.grid import Grid
from spectool.lab.sweep.results import KEY, RUNS, SCHEMA, SweepRow, key, read_runs, write_runs
from spectool.lab.sweep.text import EncodedText, SweptText
from spectool.measure.replay import replay
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_COUNTED = ("passes", "drafted_passes", "proposed", "accepted", "tokens_per_pass", "mean_accepted_length", "coverage")
Documents = Sequence[Sequence[int]]
Measured = Iterator[tuple[SweepRow, DraftStatistics]]


class Group(NamedTuple):
    """Runs of one tokenizer, text and method (and order of word n-grams), which are measured together."""

    text: SweptText
    tokenizer: str  # as --tokenizer
    rows: list[SweepRow]  # the columns of `results.KEY`


def run_sweep(grid: Grid, out: Path) -> tuple[list[SweepRow], int]:
    """Measure the runs of a grid that are missing, with a progress bar, and write ``out/runs.parquet``.

    Args:
        grid: What to measure.
        out: Folder of results. Runs of other grids that are there already are kept.

    Returns:
        All runs of the grid, sorted by their settings, and the number of runs measured now.

    Raises:
        SpectoolError: A corpus or tokenizer cannot be used.
    """
    path = out / RUNS
    groups = _groups(grid, work_path(path))
    saved = read_runs(path) if path.exists() else []
    done = {key(row) for row in saved}
    left = [group._replace(rows=[row for row in group.rows if key(row) not in done]) for group in groups]
    tasks = {_name(group): group for group in left if group.rows}
    with resumable_work(path, {"runs": SCHEMA.names}, what="sweep") as work:
        finished = {name: finished_task(work, name) for name in tasks}
        missing = [tasks[name] for name, figures in finished.items() if figures is None]
        for text in dict.fromkeys(group.text for group in missing):
            text.count()
        number = sum(len(group.rows) for group in missing)
        with progress("replaying", number, "runs") as update:
            for name, figures in finished.items():
                if figures is None:
                    figures = run_task(_measure, work, name, tasks[name])
                    update(len(figures["rows"]))
                saved += figures["rows"]
        if tasks:
            write_runs(path, saved)
    wanted = {key(row) for group in groups for row in group.rows}
    return [row for row in read_runs(path) if key(row) in wanted], number


def _groups(grid: Grid, work: Path) -> list[Group]:
    """All groups of a grid. Opens tokenizers and corpora, so that a missing one is an error before any work."""
    fingerprints = {name: open_tokenizer(source).fingerprint for name, source in grid.tokenizers.items()}
    groups = []
    for name, language in grid.languages.items():
        text = SweptText(language, work)
        settings = {method: list(axes.settings()) for method, axes in grid.methods.items()}
        asked = settings.get("dictspec", ())
        text = replace(
            text,
            order=max((one["order"] for one in asked), default=""),
            entries=max((one["entries_asked"] for one in asked), default=0),
        )
        measured_on = {**text.measured_on(), "replay_limit": grid.replay_tokens}
        for method, (tokenizer, source) in product(settings, grid.tokenizers.items()):
            names = {"language": name, "tokenizer": tokenizer, "method": method}
            columns = {**dict.fromkeys(KEY), **names, "fingerprint": fingerprints[tokenizer], **measured_on}
            for _, alike in groupby(settings[method], lambda one: one.get("order")):
                drafters = product(alike, grid.num_draft_tokens)
                rows = [{**columns, **one, "num_draft_tokens": length} for one, length in drafters]
                groups.append(Group(text, source, rows))
    return groups


def _name(group: Group) -> str:
    """The name of a group's task, which depends only on what is measured."""
    return hashlib.sha256(repr([key(row) for row in group.rows]).encode()).hexdigest()[:16]


def _measure(work: Path, group: Group) -> TaskResult:
    """The measured ``rows`` of a group."""
    started = time.perf_counter()
    method, limit = group.rows[0]["method"], group.rows[0]["replay_limit"]
    replayed = _replayed(group.text, group.tokenizer, limit)
    tokens = sum(map(len, replayed.documents))
    measured_on = {
        "build_words": group.text.words["words"] if group.text.order else None,
        "replay_words": replayed.words,
        "tokens": tokens,
        "fertility": tokens / replayed.words if replayed.words else 0.0,
    }
    rows = []
    for row, counts in _METHODS[method](_tokenizer(group.tokenizer), group.text, replayed.documents, group.rows):
        counted = {name: getattr(counts, name) for name in _COUNTED}
        rows.append({**row, **measured_on, **counted, "acceptance": counts.acceptance_rate})
    seconds = (time.perf_counter() - started) / len(rows)
    return {"rows": [{**row, "seconds": seconds} for row in rows]}


_tokenizer = lru_cache(maxsize=2)(open_tokenizer)


@lru_cache(maxsize=2)
def _replayed(text: SweptText, tokenizer: str, limit: int) -> EncodedText:
    return text.replayed(_tokenizer(tokenizer), limit)


def _dictspec(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[SweepRow]) -> Measured:
    """Count the continuations of every size once, and choose from them for each reading and minimum probability."""
    most = max(row["entries_asked"] for row in rows)
    counted = encoded_ngrams(tokenizer, text.words[rows[0]["order"]][:most])
    for entries, of_size in groupby(rows, itemgetter("entries_asked")):
        following = continuations(counted[:entries], DictSpecOptions(), tokenizer.specials)
        for (reading, min_prob), alike in groupby(of_size, itemgetter("reading", "min_prob")):
            options = DictSpecOptions(min_probability=min_prob, reading=reading)
            table = without_redundant(probable_continuations(following, options))
            for row in alike:
                drafter = DictSpecDrafter(table)
                yield {**row, "entries": len(table)}, replay(documents, drafter, row["num_draft_tokens"])


def _backoff(tokenizer: Tokenizer, text: SweptText, documents: Documents, rows: Sequence[SweepRow]) -> Measured:
    """Count the text's token windows once, and build a dictionary for every size."""
    with tempfile.TemporaryDirectory(prefix="spectool-") as folder:
        out, options = Path(folder) / "one.dict", BackoffOptions()
        corpus = text.open(text.language.build)
        texts = text.read(corpus)
        counts = count_windows(corpus, texts, tokenizer, options.max_context + 1, options.min_count, quiet)
        inputs = describe_corpus(corpus)
        for max_bytes, alike in groupby(rows, itemgetter("max_bytes")):
            build_dictionary(tokenizer, counts, inputs, out, BackoffOptions(max_bytes=max_bytes), quiet)
            dictionary = Dictionary(out)
            built = {
                "entries": len(dictionary),
                "file_bytes": sum(each.nbytes for each in dictionary.file.arrays.values()),
            }
            for row in alike:
                drafter = LookupDrafter(dictionary, min_probability=row["min_prob"])
                yield {**row, **built}, replay(documents, drafter, row["num_draft_tokens"])


_METHODS = {"dictspec": _dictspec, "backoff": _backoff}
