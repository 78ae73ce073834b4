"""From what a user types to a corpus: files, folders, and the samples for demonstrations and offline tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spectool import CorpusError, escaped_name, expanded
from spectool.corpora.cleaning import ReadCounts
from spectool.corpora.files import TABLES, input_files
from spectool.corpora.readers import read_file

_SAMPLES = Path(__file__).with_name("samples")


class Corpus:
    """The documents of one source; every iteration reads it from the start.

    Attributes:
        spec: The source as the user named it.
        counts: Those of the latest iteration, also while it runs.
        files: The files that are read.
        total_bytes: Bytes on disk of all files, for progress bars.
        left_out: Files of a folder that are not read, with their numbers, by suffix, or by name where there is none.
    """

    def __init__(self, spec: str, path: Path, column: str = "") -> None:
        """The text at a path, which was named by ``spec``; that of tables is in a column, by default ``text``."""
        self.spec = escaped_name(spec)
        self.counts = ReadCounts()
        self.files, self.left_out = input_files(path)
        if column and not any(file.suffix in TABLES for file in self.files):
            raise CorpusError(
                f"{spec}: expected a table for column {column!r}, got plain text, which has none. "
                f"Leave out #{column}, or name a .jsonl or .parquet file"
            )
        self.total_bytes = sum(file.size for file in self.files)
        self._column = column or "text"

    def __iter__(self) -> Iterator[str]:
        """Yield the texts of the documents, as `clean` leaves them; a source without any is an error."""
        counts = self.counts = ReadCounts()
        for file in self.files:
            for document in read_file(file, self._column, counts):
                counts.documents += 1
                counts.characters += len(document)
                yield document
        if not counts.documents:
            raise CorpusError(f"{self.spec}: expected text, found none. Name a source with text in it")

    def describe_inputs(self) -> list[dict[str, Any]]:
        """Name, size and SHA-256 of every file, in reading order."""
        return [file.described() for file in self.files]


def open_corpus(spec: str) -> Corpus:
    """Open a text source.

    Text is UTF-8. In tables each row is a document. Of plain text, a Markdown file is one; any other file is divided at
    its blank lines if it begins with one in a hundred lines or more, and otherwise each line is a document.

    Args:
        spec: A file (plain text, ``.jsonl`` or ``.ndjson``, perhaps compressed as ``.gz``, ``.zst``, ``.xz`` or
            ``.bz2``; or ``.parquet``), a folder of such files, ``sample:NAME``, or all samples as ``sample:all``.
            ``#COLUMN`` after a file or a folder names the column with the text, ``text`` by default.

    Raises:
        CorpusError: There is nothing of that name, or it cannot be a corpus. The files themselves are read, and may
            raise it, on iteration.
    """
    if spec.startswith("sample:"):
        return Corpus(spec, sample_path(spec.removeprefix("sample:")))
    if spec in ("", "-"):
        raise CorpusError(f"{spec!r}: expected the name of a file or a folder. Save the text to a file")
    stem, _, column = spec.rpartition("#")
    try:
        for name, of_table in ((spec, ""), *([(stem, column)] if stem and column else [])):
            path = expanded(name)
            if path.exists():
                return Corpus(spec, path, of_table)
    except OSError as error:
        raise CorpusError(f"{spec}: cannot be read ({error.strerror}). Check name and permissions") from error
    raise CorpusError(f"{spec}: expected a file or a folder, found nothing of that name. Bundled are {_bundled()}")


def sample_names() -> list[str]:
    """Names of the bundled samples, sorted."""
    return sorted(path.stem for path in _SAMPLES.glob("*.txt"))


def sample_path(name: str) -> Path:
    """The file of a bundled sample, or the folder of all of them for ``all``."""
    if name == "all":
        return _SAMPLES
    if name not in sample_names():
        raise CorpusError(f"sample:{name}: no such sample. Bundled are {_bundled()}, and all of them: sample:all")
    return _SAMPLES / f"{name}.txt"


def _bundled() -> str:
    return ", ".join(f"sample:{name}" for name in sample_names())
