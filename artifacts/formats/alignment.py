"""The alignment format: how two tokenizers spell the same bytes, in both directions.

For each side (``draft``, ``target``), with the other one as ``<other>``:

    <side>_to_<other>.arrow    <other> int32[ids]          id with the same surface, -1 where none
    <side>_in_<other>.arrow    inside, after_space, text_start list<int32>[ids]   spellings in the other's ids
    <side>_surfaces.npy        uint8[bytes]                 the bytes of all tokens, by id
    <side>_offsets.npy         uint32[ids + 1]              where those of each token begin
    <side>_tokens.arrow        left, right, rank int32[ids]         last merge of each token
    <side>_merges.arrow        pair int64, rank, result int32[merges]   all merges, by pair
    <side>_alphabet.arrow      start uint32, class uint8[runs]      classes of characters that splits depend on
    <side>_boundaries.arrow    verdict uint8[(classes + 1) * classes ** 2]   what the pre-tokenizer does between them

and once:

    prefix_index.arrow         draft int32[ids with bytes]  draft ids in the order of their surfaces

The token, merge, alphabet and boundary files are absent for a side without the merge-site lemma. The manifest's
statistics hold the report on the pair.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spectool import ArtifactError, FingerprintMismatch
from spectool.artifacts.canonical.alphabet import Alphabet
from spectool.artifacts.canonical.by_ids import CanonicalIds
from spectool.artifacts.canonical.by_text import CanonicalText
from spectool.artifacts.canonical.merges import UNREACHABLE, MergeTable
from spectool.artifacts.canonical.pretokens import JOIN, BoundaryTable
from spectool.artifacts.formats.arrays import map_array, save_array
from spectool.artifacts.formats.columns import as_numpy, read_columns, write_columns
from spectool.artifacts.manifest import Artifact, read_manifest
from spectool.artifacts.tokenizer.surfaces import Surfaces
from spectool.artifacts.tokenizer.tokenizer import Tokenizer

FORMAT = "spectool-alignment"
VERSION = 4
NONE = -1
SIDES = (("draft", "target"), ("target", "draft"))
# Columns of files that do not name their other side.
_SPELLINGS = dict.fromkeys(("inside", "after_space", "text_start"), pa.list_(pa.int32()))
_TOKENS = dict.fromkeys(("left", "right", "rank"), pa.int32())
_MERGES = {"pair": pa.int64(), "rank": pa.int32(), "result": pa.int32()}
_ALPHABET = {"start": pa.uint32(), "class": pa.uint8()}
_BOUNDARIES = {"verdict": pa.uint8()}
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
    after_space: Sequence[tuple[int, ...]]  # a space and the token, spelled together
    # at the start of a text, with and without the artificial spaces of the two sides
    text_start: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Side:
    """One side of an alignment."""

    counterpart: NDArray[np.int32]  # id of the other side with the same surface, -1 where none; int32 ``[ids]``
    spellings: Spellings  # each id in ids of the other side
    merges: MergeTable | None  # merge table; None where the lemma does not hold
    boundaries: BoundaryTable | None  # `boundary_table`; None likewise
    surfaces: Sequence[bytes]  # surface of each id

    def engine(self, tokenizer: Tokenizer) -> CanonicalIds | CanonicalText:
        """Return what joins ids of this side, whose tokenizer is ``tokenizer``."""
        if self.merges is None or self.boundaries is None:
            return CanonicalText(tokenizer)
        return CanonicalIds(tokenizer, self.merges, self.boundaries)


class Alignment(Artifact):
    """An open alignment, memory-mapped and read-only.

    Attributes:
        draft: The draft's side.
        target: The target's side.
        prefix_index: Draft ids in the order of their surfaces; int32.
    """

    format, versions, roles = FORMAT, (VERSION,), ("draft", "target")
    again = "Align again"
    rebuild = "spectool align --draft {draft} --target {target} --corpus {corpus} -o {path}"

    def __init__(self, path: Path) -> None:
        """Open the alignment at ``path``, as `Artifact` says, and compare all checksums.

        Hashing takes about 1 ms for each MB: figures of a damaged alignment would look like any others.
        """
        super().__init__(path)
        for name in self.manifest.files:
            self._file(name, hashed=True)
        self.draft, self.target = (self._side(*sides) for sides in SIDES)
        self.prefix_index: NDArray[np.int32] = self._array("prefix_index.arrow", _PREFIX_INDEX)["draft"]

    def require(self, draft: Tokenizer, target: Tokenizer) -> tuple[Tokenizer, Tokenizer]:
        """Check that the alignment was built for these two tokenizers, in this direction.

        Returns:
            The two, their surfaces mapped from the alignment.

        Raises:
            FingerprintMismatch: It was not.
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
        return draft.knowing(surfaces=self.draft.surfaces), target.knowing(surfaces=self.target.surfaces)

    def _problems(self) -> Iterator[tuple[str, str]]:
        sizes = {role: self.manifest.tokenizers[role]["size"] for role, _ in SIDES}
        for (role, other), side, across in zip(
            SIDES, (self.draft, self.target), (self.target, self.draft), strict=True
        ):
            to = f"{role}_to_{other}.arrow"
            yield from _outside(to, side.counterpart, NONE, sizes[other])
            if (across.counterpart[side.counterpart[side.counterpart != NONE]] == NONE).any():
                yield to, "an id is shared in one direction only"
            assert isinstance(side.surfaces, Surfaces)
            begins = side.surfaces.offsets
            if begins[0] != 0 or (np.diff(begins.astype(np.int64)) < 0).any() or begins[-1] != len(side.surfaces.blob):
                yield f"{role}_offsets.npy", "surfaces out of order"
            for column in (side.spellings.inside, side.spellings.after_space, side.spellings.text_start):
                assert isinstance(column, IdLists)
                yield from _outside(f"{role}_in_{other}.arrow", column.values, 0, sizes[other])
            if side.merges is not None and side.boundaries is not None:
                yield from _merge_problems(role, side.merges, side.boundaries, sizes[role])
        yield from _outside("prefix_index.arrow", self.prefix_index, 0, sizes["draft"])

    def _side(self, role: str, other: str) -> Side:
        size = self.manifest.tokenizers[role]["size"]
        to, table = f"{role}_to_{other}.arrow", f"{role}_in_{other}.arrow"
        counterpart = self._array(to, {other: pa.int32()}, size)[other]
        lists = self._columns(table, _SPELLINGS, size).values()
        spellings = Spellings(*(IdLists(as_numpy(each.values), as_numpy(each.offsets)) for each in lists))
        offsets = map_array(self._file(f"{role}_offsets.npy"), "uint32", size + 1)
        surfaces = Surfaces(map_array(self._file(f"{role}_surfaces.npy"), "uint8"), offsets)
        merge_file = f"{role}_tokens.arrow"
        if merge_file not in self.manifest.files and not self.manifest.statistics.get(role, {}).get("lemma", True):
            return Side(counterpart, spellings, None, None, surfaces)
        tokens = self._array(merge_file, _TOKENS, size)
        merges = self._array(f"{role}_merges.arrow", _MERGES)
        alphabet = Alphabet(*self._array(f"{role}_alphabet.arrow", _ALPHABET).values())
        shape = alphabet.size + 1, alphabet.size, alphabet.size
        verdicts = self._array(f"{role}_boundaries.arrow", _BOUNDARIES, math.prod(shape))["verdict"]
        boundaries = BoundaryTable(alphabet, verdicts.reshape(shape))
        return Side(counterpart, spellings, MergeTable(*tokens.values(), *merges.values()), boundaries, surfaces)

    def _array(self, file: str, types: dict[str, Any], size: int | None = None) -> dict[str, NDArray[Any]]:
        return {name: as_numpy(column) for name, column in self._columns(file, types, size).items()}

    def _columns(self, file: str, types: dict[str, Any], size: int | None = None) -> dict[str, Any]:
        columns = read_columns(self._file(file), types)
        found = len(next(iter(columns.values())))
        self._expect(size in (None, found), f"{found} rows, expected {size}", file)
        return columns


