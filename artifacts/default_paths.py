"""Names of artifacts in the user's cache, where commands without ``-o`` write them."""

import hashlib
import os
from pathlib import Path
from typing import Any

AUTO = "auto"
"""Named instead of a dictionary: those in the user's cache that are for the tokenizer in use."""


def default_path(name: str) -> Path:
    """A path in the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("spectool")) / name


def find_artifact(path: Path, suffix: str = "") -> Path:
    """``path`` itself or, if nothing is there, what has that name, or with ``suffix``, in the user's cache."""
    path = Path(os.path.expanduser(path))  # noqa: PTH111 (the other one raises for an unknown user)
    names = [path.name, f"{path.name}{suffix}"] if len(path.parts) == 1 and not path.exists() else []
    return next((cached for cached in map(default_path, names) if cached.is_file()), path)


def digest(*values: Any) -> str:
    """A few characters that tell settings apart in a file name."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:6]


def slug(source: str) -> str:
    """A file name made of the name of a corpus or an artifact."""
    return "".join(char if char.isalnum() or char in "-." else "-" for char in Path(source).name)[:60].strip("-.")
