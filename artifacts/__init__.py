"""What lies on disk: formats, manifests, fingerprints, and tokenizers as bytes."""

from spectool.artifacts.alignment import Alignment
from spectool.artifacts.dictionary import Dictionary, Match
from spectool.artifacts.manifest import Manifest, read_manifest
from spectool.artifacts.roles import Roles
from spectool.artifacts.round_trip import RoundTrip, limits, round_trip
from spectool.artifacts.tokenizer import Tokenizer
from spectool.artifacts.tokenizer_source import open_tokenizer

__all__ = [
    "Alignment",
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