def alignments_of(
    drafts: Mapping[str, Tokenizer], target: Tokenizer, alignments: Sequence[Path]
) -> dict[str, Path | None]:
    """Return the alignment of every draft, found by the fingerprints of both sides.

    Raises:
        ArtifactError: An alignment is none, or is for none of the drafts.
    """
    found: dict[str, Path | None] = dict.fromkeys(drafts)
    for path in alignments:
        sides = read_manifest(path).tokenizers
        both = tuple(sides[role]["fingerprint"] if role in sides else None for role in ("draft", "target"))
        fitting = [name for name, draft in drafts.items() if (draft.fingerprint, target.fingerprint) == both]
        if not fitting:
            named = (
                " and ".join(sides[role]["name"] for role in ("draft", "target") if role in sides) or "no tokenizers"
            )
            raise ArtifactError(
                f"{path}: aligns {named}, expected one of {', '.join(d.name for d in drafts.values())} and "
                f"{target.name}. Make one: spectool align --draft DRAFT --target {target.name} -o pair.align"
            )
        found |= dict.fromkeys(fitting, path)
    return found


def _outside(file: str, values: NDArray[Any], low: int, high: int) -> Iterator[tuple[str, str]]:
    """Yield a problem where values are no ids from ``low`` to below ``high``."""
    if values.min(initial=low) < low or values.max(initial=low) >= high:
        yield file, f"ids outside {low} to {high - 1}"


