"""Where an artifact goes when the command names no place: the user's cache, under a name that says what it is."""

import hashlib
import re
from pathlib import Path
from typing import Any

from spectool import ArtifactError


def default_path(name: str) -> Path:
    """Return a path in the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("spectool")) / name


def find_artifact(path: Path, suffix: str = "") -> Path:
    """Return where an artifact lies: at ``path``, or else in the user's cache under a name that begins or is made so.

    ``pl`` finds ``sample-pl.8d3f21ab.backoff-0c55d1.dict``.

    Args:
        path: As the user gave it; what has a folder in it is a path and no name.
        suffix: What names of its kind end with, such as ``.dict``; of any kind by default.

    Raises:
        ArtifactError: Several are there.
    """
    if path.exists() or len(path.parts) != 1 or not path.name:
        return path
    folder = default_path("")
    names = sorted(each.name for each in folder.glob(f"[!.]*{suffix or '.*'}") if each.is_dir())
    if path.name in names:
        return folder / path.name
    names = [name for name in names if name.startswith(path.name) or path.name in re.split("[-.]", name)]
    if len(names) > 1:
        raise ArtifactError(f"{path}: expected one artifact in {folder}, got {', '.join(names)}. Name one in full")
    return folder / names[0] if names else path


def digest(*values: Any) -> str:
    """Tell settings apart in a file name."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:6]


def slug(source: str) -> str:
    """Make a file name of a corpus' or artifact's name."""
    return "".join(char if char.isalnum() or char in "-." else "-" for char in Path(source).name)[:60].strip("-.")
