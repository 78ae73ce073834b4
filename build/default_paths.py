"""Where an artifact goes when the command names no place: the user's cache, under a telling name."""

import hashlib
from pathlib import Path
from typing import Any


def default_path(name: str) -> Path:
    """Return a path in the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("spectool")) / name


def digest(*values: Any) -> str:
    """Tell settings apart in a file name."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:6]


def slug(source: str) -> str:
    """Make a file name of a corpus' or artifact's name."""
    return "".join(char if char.isalnum() or char in "-." else "-" for char in Path(source).name)[:60].strip("-.")