def _merge_problems(role: str, table: MergeTable, boundaries: BoundaryTable, size: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with ids, the order of merges, merge trees that do not end in symbols, and verdicts."""
    tokens, merges = f"{role}_tokens.arrow", f"{role}_merges.arrow"
    for part in (table.left, table.right):
        yield from _outside(tokens, part, UNREACHABLE, size)
    for part in (table.results, table.pairs >> 32, table.pairs & 0xFFFFFFFF):
        yield from _outside(merges, part, 0, size)
    if (np.diff(table.pairs) <= 0).any():
        yield merges, "pairs out of order"
    inner = table.left >= 0
    if (inner != (table.right >= 0)).any():
        yield tokens, "a token has one part only"
    whole = ~inner  # trees found to end: those of tokens whose parts end
    while (more := inner & ~whole & whole[table.left] & whole[table.right]).any():
        whole |= more
    if not whole.all():
        yield tokens, f"token {int(np.argmin(whole))} is part of itself"
    if boundaries.verdicts.max(initial=0) > JOIN:
        yield f"{role}_boundaries.arrow", f"verdicts above {JOIN}"
    starts = boundaries.alphabet.starts
    if starts[0] != 0 or (np.diff(starts.astype(np.int64)) <= 0).any():
        yield f"{role}_alphabet.arrow", "runs out of order"


def write_alignment(directory: Path, draft: Side, target: Side, prefix_index: NDArray[np.int32]) -> None:
    """Write the data files of an alignment into the scratch directory of `replacing.writing`."""

    def write(file: str, types: dict[str, Any], *columns: Any) -> None:
        arrays = {name: pa.array(values, kind) for (name, kind), values in zip(types.items(), columns, strict=True)}
        write_columns(directory / file, arrays)

    for (role, other), side in zip(SIDES, (draft, target), strict=True):
        surfaces, spelled = Surfaces.of(side.surfaces), side.spellings
        save_array(directory / f"{role}_surfaces.npy", surfaces.blob, "uint8")
        save_array(directory / f"{role}_offsets.npy", surfaces.offsets, "uint32")
        write(f"{role}_to_{other}.arrow", {other: pa.int32()}, side.counterpart)
        write(f"{role}_in_{other}.arrow", _SPELLINGS, spelled.inside, spelled.after_space, spelled.text_start)
        if side.merges is None or side.boundaries is None:
            continue
        table, alphabet = side.merges, side.boundaries.alphabet
        write(f"{role}_tokens.arrow", _TOKENS, table.left, table.right, table.rank)
        write(f"{role}_merges.arrow", _MERGES, table.pairs, table.ranks, table.results)
        write(f"{role}_alphabet.arrow", _ALPHABET, alphabet.starts, alphabet.classes)
        write(f"{role}_boundaries.arrow", _BOUNDARIES, side.boundaries.verdicts.ravel())
    write("prefix_index.arrow", _PREFIX_INDEX, prefix_index)
