"""What all artifacts have in common: an `Artifact` is an open file with a manifest of its own format."""

import lzma
import shlex
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import spectool
from spectool import ArtifactError, escaped_name
from spectool.artifacts.atomic import atomic_file, require_writable
from spectool.artifacts.container import Container, open_container, write_container
from spectool.artifacts.manifest import Manifest
from spectool.artifacts.numbers import MOST_DIGITS, from_digits

FORMATS = {
    "spectool-dictionary": "spectool.artifacts.dictionary:Dictionary",
    "spectool-alignment": "spectool.artifacts.alignment:Alignment",
    "spectool-pack": "spectool.artifacts.pack:Pack",
}
"""All formats, each with the class that opens it, which is imported when it is needed."""
_EXPANSION = 64  # bytes that an array may be decompressed to, for each byte of the file


class Artifact:
    """An open artifact: its ``path`` and ``name``, its content (``file``) and ``manifest``. A format is a subclass."""

    format: ClassVar[str]
    version: ClassVar[int]  # of the format; others cannot be read
    roles: ClassVar[tuple[str, ...]] = ()  # tokenizers that the manifest must name
    again: ClassVar[str]  # advice in errors, such as ``Align again: spectool align``
    unpacker: ClassVar[Callable[[], Any]]  # makes what decompresses arrays, if there are compressed ones

    def __init__(self, path: Path) -> None:
        """Open the artifact at ``path`` and compare its SHA-256, which takes about 1 ms for each MB.

        Raises:
            ArtifactError: It is not a whole artifact of this format and version.
        """
        self.path, self.name = path, escaped_name(path.name)
        self.file, self.manifest = _read(path)
        manifest = self.manifest
        if manifest.format != self.format:
            raise ArtifactError(
                f"{path}: is a {manifest.format}, expected a {self.format}. "
                f"`spectool inspect {shlex.quote(str(path))}` explains it"
            )
        if manifest.version != self.version:
            raise ArtifactError(
                f"{path}: {self.format} version {manifest.version} (written by {manifest.tool}); this spectool "
                f"{spectool.__version__} reads version {self.version}. {self.again}"
            )
        self.file.verify()
        for role in self.roles:
            self._expect(role in manifest.tokenizers, f"its manifest names no {role} tokenizer")

    @classmethod
    def write(
        cls,
        out: Path,
        arrays: Mapping[str, NDArray[Any]],
        *,
        arguments: Mapping[str, Any],
        tokenizers: Mapping[str, Mapping[str, Any]],
        inputs: Mapping[str, Any],
        statistics: Mapping[str, Any],
        check: Callable[[Path], object] | None = None,
    ) -> Manifest:
        """Write an artifact in one step, and return its manifest, whose other fields are the arguments.

        It is kept if a ``check`` of the file raises nothing; by default, it is opened.

        Raises:
            ArtifactError: Something is there that must not be replaced, or it cannot be written or opened.
        """
        manifest = Manifest(cls.format, cls.version, arguments, tokenizers, inputs, statistics)
        require_replaceable(out, cls.format, manifest.fingerprints)
        out.resolve().parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as partial:
            write_container(partial, arrays, manifest.to_json())
            (check or cls)(partial)
        return manifest

    def _expect(self, holds: bool, problem: str, array: str = "") -> None:
        if not holds:
            raise ArtifactError(f"{self.path}: {array}{': ' if array else ''}{problem}. {self.again}")

    def _array(self, name: str, kind: str, size: int | None = None) -> NDArray[Any]:
        """An array of a NumPy type; ``size`` is its length, None for any. Copied: a mapped file may get shorter."""
        self._expect(name in self.file.arrays, "missing", name)
        values = self.file.arrays[name]
        expected = f"{kind} {'any' if size is None else size}"
        fits = values.dtype == np.dtype(kind) and size in (None, len(values))
        self._expect(fits, f"{values.dtype} {len(values)}, expected {expected}", name)
        return values.copy()

    def _unpacked(self, name: str, most: int) -> NDArray[np.uint8]:
        """An array, decompressed; refused if it has more than ``most`` bytes."""
        unpacker, most = type(self).unpacker(), min(most, _EXPANSION * len(self.file.data))
        try:
            content = unpacker.decompress(self._array(name, "uint8"), most + 1)
        except (lzma.LZMAError, zlib.error, EOFError) as error:
            raise ArtifactError(f"{self.path}: {name}: {error}. {self.again}") from error
        self._expect(len(content) <= most and not unpacker.unused_data, "more than there can be", name)
        return np.frombuffer(content, np.uint8)

    def _numbers(self, name: str, count: int) -> NDArray[np.int64]:
        """``count`` numbers from a compressed array, in the digits of `numbers`."""
        try:
            return from_digits(self._unpacked(name, MOST_DIGITS * count), count)
        except ValueError as error:
            raise ArtifactError(f"{self.path}: {name}: {error}. {self.again}") from error


def read_manifest(path: Path) -> Manifest:
    """The manifest of the artifact at ``path``, whose content is not read; an ArtifactError if there is none."""
    return _read(path)[1]


def open_artifact(path: Path) -> Artifact:
    """The artifact at ``path``, whatever its format; an ArtifactError if that is unknown, or damaged."""
    name = read_manifest(path).format
    if name not in FORMATS:
        raise ArtifactError(f"{path}: unknown format {name!r}; expected one of {', '.join(FORMATS)}")
    found: type[Artifact] = resolve_name(FORMATS[name])
    return found(path)


def require_replaceable(out: Path, format_name: str, fingerprints: Mapping[str, str] | None = None) -> None:
    """Raise an ArtifactError unless an artifact of that format can be written to ``out``, or replace what is there.

    ``fingerprints`` are those of its tokenizers, by role; None while they are not known, which allows any.
    """
    require_writable(out)
    if not out.exists():
        return
    try:
        found = read_manifest(out)
    except ArtifactError as error:
        raise ArtifactError(
            f"{out}: exists and is not a whole artifact of spectool. Choose another -o, or remove it first"
        ) from error
    if found.format != format_name or (fingerprints is not None and found.fingerprints != dict(fingerprints)):
        names = " and ".join(str(tokenizer["name"]) for tokenizer in found.tokenizers.values())
        raise ArtifactError(
            f"{out}: is a {found.format} for {names or 'no tokenizer'}, not replaced by a {format_name} for another. "
            "Choose another -o, or remove it first"
        )


def _read(path: Path) -> tuple[Container, Manifest]:
    file = open_container(path)
    try:
        return file, Manifest.from_json(file.manifest)
    except (ValueError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{path}: not a manifest of spectool ({error}). Build the artifact again") from error
