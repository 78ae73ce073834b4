"""From what a user types to a corpus: paths, folders, hub data sets, samples, presets."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from spectool import CorpusError, require_extra
from spectool.corpora.documents import Document, InputDescription, OnError, ReadCounts, Reading
from spectool.corpora.files import InputFile, describe, input_files, visible_files
from spectool.corpora.hub import HubSource, parse_hub_source, read_hub
from spectool.corpora.readers import read_file
from spectool.corpora.samples import PRESETS, sample_names, sample_path

_Read: TypeAlias = Callable[[ReadCounts], Iterator[Document]]


class Corpus:
    """The documents of one source; every iteration reads it from the start.

    Attributes:
        spec: The source as the user named it.
        counts: ReadCounts of the latest iteration, also while it runs.
        total_bytes: Bytes on disk of all its files, for progress bars; None where `datasets` reads.
    """

    def __init__(
        self, spec: str, read: _Read, inputs: Sequence[tuple[Path, str]] = (), total_bytes: int | None = None
    ) -> None:
        self.spec = spec
        self.counts = ReadCounts()
        self.total_bytes = total_bytes
        self._read = read
        self._inputs = tuple(inputs)

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents.

        Raises:
            CorpusError: Damaged input, see `open_corpus`; or not one document in the whole source.
        """
        counts = self.counts = ReadCounts()
        for document in self._read(counts):
            counts.documents += 1
            counts.characters += len(document.text)
            yield document
        if not counts.documents:
            raise CorpusError(f"{self.spec}: expected text, got not one document. Name a source with text in it")

    def __repr__(self) -> str:
        return f"Corpus({self.spec!r})"

    @property
    def bytes_read(self) -> int:
        """Bytes on disk that the latest iteration has consumed, 0 to ``total_bytes``."""
        return self.counts.bytes_read

    def describe_inputs(self) -> list[InputDescription]:
        """Return name, size and SHA-256 of every local file, in reading order; empty for the hub.

        Reads all of them once, as streams.
        """
        return [describe(path, name) for path, name in self._inputs]


def open_corpus(spec: str, *, on_error: OnError = "stop", text_field: str | None = None) -> Corpus:
    """Open a text source.

    Args:
        spec: A file (plain text, ``.jsonl``, ``.ndjson``, ``.parquet``, each perhaps with ``.gz``, ``.zst`` or ``.xz``)
            or a folder of such files. Else ``hf:OWNER/NAME:CONFIG[SPLIT]``, ``hf:FOLDER``, ``sample:NAME``, or the name
            of a preset. ``#COLUMN`` after any of them names the column with the text.
        on_error: ``stop`` raises at bytes that are no text; ``repair`` drops and counts them, and
            counts empty files in a folder. A broken archive always raises: text is missing there.
        text_field: Column where ``spec`` names none; ``text`` if None. Plain text has no columns.

    Returns:
        A corpus. Files are found now and read on iteration; iterating raises `CorpusError` for
        anything in them that is not what it should be.

    Raises:
        CorpusError: Nothing of that name; or a source that cannot be a corpus.
    """
    if on_error not in ("stop", "repair"):
        raise ValueError(f"on_error: expected 'stop' or 'repair', got {on_error!r}")
    default, repair = text_field or "text", on_error == "repair"
    if spec.startswith("hf:"):
        return _open_hub(spec, parse_hub_source(spec), default, repair)
    if spec.startswith("sample:"):
        return _open_path(spec, sample_path(spec.removeprefix("sample:")), None, default, repair)
    if not spec:
        raise CorpusError(f"expected a source, got an empty name. By name there are: {', '.join(PRESETS)}")
    try:
        path, field = _split_field(spec)
        exists = path.exists()
    except OSError as error:
        raise CorpusError(f"{spec}: cannot be read ({error.strerror}). Check name and permissions") from error
    if spec.startswith("preset:") or not exists:
        name, _, column = spec.removeprefix("preset:").partition("#")
        if name not in PRESETS:
            raise _not_found(spec, path)
        source = parse_hub_source(PRESETS[name].source)
        return _open_hub(spec, replace(source, field=column or source.field), default, repair)
    return _open_path(spec, path, field, default, repair)


def _open_path(spec: str, path: Path, field: str | None, default: str, repair: bool) -> Corpus:
    try:
        files = input_files(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}). Check its permissions.") from error
    if field is not None and all(file.format == "text" for file in files):
        raise CorpusError(
            f"{spec}: expected a table for column {field!r}, got plain text, which has none. "
            f"Leave out #{field}, or name a .jsonl or .parquet file"
        )
    read = partial(_read_files, files, field or default, repair, path.is_dir())
    inputs = [(file.path, file.name) for file in files]
    return Corpus(spec, read, inputs, total_bytes=sum(file.size for file in files))


def _read_files(
    files: Sequence[InputFile], field: str, repair: bool, in_folder: bool, counts: ReadCounts
) -> Iterator[Document]:
    reading = Reading(field, repair, counts)
    for file in files:
        before = counts.documents
        yield from read_file(file, reading)
        if counts.documents == before:
            if not (in_folder and repair):
                step = "Remove it, or count it: --on-error repair" if in_folder else "Name a file with text in it"
                raise CorpusError(f"{file.path}: expected text, found none. {step}")
            reading.repaired("empty")


def _open_hub(spec: str, source: HubSource, default: str, repair: bool) -> Corpus:
    require_extra("hub", spec)
    inputs = [] if source.folder is None else visible_files(source.folder)
    return Corpus(spec, lambda counts: read_hub(source, Reading(source.field or default, repair, counts)), inputs)


def _split_field(spec: str) -> tuple[Path, str | None]:
    path = Path(spec).expanduser()
    stem, mark, field = spec.rpartition("#")
    if path.exists() or not mark or not stem or not field:
        return path, None
    return Path(stem).expanduser(), field


def _not_found(spec: str, path: Path) -> CorpusError:
    known = [*PRESETS, *(f"sample:{name}" for name in sample_names())]
    if spec.startswith("preset:"):
        name = spec.removeprefix("preset:")
        near = difflib.get_close_matches(name, PRESETS)
        expected = "a preset"
    else:
        siblings = {str(inner): inner.name for inner in path.parent.glob("*")} if path.parent.is_dir() else {}
        names = {name: shown for shown, name in siblings.items()} | {name: name for name in known}
        near = [names[name] for name in difflib.get_close_matches(path.name, names)]
        expected = "a file, a folder or a preset"
        if not path.parent.is_dir():
            expected = f"a file or a folder, and there is no folder {path.parent}"
    step = f"Did you mean {' or '.join(near)}?" if near else f"By name there are: {', '.join(known)}"
    return CorpusError(f"{spec}: expected {expected}, got a name that is none. {step}")
