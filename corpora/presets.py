"""Text sources that have a short name. One table, so that a reader sees all of them and their terms."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """A named source.

    Attributes:
        name: What the user types, alone or after ``preset:``.
        source: The source it stands for.
        language: ISO 639 code.
        licence: Terms of the text, as its publisher states them.
        note: What to know before the first use.
    """

    name: str
    source: str
    language: str
    licence: str
    note: str


_WIKI = "CC BY-SA 3.0 and GFDL"
_WIKI_NOTE = "Wikipedia articles of November 2023, one article a document"
_CULTURAX = "ODC-By (mC4) and CC0 (OSCAR), with the terms of Common Crawl"
_CULTURAX_NOTE = "cleaned web text, very large; accept the terms on its hub page"

_TABLE = (
    # name           source                                       language  licence  note
    ("wiki-pl", "hf:wikimedia/wikipedia:20231101.pl#text", "pl", _WIKI, _WIKI_NOTE),
    ("wiki-uk", "hf:wikimedia/wikipedia:20231101.uk#text", "uk", _WIKI, _WIKI_NOTE),
    ("culturax-pl", "hf:uonlp/CulturaX:pl#text", "pl", _CULTURAX, _CULTURAX_NOTE),
    ("culturax-uk", "hf:uonlp/CulturaX:uk#text", "uk", _CULTURAX, _CULTURAX_NOTE),
    (
        "qirim-crh",
        "hf:QIRIM/crh_monocorpus#text",
        "crh",
        "CC BY 4.0",
        "books, press and subtitles in both scripts, one work a document; accept the terms on its hub page",
    ),
)

PRESETS = {row[0]: Preset(*row) for row in _TABLE}
"""Every preset by its name."""
