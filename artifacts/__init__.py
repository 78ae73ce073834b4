"""What lies on disk: formats, manifests, fingerprints, and tokenizers as bytes."""

from typing import TYPE_CHECKING

from spectool import lazy_exports

if TYPE_CHECKING:
    from spectool.artifacts.alignment import Alignment
    from spectool.artifacts.canonical import CanonicalIds
    from spectool.artifacts.canonical_text import CanonicalText
    from spectool.artifacts.counts import Counts
    from spectool.artifacts.dictionary import Dictionary, Match
    from spectool.artifacts.manifest import Manifest, read_manifest
    from spectool.artifacts.roles import Roles
    from spectool.artifacts.round_trips import RoundTrip, limits, round_trip
    from spectool.artifacts.tokenizer import Tokenizer
    from spectool.artifacts.tokenizer_source import open_tokenizer

__all__ = [
    "Alignment",
    "CanonicalIds",
    "CanonicalText",
    "Counts",
    "Dictionary",
    "Manifest",
    "Match",
    "Roles",
    "RoundTrip",
    "Tokenizer",
    "limits",
    "open_tokenizer",
    "read_manifest",
    "round_trip",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Alignment": "alignment",
        "CanonicalIds": "canonical",
        "CanonicalText": "canonical_text",
        "Counts": "counts",
        "Dictionary": "dictionary",
        "Manifest": "manifest",
        "Match": "dictionary",
        "Roles": "roles",
        "RoundTrip": "round_trips",
        "Tokenizer": "tokenizer",
        "limits": "round_trips",
        "open_tokenizer": "tokenizer_source",
        "read_manifest": "manifest",
        "round_trip": "round_trips",
    },
)
