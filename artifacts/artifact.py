"""What the formats of artifacts have in common: an `Artifact` opens a directory with a manifest of its own format."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import spectool
from spectool import ArtifactError
from spectool.artifacts.manifest import MANIFEST, Manifest, read_manifest, seal, verify_file


class Artifact:
    """An open artifact. Each format is a subclass."""

    format: ClassVar[str]
    version: ClassVar[int]  # of the format; others cannot be read
    roles: ClassVar[tuple[str, ...]] = ()  # tokenizers that the manifest must name
    again: ClassVar[str]  # advice in errors, such as ``Build the dictionary again``
    rebuild: ClassVar[str] = ""  # command that builds it, with ``{path}``, ``{corpus}`` and ``{ROLE}`` for each role

    def __init__(self, path: Path) -> None:
        """Open the artifact at ``path``, checking sizes and types; `formats.verify_artifact` checks contents.

        Raises:
            ArtifactError: It is not a whole artifact of this format and version.
        """
        self.path = path
        self.manifest = manifest = read_manifest(path)
        if manifest.format != self.format:
            raise ArtifactError(
                f"{path}: is a {manifest.format}, expected a {self.format}. "
                f"`spectool inspect {shlex.quote(str(path))}` explains it"
            )
        if manifest.version != self.version:
            known = {"path": path, "corpus": manifest.inputs.get("corpus", "CORPUS")}
            known |= {role: manifest.tokenizers.get(role, {}).get("name", role.upper()) for role in self.roles}
            command = self.rebuild.format_map({name: shlex.quote(str(value)) for name, value in known.items()})
            raise ArtifactError(
                f"{path}: {self.format} version {manifest.version} (written by {manifest.tool}); this spectool "
                f"{spectool.__version__} reads version {self.version}. {self.again} with this version"
                f"{command and f': {command}'}"
            )
        for role in self.roles:
            if role not in manifest.tokenizers:
                raise ArtifactError(f"{path / MANIFEST}: names no {role} tokenizer. Build the artifact again")

    @classmethod
    def seal(
        cls,
        directory: Path,
        arguments: Mapping[str, Any],
        tokenizers: Mapping[str, Mapping[str, Any]],
        inputs: Mapping[str, Any],
        statistics: Mapping[str, Any],
    ) -> Manifest:
        """Write the manifest of this format for the files in ``directory``, and return it; see `Manifest`."""
        return seal(directory, Manifest(cls.format, cls.version, arguments, tokenizers, inputs, statistics))

    def check(self) -> None:
        """Check the invariants that opening does not check; the first that does not hold is an ArtifactError."""
        for file, problem in self._problems():
            self._expect(False, problem, file)

    def _problems(self) -> Iterable[tuple[str, str]]:
        """What is wrong: names of files, each with a phrase."""
        return ()

    def _expect(self, holds: bool, problem: str, file: str = MANIFEST) -> None:
        if not holds:
            raise ArtifactError(f"{self.path / file}: {problem}. {self.again}")

    def _file(self, name: str, hashed: bool = False) -> Path:
        """Path of a file that the manifest must name; its SHA-256 is compared if ``hashed``."""
        self._expect(name in self.manifest.files, f"the manifest does not name {name}", "")
        if hashed:
            verify_file(self.path, self.manifest, name)
        return self.path / name
