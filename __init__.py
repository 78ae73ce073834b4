"""spectool: speculative decoding for the languages that tokenizers treat worst.

Offline stages (`spectool.build`) turn text (`spectool.corpora`) into artifacts (`spectool.artifacts`), which
`spectool.runtime` loads at generation time. The root has what all packages share.
"""

import os
from collections.abc import Callable
from pathlib import Path

__version__ = "0.1.0"

_EXTRAS = {"parquet": ("pyarrow",), "lab": ("pandas", "pyarrow", "scipy")}


class SpectoolError(Exception):
    """An error the user can fix: the message says what is wrong, what was expected, what was found, and what to do."""


class TokenizerError(SpectoolError):
    """A tokenizer cannot be found, read or used for what was asked."""


class CorpusError(SpectoolError):
    """A text source is missing, damaged or not what its name says; names the file and the place."""


class ArtifactError(SpectoolError):
    """An artifact is damaged, unsafe or of a format this version does not read."""


class FingerprintMismatch(ArtifactError):
    """An artifact was built for another tokenizer than the one in use."""


class RuntimeUnsupported(SpectoolError):
    """A model, cache or option that the runtime cannot serve without changing the output."""


def require_extra(extra: str, what: str) -> None:
    """Raise a SpectoolError unless the packages of an extra are there that ``what`` needs, as the user typed it."""
    from importlib.util import find_spec

    if not all(find_spec(module) for module in _EXTRAS[extra]):
        packages = ", ".join(_EXTRAS[extra])
        raise SpectoolError(f"{what} needs {packages}. Install what is missing: pip install 'spectool[{extra}]'")


def expanded(name: str | os.PathLike[str]) -> Path:
    """The path of a name, in which ``~`` stands for the user's folder; that of an unknown user stays as it is."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 (the other one raises for an unknown user)


def escaped_name(name: str | os.PathLike[str]) -> str:
    r"""A name from the file system as text that can be written: bytes that are not UTF-8 become escapes.

    >>> escaped_name(os.fsdecode(b"teksty/\xbf\xf3\xb3w.txt"))
    'teksty/\\xbf\\xf3\\xb3w.txt'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def printable(text: str, keep: str = "", escape: Callable[[str], str] = repr) -> str:
    r"""Text from elsewhere that can do nothing to a terminal, and hides nothing from its reader.

    Control characters, those that turn the direction of text, and all others that show no sign become escapes.

    Args:
        text: The text.
        keep: Characters that stay, such as a line feed.
        escape: Writes a character as an escape in quotation marks.

    >>> printable("a\x1b[2J\u202egpj.exe żółw")
    'a\\x1b[2J\\u202egpj.exe żółw'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else escape(char)[1:-1] for char in text)
