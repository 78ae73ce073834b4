"""From what a user types to a corpus: paths, folders, hub data sets, samples, presets."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from spectool import CorpusError, escaped_name, require_extra
from spectool.corpora.documents import Document, ReadCounts
from spectool.corpora.files import TABLES, InputFile, input_files
from spectool.corpora.hub import HubSource, parse_hub_source, read_hub
from spectool.corpora.readers import read_file
from spectool.corpora.samples import PRESETS, sample_names, sample_path


class Corpus:
    """The documents of one source; every iteration reads it from the start.

    Attributes:
        spec: The source as the user named it.
        counts: Those of the latest iteration, also while it runs.
        files: The local files that are read; none of a data set that is read through `datasets`.
        total_bytes: Bytes on disk of all files, for progress bars; None if there are none.
        text_bytes: Bytes of text in the files, about; those of tables are not known, and left out.
        left_out: Files of a folder that are not read, with their numbers, by suffix, or by name where there is none.
    """

    def __init__(
        self, spec: str, read: Callable[[ReadCounts], Iterator[Document]], files: Sequence[InputFile] = ()
    ) -> None:
        self.spec = escaped_name(spec)
        self.counts = ReadCounts()
        self.files = files
        self.total_bytes = sum(file.size for file in files) if files else None
        self.text_bytes = sum(file.text_bytes for file in files)
        self.left_out = Counter[str]()
        self._read = read

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents; a source without any is an error."""
        counts = self.counts = ReadCounts()
        for document in self._read(counts):
            counts.documents += 1
            counts.characters += len(document.text)
            yield document
        if not counts.documents:
            raise CorpusError(f"{self.spec}: expected text, found none. Name a source with text in it")

    def describe_inputs(self) -> list[dict[str, Any]]:
        """Name, size and SHA-256 of every local file, in reading order; empty for the hub."""
        return [file.described() for file in self.files]


def open_corpus(spec: str) -> Corpus:
    """Open a text source.

    Text is UTF-8. In tables each row is a document. Of plain text, a Markdown file is one; any other file is divided at
    its blank lines if it begins with one in a hundred lines or more, and otherwise each line is a document.

    Args:
        spec: A file (plain text, ``.jsonl`` or ``.ndjson``, perhaps compressed as ``.gz``, ``.zst``, ``.xz`` or
            ``.bz2``; or ``.parquet``), a folder of such files, ``hf:OWNER/NAME:CONFIG[SPLIT]``, ``sample:NAME``, all
            samples as ``sample:all``, or the name of a preset. ``#COLUMN`` after any of them names the column with the
            text, ``text`` by default.

    Raises:
        CorpusError: There is nothing of that name, or it cannot be a corpus. The files themselves are read, and may
            raise it, on iteration.
    """
    if spec.startswith("hf:"):
        return _open_hub(spec, parse_hub_source(spec))
    if spec.startswith("sample:"):
        return _open_path(spec, sample_path(spec.removeprefix("sample:")), None)
    if spec in ("", "-"):
        raise CorpusError(f"{spec!r}: expected the name of a file, a folder or a preset. Save the text to a file")
    try:
        path, field = _split_field(spec)
        if path.exists():
            return _open_path(spec, path, field)
    except OSError as error:
        raise CorpusError(f"{spec}: cannot be read ({error.strerror}). Check name and permissions") from error
    if str(path) not in PRESETS:
        raise _not_found(spec, path)
    source = parse_hub_source(PRESETS[str(path)])
    return _open_hub(spec, replace(source, field=field or source.field))


def _split_field(spec: str) -> tuple[Path, str | None]:
    path = Path(spec).expanduser()
    stem, mark, field = spec.rpartition("#")
    if path.exists() or not mark or not stem or not field:
        return path, None
    return Path(stem).expanduser(), field


def _open_path(spec: str, path: Path, field: str | None) -> Corpus:
    files, left_out = input_files(path)
    if field is not None and not any(file.suffix in TABLES for file in files):
        raise CorpusError(
            f"{spec}: expected a table for column {field!r}, got plain text, which has none. "
            f"Leave out #{field}, or name a .jsonl or .parquet file"
        )
    column = field or "text"
    corpus = Corpus(spec, lambda counts: chain.from_iterable(read_file(file, column, counts) for file in files), files)
    corpus.left_out = left_out
    return corpus


def _open_hub(spec: str, source: HubSource) -> Corpus:
    require_extra("hub", spec)
    return Corpus(spec, partial(read_hub, source))


def _not_found(spec: str, path: Path) -> CorpusError:
    known = [*PRESETS, *(f"sample:{name}" for name in sample_names())]
    names = {name: name for name in known} | {inner.name: str(inner) for inner in path.parent.glob("*")}
    near = [names[name] for name in difflib.get_close_matches(path.name, names)]
    step = f"Did you mean {' or '.join(near)}?" if near else f"The presets are {', '.join(known)}"
    return CorpusError(f"{spec}: expected a file, a folder or a preset, found nothing of that name. {step}")
