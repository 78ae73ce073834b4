"""The bundled samples: a little text in each language, for demonstrations and offline tests.

One paragraph a line, an empty line between documents.
"""

from importlib.resources import files
from pathlib import Path

from spectool import CorpusError


def sample_names() -> list[str]:
    """Return the names of the bundled samples, sorted.

    >>> {"pl", "uk"} <= set(sample_names())
    True
    """
    return sorted(path.stem for path in _folder().glob("*.txt"))


def sample_path(name: str) -> Path:
    """Return the file of a bundled sample.

    Raises:
        CorpusError: No such sample; names those that there are.
    """
    names = sample_names()
    if name not in names:
        known = ", ".join(f"sample:{known}" for known in names) or "none"
        raise CorpusError(f"sample:{name}: no such sample. Bundled: {known}")
    return _folder() / f"{name}.txt"


def read_sample(name: str) -> list[str]:
    """Return the documents of a bundled sample, their paragraphs joined by LF.

    Raises:
        CorpusError: No such sample.
    """
    text = sample_path(name).read_text(encoding="utf-8")
    return [document.strip() for document in text.split("\n\n") if document.strip()]


def _folder() -> Path:
    return Path(str(files("spectool.corpora"))) / "samples"
