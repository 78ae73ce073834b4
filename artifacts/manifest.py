"""The manifest of an artifact: a directory of data files and a ``manifest.json``, which is written last.

    OUT/
      alphabet.npy  contexts.marisa  ...      data files, without subdirectories
      manifest.json                           format, version, inputs, and the size and SHA-256 of each file

A manifest has no time stamps, so equal inputs and arguments give equal bytes. `artifacts.atomic` moves a finished
directory to its path.
"""

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import spectool
from spectool import ArtifactError, IncompleteArtifact

MANIFEST = "manifest.json"
_MODEL_FILES = ("config.json", "tokenizer*", "tekken.json", "*.model", "*.tiktoken", "*.safetensors", "*.gguf", "*.npz")
_MAX_MANIFEST_BYTES = 4 * 2**20
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_NO_FILES = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact is, what it was made from, and what its files must be."""

    format: str  # name of the format, such as ``spectool-dictionary``
    version: int  # of the format
    arguments: Mapping[str, Any]  # of the stage, as far as the content depends on them
    tokenizers: Mapping[str, Mapping[str, Any]]  # role -> `Tokenizer.identity`
    inputs: Mapping[str, Any]  # the corpus, with its size
    statistics: Mapping[str, Any]  # figures of the content
    tool: str = f"spectool {spectool.__version__}"  # the program that wrote it
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> bytes, sha256; set by `seal`

    @property
    def total_bytes(self) -> int:
        """Total size of the data files."""
        return sum(int(entry["bytes"]) for entry in self.files.values())


def file_entries(directory: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file in ``directory``, by name."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(directory.iterdir())}


def seal(directory: Path, manifest: Manifest) -> Manifest:
    """Hash every file in ``directory``, write the manifest with these hashes, and return it."""
    (directory / MANIFEST).unlink(missing_ok=True)
    sealed = replace(manifest, files=file_entries(directory))
    text = json.dumps(asdict(sealed), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    with (directory / MANIFEST).open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    return sealed


def read_manifest(path: Path) -> Manifest:
    """The manifest of the artifact at ``path``; file sizes are checked, contents are not.

    Raises:
        IncompleteArtifact: There is no manifest.
        ArtifactError: The manifest or a file is damaged, missing or unsafe.
    """
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such artifact (expected a directory with {MANIFEST}){_advice(path)}")
    file = path / MANIFEST
    if _plain_size(file) is None:
        if holds_model(path):
            raise ArtifactError(
                f"{path}: is a model directory, not a spectool artifact. `spectool inspect` explains its tokenizer"
            )
        if (path / "run.jsonl").is_file():
            raise ArtifactError(
                f"{path}: is a run of `spectool bench`, not an artifact. Its page is {path / 'report.md'}"
            )
        raise IncompleteArtifact(
            f"{path}: no {MANIFEST}: the build did not finish, or this is not an artifact. Run the command that "
            "builds it again"
        )
    manifest = parse_manifest(file)
    for name, entry in manifest.files.items():
        _check_size(path / name, entry["bytes"])
    return manifest


def holds_model(path: Path) -> bool:
    """Whether a directory holds files of a model or a tokenizer, which no artifact has."""
    return any(next(path.glob(pattern), None) for pattern in _MODEL_FILES)


def previous_path(out: Path) -> Path:
    """Path of an old artifact while a new one replaces it."""
    return out.with_name(f".{out.name}.previous")


def verify_files(path: Path, manifest: Manifest) -> None:
    """Compare the SHA-256 of every file with the manifest.

    Raises:
        ArtifactError: A file differs, or is not named in the manifest.
    """
    found = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}  # .DS_Store and the like
    strangers = sorted(found - set(manifest.files) - {MANIFEST})
    if strangers:
        raise ArtifactError(f"{path / strangers[0]}: not named in {MANIFEST}. Remove it, or build the artifact again")
    for name in manifest.files:
        verify_file(path, manifest, name)


def verify_file(path: Path, manifest: Manifest, name: str) -> None:
    """Compare the SHA-256 of one file with the manifest; an ArtifactError if it differs."""
    found, expected = _sha256(path / name), manifest.files[name]["sha256"]
    if found != expected:
        raise ArtifactError(
            f"{path / name}: SHA-256 is {found[:12]}…, the manifest says {expected[:12]}…. The file was "
            "changed or damaged: copy or build the artifact again"
        )


def parse_manifest(file: Path) -> Manifest:
    """The manifest in a file; the files that it names are not looked at.

    Raises:
        ArtifactError: It is damaged, unsafe, or the manifest of something else.
    """
    try:
        manifest = Manifest(**read_bounded_json(file))
        _check_types(manifest)
    except (ValueError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{file}: not a spectool manifest ({error}). Build the artifact again") from error
    for name, entry in manifest.files.items():
        if not _FILE_NAME.match(name) or name == file.name or entry["bytes"] < 0:
            raise ArtifactError(
                f"{file}: unsafe file entry {name[:100]!r} ({entry['bytes']} bytes); file names must be plain"
            )
    return manifest


def read_bounded_json(file: Path) -> Any:
    """The value in a JSON file that may come from anyone.

    Raises:
        ArtifactError: It is missing, or not a plain file.
        ValueError: It is too large, not JSON, or has numbers or text that readers of JSON do not agree on.
    """
    size = _require_file(file)
    if size > _MAX_MANIFEST_BYTES:
        raise ValueError(f"{size:,} bytes, expected at most {_MAX_MANIFEST_BYTES:,}")
    text = file.read_text(encoding="utf-8")
    value = json.loads(text, parse_int=_integer, parse_float=_finite, parse_constant=_finite)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be printed
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) >= 1 << 63:
        raise ValueError(f"a number of {len(digits)} digits")
    return number


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return number


def _check_types(manifest: Manifest) -> None:
    """Raise TypeError if a part that readers rely on is missing or has another type."""
    parts = dict.fromkeys(("arguments", "tokenizers", "inputs", "statistics", "files"), dict)
    _expect_types("the manifest", asdict(manifest), {"format": str, "version": int, "tool": str, **parts})
    for role, tokenizer in manifest.tokenizers.items():
        _expect_types(f"tokenizer {role!r}", tokenizer, {"name": str, "fingerprint": str, "size": int})
        _expect_types(f"tokenizer {role!r}", tokenizer, {"sources": list}, optional=True)
        if tokenizer["size"] < 0 or any(type(source) is not str for source in tokenizer.get("sources", ())):
            raise TypeError(f"tokenizer {role!r} has a negative size, or sources that are no text")
    texts = {"corpus": str, "licence": str, "documents": int, "characters": int, "repaired": dict, "plain_text": dict}
    _expect_types("the inputs", manifest.inputs, texts, optional=True)
    for name, entry in manifest.files.items():
        _expect_types(f"file {name!r}", entry, {"bytes": int, "sha256": str})


def _expect_types(what: str, value: Any, types: Mapping[str, type], optional: bool = False) -> None:
    for key, kind in types.items():
        found = value.get(key) if isinstance(value, dict) else None
        if type(found) is not kind and not (optional and found is None):
            raise TypeError(f"{key!r} of {what}: expected {kind.__name__}, got {type(found).__name__}")


def _check_size(file: Path, expected: int) -> None:
    size = _require_file(file)
    if size != expected:
        reason = "The copy was cut short" if size < expected else "The file was changed or damaged"
        raise ArtifactError(
            f"{file}: {size} bytes, the manifest says {expected}. {reason}: copy or build the artifact again"
        )


def _plain_size(file: Path) -> int | None:
    """Size of a plain file in bytes, None if nothing is there. Anything else is an ArtifactError."""
    try:
        status = file.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = _NO_FILES.get(stat.S_IFMT(status.st_mode), "a device or a socket")
        raise ArtifactError(f"{file}: is {kind}, expected a plain file. Copy the artifact with its files")
    return status.st_size


def _require_file(file: Path) -> int:
    size = _plain_size(file)
    if size is None:
        raise ArtifactError(f"{file}: missing, but the manifest names it. Copy or build the artifact again")
    return size


def _advice(path: Path) -> str:
    previous = previous_path(path.resolve())
    if previous.is_dir():
        return f". A replacement was interrupted; the artifact before it is whole: mv {previous} {path}"
    if (path.parent / f".{path.name}.work").is_dir():
        return ". It was begun and is unfinished; the command that writes it resumes it"
    if path.is_file() or path.suffix == ".dict":
        return ". To build a dictionary of a text: spectool build-dict --tokenizer MODEL --corpus FILE"
    return ". `spectool --help` lists the commands that write artifacts"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
