"""Text sources that have a short name. One table, so that a reader sees all of them and their terms."""

from typing import NamedTuple


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
PRESETS = {
    "wiki-pl": Preset("hf:wikimedia/wikipedia:20231101.pl#text", "pl", *_WIKI),
    "wiki-uk": Preset("hf:wikimedia/wikipedia:20231101.uk#text", "uk", *_WIKI),
    "culturax-pl": Preset("hf:uonlp/CulturaX:pl#text", "pl", *_CULTURAX),
    "culturax-uk": Preset("hf:uonlp/CulturaX:uk#text", "uk", *_CULTURAX),
    "qirim-crh": Preset(
        "hf:QIRIM/crh_monocorpus#text",
        "crh",
        "CC BY 4.0",
        "books, press and subtitles in both scripts, one work a document; accept the terms on its hub page",
    ),
}
"""Every preset by the name that the user types, alone or after ``preset:``."""
