"""The alignment format: how two tokenizers spell the same bytes, in both directions.

For each side (``draft``, ``target``), with the other one as ``<other>``:

    <side>_to_<other>.arrow    <other> int32[ids]          id with the same bytes, -1 where none
    <side>_in_<other>.arrow    inside, text_start list<int32>[ids]   spellings in the other's ids
    <side>_token_bytes.npy        uint8[bytes]                 the bytes of all tokens, by id
    <side>_offsets.npy         uint32[ids + 1]              where those of each token begin
    <side>_risks.npy           float16[ids]                 how often following text merges the token away, NaN unknown

and once:

    prefix_index.arrow         draft int32[ids with bytes]  draft ids in the order of their bytes

The manifest's statistics hold the report on the pair, and whether the ids of each side are joined on ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spectool import FingerprintMismatch
from spectool.artifacts import alignment_checks as checks
from spectool.artifacts.arrays import map_array, save_array
from spectool.artifacts.artifact import Artifact
from spectool.artifacts.columns import as_numpy, read_columns, write_columns
from spectool.tokenization.token_bytes import TokenBytes
from spectool.tokenization.tokenizer import Tokenizer

NONE = -1
MOST_IDS = 2**24  # of one tokenizer
SIDES = (("draft", "target"), ("target", "draft"))
# Columns of files that do not name their other side.
_SPELLINGS = dict.fromkeys(("inside", "text_start"), pa.list_(pa.int32()))
_PREFIX_INDEX = {"draft": pa.int32()}


class IdLists(Sequence[tuple[int, ...]]):
    """A list of ids for each id, one after the other in one array, which may be a mapped file.

    Attributes:
        values: All ids; int32.
        offsets: Where each list begins, and where the last one ends; int32 ``[ids + 1]``.
    """

    def __init__(self, values: NDArray[np.int32], offsets: NDArray[np.int32]) -> None:
        """Take over the arrays; nothing is copied."""
        self.values, self.offsets = values, offsets
        self._offsets = offsets.data

    def __getitem__(self, index: Any) -> Any:
        return tuple(self.values[self._offsets[index] : self._offsets[index + 1]].tolist())

    def __len__(self) -> int:
        return len(self._offsets) - 1


@dataclass(frozen=True)
class Spellings:
    """Each id of one side in ids of the other; empty where it has no whole characters."""

    inside: Sequence[tuple[int, ...]]  # inside a text, whatever stands before
    # at the start of a text, with and without the artificial spaces of the two sides
    text_start: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Side:
    """One side of an alignment."""

    counterpart: NDArray[np.int32]  # id of the other side with the same bytes, -1 where none; int32 ``[ids]``
    spellings: Spellings  # each id in ids of the other side
    by_ids: bool  # whether ids are joined on ids, and not through text
    token_bytes: Sequence[bytes]  # bytes of each id
    risks: NDArray[np.float16]
    """Absorption risk of each id, float16 ``[ids]``; NaN for a token that was never last in the sample of `align`.

    P(token, when it is the last token of the text so far, is replaced once the next token's bytes follow). It is
    counted where the text so far ends with a token of the other side, and the next token is the other side's too. So
    ``alignment.target.risks[ids[-1]]`` is how likely the end of a translated draft is to be wrong, unless the draft
    goes one token further. The risks of rare tokens are drawn towards the share of all tokens.
    """


class Alignment(Artifact):
    """An open alignment, memory-mapped and read-only.

    Attributes:
        draft: The draft's side.
        target: The target's side.
        prefix_index: Draft ids in the order of their bytes; int32.
    """

    format, version, roles = "spectool-alignment", 7, ("draft", "target")
    again = "Align again"
    rebuild = "spectool align --draft {draft} --target {target} --corpus {corpus} -o {path}"

    def __init__(self, path: Path) -> None:
        """Open the alignment at ``path``, as `Artifact` says; compare all checksums, and check every invariant.

        Hashing takes about 1 ms for each MB, the checks about 4 ms. They hold for files from strangers with matching
        hashes: translating with what was opened always ends, and takes no more memory than its tables do.
        """
        super().__init__(path)
        for name in self.manifest.files:
            self._file(name, hashed=True)
        self.draft, self.target = (self._side(*sides) for sides in SIDES)
        index = "prefix_index.arrow"
        self.prefix_index: NDArray[np.int32] = self._array(index, _PREFIX_INDEX)["draft"]
        size = len(self.draft.counterpart)
        self._check(checks.outside(index, self.prefix_index, 0, size))
        self._expect(len(self.prefix_index) <= size, f"{len(self.prefix_index)} rows, expected at most {size}", index)
        for (role, other), side, across in zip(
            SIDES, (self.draft, self.target), (self.target, self.draft), strict=True
        ):
            both = (across.counterpart[side.counterpart[side.counterpart != NONE]] != NONE).all()
            self._expect(bool(both), "an id is shared in one direction only", f"{role}_to_{other}.arrow")

    def require(self, draft: Tokenizer, target: Tokenizer) -> tuple[Tokenizer, Tokenizer]:
        """Check that the alignment was built for these two tokenizers, in this direction.

        Returns:
            The two, their token bytes mapped from the alignment.

        Raises:
            FingerprintMismatch: It was not.
            ArtifactError: It has another number of ids, or other bytes for a token that stands for a byte.
        """
        recorded = self.manifest.tokenizers
        rebuild = f"spectool align --draft {draft.name} --target {target.name} -o NEW.align"
        try:
            for role, tokenizer in (("draft", draft), ("target", target)):
                tokenizer.require(recorded[role], str(self.path), rebuild)
        except FingerprintMismatch as error:
            sides = recorded["draft"], recorded["target"]
            if tuple(side["fingerprint"] for side in sides) != (target.fingerprint, draft.fingerprint):
                raise
            names = " and target ".join(side["name"] for side in sides)
            raise FingerprintMismatch(
                f"{self.path}: aligned in the other direction, draft {names}. "
                f"Exchange draft and target, or align this direction: {rebuild}"
            ) from error
        for role, side, tokenizer in (("draft", self.draft, draft), ("target", self.target, target)):
            found = len(side.token_bytes)
            self._expect(found == tokenizer.size, f"{found:,} ids, {tokenizer.name} has {tokenizer.size:,}")
            wrong = next((token for token in tokenizer.byte_tokens if len(side.token_bytes[token]) != 1), None)
            self._expect(wrong is None, f"token {wrong} stands for a byte, and has not one", f"{role}_offsets.npy")
        return draft.with_token_bytes(self.draft.token_bytes), target.with_token_bytes(self.target.token_bytes)

    def _side(self, role: str, other: str) -> Side:
        size, across = (self._size(each) for each in (role, other))
        to, table = f"{role}_to_{other}.arrow", f"{role}_in_{other}.arrow"
        counterpart = self._array(to, {other: pa.int32()}, size)[other]
        self._check(checks.outside(to, counterpart, NONE, across))
        offsets = map_array(self._file(f"{role}_offsets.npy"), "uint32", size + 1)
        token_bytes = TokenBytes(map_array(self._file(f"{role}_token_bytes.npy"), "uint8"), offsets)
        self._check(checks.token_bytes_problems(f"{role}_offsets.npy", offsets, len(token_bytes.blob)))
        lists = [
            IdLists(as_numpy(each.values), as_numpy(each.offsets))
            for each in self._columns(table, _SPELLINGS, size).values()
        ]
        for each in lists:
            self._check(checks.spelling_problems(table, each.values, each.offsets, token_bytes, across))
        risks = map_array(self._file(f"{role}_risks.npy"), "float16", size)
        self._check(checks.risk_problems(f"{role}_risks.npy", risks))
        return Side(counterpart, Spellings(*lists), self._by_ids(role), token_bytes, risks)

    def _by_ids(self, role: str) -> bool:
        figures = self.manifest.statistics.get(role)
        found = figures.get("by_ids") if isinstance(figures, dict) else None
        self._expect(isinstance(found, bool), f"statistics.{role}.by_ids is {found!r}, expected true or false")
        return bool(found)

    def _size(self, role: str) -> int:
        size: int = self.manifest.tokenizers[role]["size"]
        self._expect(0 < size < MOST_IDS, f"the {role} tokenizer has {size} ids, expected 1 to {MOST_IDS}")
        return size

    def _check(self, problems: checks.Problems) -> None:
        """Raise an error that names the first problem, if there is one."""
        for file, problem in problems:
            self._expect(False, problem, file)

    def _array(self, file: str, types: dict[str, Any], size: int | None = None) -> dict[str, NDArray[Any]]:
        return {name: as_numpy(column) for name, column in self._columns(file, types, size).items()}

    def _columns(self, file: str, types: dict[str, Any], size: int | None = None) -> dict[str, Any]:
        columns = read_columns(self._file(file), types)
        found = len(next(iter(columns.values())))
        self._expect(size in (None, found), f"{found} rows, expected {size}", file)
        return columns


def write_alignment(directory: Path, draft: Side, target: Side, prefix_index: NDArray[np.int32]) -> None:
    """Write the data files of an alignment into the scratch directory of `atomic_directory`."""

    def write(file: str, types: dict[str, Any], *columns: Any) -> None:
        arrays = {name: pa.array(values, kind) for (name, kind), values in zip(types.items(), columns, strict=True)}
        write_columns(directory / file, arrays)

    for (role, other), side in zip(SIDES, (draft, target), strict=True):
        token_bytes, spelled = TokenBytes.of(side.token_bytes), side.spellings
        save_array(directory / f"{role}_token_bytes.npy", token_bytes.blob, "uint8")
        save_array(directory / f"{role}_offsets.npy", token_bytes.offsets, "uint32")
        save_array(directory / f"{role}_risks.npy", side.risks, "float16")
        write(f"{role}_to_{other}.arrow", {other: pa.int32()}, side.counterpart)
        write(f"{role}_in_{other}.arrow", _SPELLINGS, spelled.inside, spelled.text_start)
    write("prefix_index.arrow", _PREFIX_INDEX, prefix_index)
