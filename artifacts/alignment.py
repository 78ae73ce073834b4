"""The alignment format: what two tokenizers share, by bytes, in both directions.

    draft_to_target.arrow   target int32[draft ids]    target id with the same surface, -1 where none
    target_to_draft.arrow   draft  int32[target ids]   draft id with the same surface, -1 where none

The manifest's statistics hold the special-token roles and the coverage by vocabulary and by
occurrence. Later parts (translation table, merge sites, absorption, prefix index) are further
files of the same directory; readers of this version ignore none and require these two.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spectool import ArtifactError
from spectool.artifacts.columns import read_columns, write_columns
from spectool.artifacts.manifest import expect_format, read_manifest, verify_files

FORMAT = "spectool-alignment"
VERSION = 1
NONE = -1


class Alignment:
    """An open alignment, memory-mapped and read-only.

    Attributes:
        path: Its directory.
        manifest: Its manifest.
        draft_to_target: Target id of each draft id, -1 where none; int32, shape ``[draft ids]``.
        target_to_draft: Draft id of each target id, -1 where none; int32, shape ``[target ids]``.
    """

    def __init__(self, path: Path) -> None:
        """Open the alignment at ``path``. Sizes and types are checked; `verify` checks contents.

        Raises:
            ArtifactError: Not a whole alignment of this version.
        """
        self.path = path
        self.manifest = read_manifest(path)
        expect_format(path, self.manifest, FORMAT, VERSION, ("draft", "target"))
        self.draft_to_target = self._column("draft_to_target.arrow", "target", "draft")
        self.target_to_draft = self._column("target_to_draft.arrow", "draft", "target")

    def verify(self) -> None:
        """Prove the alignment whole: checksums first, then every invariant of the format.

        Raises:
            ArtifactError: The first thing that is wrong.
        """
        verify_files(self.path, self.manifest)
        for name, column, other in (
            ("draft_to_target", self.draft_to_target, self.target_to_draft),
            ("target_to_draft", self.target_to_draft, self.draft_to_target),
        ):
            if column.min(initial=0) < NONE or column.max(initial=NONE) >= len(other):
                raise ArtifactError(f"{self.path / name}.arrow: ids outside the other vocabulary. Align again")
            shared = column[column != NONE]
            if (other[shared] == NONE).any():
                raise ArtifactError(f"{self.path / name}.arrow: an id is shared in one direction only. Align again")

    def _column(self, file: str, column: str, role: str) -> NDArray[np.int32]:
        if file not in self.manifest.files:
            raise ArtifactError(f"{self.path}: the manifest does not name {file}. Align again")
        values: NDArray[np.int32] = read_columns(self.path / file, {column: pa.int32()})[column].to_numpy(
            zero_copy_only=True
        )
        size = self.manifest.tokenizers[role]["size"]
        if len(values) != size:
            raise ArtifactError(f"{self.path / file}: {len(values)} ids, the {role} tokenizer has {size}. Align again")
        return values


def write_alignment(directory: Path, draft_to_target: NDArray[np.int32], target_to_draft: NDArray[np.int32]) -> None:
    """Write the data files of an alignment into the scratch directory of `replacing.writing`."""
    write_columns(directory / "draft_to_target.arrow", {"target": pa.array(draft_to_target, type=pa.int32())})
    write_columns(directory / "target_to_draft.arrow", {"draft": pa.array(target_to_draft, type=pa.int32())})
