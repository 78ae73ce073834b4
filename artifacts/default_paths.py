"""Names of artifacts and draft models in the user's cache, where commands without ``-o`` write them."""

import hashlib
import os
from pathlib import Path
from typing import Any

from spectool import expanded

AUTO = "auto"
"""Named instead of a dictionary or a draft model: what is in the user's cache for the tokenizer in use."""


def default_path(name: str) -> Path:
    """A path in the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("spectool")) / name


def find_artifact(path: Path, suffix: str = "") -> Path:
    """``path`` itself or, if nothing is there, what has that name, or with ``suffix``, in the user's cache."""
    path = expanded(path)
    names = [path.name, f"{path.name}{suffix}"] if len(path.parts) == 1 and not path.exists() else []
    return next((cached for cached in map(default_path, names) if cached.is_file()), path)


def draft_path(name: str) -> Path:
    """Where a draft model with this name is kept in the user's cache."""
    return default_path("drafts") / name


def find_draft(name: str) -> str:
    """``name`` itself or, if nothing is there, the draft model with that name in the user's cache."""
    named = expanded(name)
    cached = draft_path(name) if len(named.parts) == 1 and not os.path.lexists(named) else named
    return str(cached) if cached != named and cached.is_dir() else name


def digest(*values: Any) -> str:
    """A few characters that tell settings apart in a file name."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:6]


def place_of(source: str) -> str:
    """What tells text or a pack from others: where it is, or its name where it comes with spectool."""
    for name in (source, source.rpartition("#")[0]):  # after which a column may be named
        path = expanded(name).absolute()
        if name and path.exists():
            return f"{path}{source[len(name) :]}"
    return source


def slug(source: str) -> str:
    """A file name made of the name of a corpus or an artifact."""
    name = Path(source).name.strip(".") or os.path.basename(os.path.abspath(source))  # noqa: PTH100, PTH119
    return "".join(char if char.isalnum() or char in "-." else "-" for char in name)[:60].strip("-.")
