"""A small artifact of no format in particular."""

from pathlib import Path

from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.manifest import Manifest, seal

DATA = bytes(range(256)) * 4


def build(out: Path, data: bytes = DATA, note: str = "") -> Manifest:
    """Write a small artifact."""
    with atomic_directory(out) as directory:
        (directory / "data.bin").write_bytes(data)
        (directory / "more.bin").write_bytes(b"more")
        tokenizers = {"target": {"name": "t", "fingerprint": "0" * 64, "size": 9}}
        manifest = Manifest("spectool-test", 3, {"b": 1, "a": note}, tokenizers, {"corpus": "ż"}, {"entries": 2})
        return seal(directory, manifest)
