"""Data sets of the Hugging Face hub, and local ones in its layouts, streamed through `datasets`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectool import CorpusError
from spectool.corpora.documents import Document, Reading
from spectool.corpora.readers import documents

_SOURCE = re.compile(
    r"(?P<name>[^#\[\]]+?)(?::(?P<config>[^#:/\[\]]+))?(?:\[(?P<split>[^\[\]]+)\])?(?:#(?P<field>[^#\[\]]+))?"
)
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class HubSource:
    """What ``hf:NAME:CONFIG[SPLIT]#FIELD`` says."""

    name: str  # ``owner/name`` on the hub, or a local folder
    config: str | None  # configuration (subset), or None for the only one
    split: str  # split; ``train`` when none is given
    field: str | None  # column with the text, or None
    folder: Path | None  # the local folder, or None for the hub


def parse_hub_source(source: str) -> HubSource:
    """Read a source with or without its ``hf:``.

    >>> parse_hub_source("hf:wikimedia/wikipedia:20231101.pl#text").config
    '20231101.pl'
    """
    rest = source.removeprefix("hf:")
    match = _SOURCE.fullmatch(rest)
    if match is None:
        raise CorpusError(f"hf:{rest}: expected hf:OWNER/NAME:CONFIG[SPLIT]#COLUMN, of which only the name is needed")
    name = match["name"]
    folder = Path(name).expanduser()
    local = folder.is_dir()
    if not local and name.startswith(("/", ".", "~")):
        raise CorpusError(f"hf:{rest}: expected a data set folder at {name}, got no folder. Check the path")
    return HubSource(name, match["config"], match["split"] or "train", match["field"], folder if local else None)


def read_hub(source: HubSource, reading: Reading) -> Iterator[Document]:
    """Yield the documents of a data set's split."""
    name = source.folder.name if source.folder else source.name  # in document ids
    rows = enumerate(_rows(source, reading.field), 1)
    yield from documents(rows, name, f"hf:{source.name}, row ", reading)


def _rows(source: HubSource, field: str) -> Iterator[dict[str, Any]]:
    import datasets

    # `datasets` and what it rests on (HTTP clients, pyarrow, file systems) share no base class.
    try:
        path = str(source.folder or source.name)
        data = datasets.load_dataset(path, source.config, split=source.split, streaming=True)
        read = [name for name in dict.fromkeys((field, "id")) if name in (data.column_names or ())]
        if field in read:
            data = data.select_columns(read)
        # By batches: `datasets` spends several times as long on single rows.
        for batch in data.iter(batch_size=_ROWS_AT_ONCE):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
    except Exception as error:
        raise _failure(source, error) from error


def _failure(source: HubSource, error: Exception) -> CorpusError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    said = f"{type(error).__name__} {error}".lower()
    page = f"https://huggingface.co/datasets/{source.name}"
    if source.folder is not None:
        step = "Check its files, or name one of them without hf:"
    elif re.search(r"\bgated\b|\b(401|403)\b", said):
        step = f"Accept its terms at {page}, then: hf auth login"
    elif isinstance(error, ConnectionError) or "offline" in said or "localentrynotfound" in said:
        step = "Check the network, or fetch it elsewhere and read the copy: "
        step += f"hf download --repo-type dataset {source.name} --local-dir DIR, then hf:DIR"
    else:
        step = f"Check name, configuration and split at {page}, or log in if it is private"
    return CorpusError(f"hf:{source.name}: the data set cannot be read ({reason}). {step}")
