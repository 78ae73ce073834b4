"""The formats that a corpus can have: a reader for each suffix, and the files of a folder that one of them reads."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from spectool import CorpusError, escaped_name
from spectool.corpora.documents import Document, Reading
from spectool.corpora.files import COMPRESSIONS, Format, InputFile, visible_files
from spectool.corpora.parquet import parquet_rows
from spectool.corpora.readers import documents, read_json_lines, read_text


def _read_parquet(file: InputFile, reading: Reading) -> Iterator[Document]:
    return documents(parquet_rows(file, reading), file.name, f"{file.path}, row ", reading)


_TEXT = Format(read_text)
TEXT_FORMATS = {
    ".txt": _TEXT,
    ".md": Format(partial(read_text, by_default="files")),
    ".jsonl": Format(read_json_lines, has_columns=True),
    ".ndjson": Format(read_json_lines, has_columns=True),
    ".parquet": Format(_read_parquet, has_columns=True, compressible=False),
}
"""Formats by suffix. A file with another suffix is plain text if it is named, and is skipped in a folder."""

_READ_TABLE = "python -c 'import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin{})]'"
_AS_LINES = "turn it into one object per line: {} < {{path}} > {{stem}}.jsonl"
_NOT_READ = {
    ".json": "turn it into one object per line: jq -c '.[]' {path} > {stem}.jsonl",
    ".csv": _AS_LINES.format(_READ_TABLE.format("")),
    ".tsv": _AS_LINES.format(_READ_TABLE.format(", dialect=csv.excel_tab")),
    ".tar": "unpack it and name the folder",
    ".tgz": "unpack it and name the folder",
    ".zip": "unpack it and name the folder",
}
_ABOUT = ("readme.md", "license.md")  # say something about the text of a folder


def input_files(path: Path) -> tuple[list[InputFile], Counter[str]]:
    """The file at a path, or all files below a folder that have a known suffix and are not hidden, sorted by name.

    The counter has the numbers of other files in the folder that are not hidden, by suffix, or by name for those that
    are about the folder or have no suffix.
    """
    if path.is_fifo() or path.is_char_device():
        raise CorpusError(
            f"{path}: expected a file, got a pipe or device, which cannot be read twice. Save it to a file"
        )
    if not path.is_dir():
        return [_input_file(path, escaped_name(path.name))], Counter()
    files = visible_files(path)
    found = [_input_file(inner, name) for inner, name in files if _is_read(inner)]
    others = (inner for inner, _ in files if not _is_read(inner))
    if not found:
        raise CorpusError(
            f"{path}: expected files that end in {', '.join(TEXT_FORMATS)} (or these and {', '.join(COMPRESSIONS)}), "
            "got a folder without any. Name a file, or rename them"
        )
    return found, Counter(inner.name if _is_about(inner) else _split_suffix(inner)[0] or inner.name for inner in others)


def _split_suffix(path: Path) -> tuple[str, str]:
    compression = path.suffix.lower()
    return (Path(path.stem).suffix.lower(), compression) if compression in COMPRESSIONS else (compression, "")


def _is_read(path: Path) -> bool:
    suffix, compression = _split_suffix(path)
    return not _is_about(path) and (suffix in TEXT_FORMATS or (not suffix and compression != ""))


def _is_about(path: Path) -> bool:
    return path.name.lower() in _ABOUT


def _input_file(path: Path, name: str) -> InputFile:
    suffix, compression = _split_suffix(path)
    if suffix in _NOT_READ:
        step = _NOT_READ[suffix].format(path=path, stem=path.stem)
        raise CorpusError(f"{path}: expected plain text or {', '.join(TEXT_FORMATS)}, got a {suffix} file; {step}")
    format = TEXT_FORMATS.get(suffix, _TEXT)
    if compression and not format.compressible:
        raise CorpusError(f"{path}: expected a {suffix} file, got a compressed one. Decompress it")
    return InputFile(path, name, format, compression, path.stat().st_size)
