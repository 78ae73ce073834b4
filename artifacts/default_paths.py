"""Names of artifacts in the user's cache, where commands without ``-o`` write them."""

import hashlib
import re
from pathlib import Path
from typing import Any

from spectool import ArtifactError

AUTO = "auto"
"""Named instead of a dictionary: those in the user's cache that are for the tokenizer in use."""


def default_path(name: str) -> Path:
    """A path in the user's cache."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("spectool")) / name


def find_artifact(path: Path, suffix: str = "") -> Path:
    """``path`` itself, or the artifact in the user's cache that is named so in part, if nothing is there.

    For example, ``pl`` finds ``sample-pl.8d3f21ab.backoff-0c55d1.dict``. A path with a folder is not looked up, and
    neither is an artifact without ``suffix``, such as ``.dict``.

    Raises:
        ArtifactError: Several artifacts have that name.
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
    """A few characters that tell settings apart in a file name."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:6]


def slug(source: str) -> str:
    """A file name made of the name of a corpus or an artifact."""
    return "".join(char if char.isalnum() or char in "-." else "-" for char in Path(source).name)[:60].strip("-.")
