"""A small artifact of no format in particular."""

from pathlib import Path
from typing import Any

import numpy as np

from spectool.artifacts.artifact import Artifact
from spectool.artifacts.manifest import Manifest

SIDE: dict[str, Any] = {"name": "t", "fingerprint": "0" * 64, "size": 9}


class Small(Artifact):
    format, version, roles, again = "spectool-test", 3, ("target",), "Test again"


def build(out: Path, last: int = 3, note: str = "", tokenizers: dict[str, Any] | None = None) -> Manifest:
    """Write a small artifact."""
    return Small.write(
        out,
        {
            "wide": np.array([1, 2, last], np.uint32),
            "bytes": np.array([7] * 5, np.uint8),
            "none": np.zeros(0, np.uint8),
        },
        arguments={"b": 1, "a": note},
        tokenizers={"target": SIDE} if tokenizers is None else tokenizers,
        inputs={"corpus": "ż"},
        statistics={"entries": 2},
    )
