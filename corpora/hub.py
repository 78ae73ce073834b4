"""Data sets of the Hugging Face hub, streamed through `datasets`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spectool import CorpusError
from spectool.corpora.documents import Document, ReadCounts
from spectool.corpora.readers import documents

_SOURCE = re.compile(
    r"(?P<name>\w[\w.-]*(?:/\w[\w.-]*)?)"
    r"(?::(?P<config>[^#:/\[\]]+))?(?:\[(?P<split>[^\[\]]+)\])?(?:#(?P<field>[^#\[\]]+))?"
)
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class HubSource:
    """What ``hf:NAME:CONFIG[SPLIT]#FIELD`` says."""

    name: str  # ``owner/name``
    config: str | None  # configuration (subset), or None for the only one
    split: str  # ``train`` when none is given
    field: str  # column with the text; ``text`` when none is given


def parse_hub_source(source: str) -> HubSource:
    """Read a source with its ``hf:``.

    >>> parse_hub_source("hf:wikimedia/wikipedia:20231101.pl#text").config
    '20231101.pl'
    """
    match = _SOURCE.fullmatch(source.removeprefix("hf:"))
    if match is None:
        raise CorpusError(
            f"{source}: expected hf:OWNER/NAME:CONFIG[SPLIT]#COLUMN, of which only the name is needed. Name a local "
            "folder without hf:"
        )
    return HubSource(match["name"], match["config"], match["split"] or "train", match["field"] or "text")


def read_hub(source: HubSource, counts: ReadCounts) -> Iterator[Document]:
    """Yield the documents of a data set's split."""
    rows = enumerate(_rows(source), 1)
    yield from documents(rows, source.name, f"hf:{source.name}, row ", source.field, counts)


def _rows(source: HubSource) -> Iterator[dict[str, Any]]:
    import datasets

    # `datasets` and what it rests on (HTTP clients, pyarrow, file systems) share no base class.
    try:
        data = datasets.load_dataset(source.name, source.config, split=source.split, streaming=True)
        read = [name for name in dict.fromkeys((source.field, "id")) if name in (data.column_names or ())]
        if source.field in read:
            data = data.select_columns(read)
        # By batches: `datasets` spends several times as long on single rows.
        for batch in data.iter(batch_size=_ROWS_AT_ONCE):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        name = source.name
        raise CorpusError(
            f"hf:{name}: the data set cannot be read ({reason}). Check name, configuration, split and terms at "
            f"https://huggingface.co/datasets/{name}, or log in: hf auth login. Without network, fetch it elsewhere: "
            f"hf download --repo-type dataset {name} --local-dir DIR. Then name DIR, or a folder in it, without hf:"
        ) from error
