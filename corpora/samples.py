"""Bundled samples for demonstrations and offline tests: a paragraph a line, and an empty line between documents."""

from importlib.resources import files
from pathlib import Path

from spectool import CorpusError

_FOLDER = Path(str(files("spectool.corpora"))) / "samples"


def sample_names() -> list[str]:
    """Names of the bundled samples, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def sample_path(name: str) -> Path:
    """The file of a bundled sample, or the folder of all of them for ``all``."""
    if name == "all":
        return _FOLDER
    if name not in sample_names():
        known = ", ".join(f"sample:{known}" for known in sample_names())
        raise CorpusError(f"sample:{name}: no such sample. Bundled: {known}; sample:all is all of them")
    return _FOLDER / f"{name}.txt"
