"""From what a user types to a corpus: paths, folders, hub data sets, samples, presets."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from spectool import CorpusError, escaped_name, require_extra
from spectool.corpora.documents import Division, Document, ReadCounts, Reading
from spectool.corpora.encodings import known_encoding
from spectool.corpora.files import TABLES, InputDescription, InputFile, describe_file, input_files, visible_files
from spectool.corpora.hub import HubSource, parse_hub_source, read_hub
from spectool.corpora.readers import read_file
from spectool.corpora.samples import LICENCES, PRESETS, sample_names, sample_path

_COMPRESSION = 4  # bytes of text in one of a compressed file, about


class Corpus:
    """The documents of one source; every iteration reads it from the start.

    Attributes:
        encoding: Of its text, if the user named one.
        licence: Of the data set, where it is one of those with a preset.
        counts: Those of the latest iteration, also while it runs.
        total_bytes: Bytes on disk of all its files, for progress bars; None if `datasets` reads them.
        text_bytes: Bytes of text in its files, about; 0 if `datasets` reads them.
        left_out: Files of a folder that are not read, with their numbers, by suffix, or by name where there is none.
    """

    total_bytes: int | None = None
    text_bytes = 0
    licence: str | None = None

    def __init__(self, spec: str, read: Callable[[Reading], Iterator[Document]], reading: Reading) -> None:
        self.spec = escaped_name(spec)
        self.encoding = reading.encoding
        self.counts = ReadCounts()
        self.left_out = Counter[str]()
        self.inputs: Sequence[tuple[Path, str]] = ()  # local files, with their names in manifests
        self._read, self._reading = read, reading

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents; a source without any is an error."""
        counts = self.counts = ReadCounts()
        for document in self._read(replace(self._reading, counts=counts)):
            counts.documents += 1
            counts.characters += len(document.text)
            yield document
        if not counts.documents:
            raise CorpusError(f"{self.spec}: expected text, got no documents. Name a source with text in it")

    def __repr__(self) -> str:
        return f"Corpus({self.spec!r})"

    @property
    def bytes_read(self) -> int:
        """Bytes on disk that the latest iteration has consumed, 0 to ``total_bytes``."""
        return self.counts.bytes_read

    def describe_inputs(self) -> list[InputDescription]:
        """Name, size and SHA-256 of every local file, in reading order; empty for the hub."""
        return [describe_file(path, name) for path, name in self.inputs]


def open_corpus(spec: str, *, encoding: str | None = None, documents: Division | None = None) -> Corpus:
    """Open a text source.

    Args:
        spec: A file (plain text, ``.jsonl`` or ``.ndjson``, perhaps compressed as ``.gz``, ``.zst``, ``.xz`` or
            ``.bz2``; or ``.parquet``), a folder of such files, ``hf:OWNER/NAME:CONFIG[SPLIT]``, ``hf:FOLDER``,
            ``sample:NAME``, or the name of a preset. ``#COLUMN`` after any of them names the column with the text,
            ``text`` by default.
        encoding: Of text files and JSON lines. By default it is UTF-8, or what a byte order mark says.
        documents: What a document of plain text is. By default a Markdown file is one; any other file is divided at
            its blank lines if it begins with one in a hundred lines or more, and otherwise each line is a document.
            In tables each row is one.

    Raises:
        CorpusError: There is nothing of that name, or it cannot be a corpus. The files themselves are read, and may
            raise it, on iteration.
    """
    if documents not in (None, *get_args(Division)):
        raise ValueError(f"documents: expected one of {get_args(Division)} or None, got {documents!r}")
    reading = Reading("text", ReadCounts(), documents, known_encoding(encoding))
    if spec.startswith("hf:"):
        return _open_hub(spec, parse_hub_source(spec), reading)
    if spec.startswith("sample:"):
        return _open_path(spec, sample_path(spec.removeprefix("sample:")), None, reading)
    if spec == "-":
        raise CorpusError("-: expected a file, got standard input, which cannot be read twice. Save it to a file")
    if not spec:
        raise CorpusError(f"expected the name of a source, got an empty one. Presets: {', '.join(PRESETS)}")
    try:
        path, field = _split_field(spec)
        exists = path.exists()
    except OSError as error:
        raise CorpusError(f"{spec}: cannot be read ({error.strerror}). Check name and permissions") from error
    if exists:
        return _open_path(spec, path, field, reading)
    if str(path) not in PRESETS:
        raise _not_found(spec, path)
    source = parse_hub_source(PRESETS[str(path)])
    return _open_hub(spec, replace(source, field=field or source.field), reading)


def _split_field(spec: str) -> tuple[Path, str | None]:
    path = Path(spec).expanduser()
    stem, mark, field = spec.rpartition("#")
    if path.exists() or not mark or not stem or not field:
        return path, None
    return Path(stem).expanduser(), field


def _open_path(spec: str, path: Path, field: str | None, reading: Reading) -> Corpus:
    try:
        files, left_out = input_files(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}). Check its permissions.") from error
    if field is not None and not any(file.suffix in TABLES for file in files):
        raise CorpusError(
            f"{spec}: expected a table for column {field!r}, got plain text, which has none. "
            f"Leave out #{field}, or name a .jsonl or .parquet file"
        )
    read = partial(_read_files, files, path.is_dir())
    corpus = Corpus(spec, read, replace(reading, field=field or reading.field))
    corpus.inputs, corpus.left_out = [(file.path, file.name) for file in files], left_out
    corpus.total_bytes = sum(file.size for file in files)
    corpus.text_bytes = sum(file.size * (_COMPRESSION if file.is_compressed else 1) for file in files)
    return corpus


def _read_files(files: Sequence[InputFile], in_folder: bool, reading: Reading) -> Iterator[Document]:
    for file in files:
        before = reading.counts.documents
        yield from read_file(file, reading)
        if reading.counts.documents == before:
            if not in_folder:
                raise CorpusError(f"{file.path}: expected text, found none. Name a file with text in it")
            reading.counts.repaired["empty"] += 1


def _open_hub(spec: str, source: HubSource, reading: Reading) -> Corpus:
    require_extra("hub", spec)
    if reading.encoding is not None:
        raise CorpusError(
            f"{spec}: expected no encoding for a data set, got {reading.encoding}. Leave out --encoding, or name the "
            "files without hf:"
        )
    corpus = Corpus(spec, partial(read_hub, source), replace(reading, field=source.field or reading.field))
    corpus.inputs = visible_files(source.folder) if source.folder else ()
    corpus.licence = LICENCES.get(source.name)
    return corpus


def _not_found(spec: str, path: Path) -> CorpusError:
    if path.is_symlink():
        return CorpusError(f"{spec}: is a link to {path.readlink()}, where nothing is. Correct the link")
    known = [*PRESETS, *(f"sample:{name}" for name in sample_names())]
    names = {name: name for name in known} | {inner.name: str(inner) for inner in path.parent.glob("*")}
    near = [names[name] for name in difflib.get_close_matches(path.name, names)]
    step = f"Did you mean {' or '.join(near)}?" if near else f"The presets are {', '.join(known)}"
    return CorpusError(f"{spec}: expected a file, a folder or a preset, found nothing of that name. {step}")
