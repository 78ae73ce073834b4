"""Text with a short name: the bundled samples, and presets with their terms.

The samples are for demonstrations and offline tests: a paragraph a line, and an empty line between documents.
"""

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from spectool import CorpusError


def sample_names() -> list[str]:
    """Names of the bundled samples, sorted."""
    return sorted(path.stem for path in _folder().glob("*.txt"))


def sample_path(name: str) -> Path:
    """The file of a bundled sample."""
    names = sample_names()
    if name not in names:
        known = ", ".join(f"sample:{known}" for known in names) or "none"
        raise CorpusError(f"sample:{name}: no such sample. Bundled: {known}")
    return _folder() / f"{name}.txt"


def read_sample(name: str) -> list[str]:
    """The documents of a bundled sample, their paragraphs joined by LF."""
    text = sample_path(name).read_text(encoding="utf-8")
    return [document.strip() for document in text.split("\n\n") if document.strip()]


def _folder() -> Path:
    return Path(str(files("spectool.corpora"))) / "samples"


class Preset(NamedTuple):
    """A named source."""

    source: str  # the source it stands for
    language: str  # ISO 639 code
    licence: str  # terms of the text, as its publisher states them
    note: str  # what to know before the first use


_WIKI = ("CC BY-SA 3.0 and GFDL", "Wikipedia articles of November 2023, one article a document")
_CULTURAX = (
    "ODC-By (mC4) and CC0 (OSCAR), with the terms of Common Crawl",
    "cleaned web text, very large; accept the terms on its hub page",
)
_QIRIM = ("CC BY 4.0", "books, press and subtitles in both scripts, one work a document; accept the terms on its "
          "hub page")  # fmt: skip
PRESETS = {
    "wiki-pl": Preset("hf:wikimedia/wikipedia:20231101.pl#text", "pl", *_WIKI),
    "wiki-uk": Preset("hf:wikimedia/wikipedia:20231101.uk#text", "uk", *_WIKI),
    "culturax-pl": Preset("hf:uonlp/CulturaX:pl#text", "pl", *_CULTURAX),
    "culturax-uk": Preset("hf:uonlp/CulturaX:uk#text", "uk", *_CULTURAX),
    "qirim-crh": Preset("hf:QIRIM/crh_monocorpus#text", "crh", *_QIRIM),
}
"""Every preset by the name that the user types, alone or after ``preset:``."""
