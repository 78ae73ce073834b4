"""The alignment format: what the tokens of two tokenizers are in bytes, and which they share.

For each side (``draft``, ``target``), with the other one as ``<other>``:

    <side>_to_<other>      int32[ids]      id of the other side with the same bytes, -1 where none
    <side>_token_bytes     lists of uint8  the bytes of the token
    <side>_risks           float16[ids]    how often following text merges the token away, NaN unknown

and once:

    prefix_index           int32[ids with bytes]   draft ids in the order of their bytes

Lists, one for each id, are the values of all of them in one array, and ``<name>_offsets``, uint32[ids + 1], with the
place at which each begins and the last one ends. The manifest's statistics hold the report on the pair, whether the ids
of each side are joined on ids, and what the check of each side found.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import ArtifactError
from spectool.artifacts.artifact import Artifact
from spectool.artifacts.manifest import Manifest
from spectool.tokenization.token_bytes import TokenBytes
from spectool.tokenization.tokenizer import MOST_IDS, Tokenizer

NONE = -1
SIDES = (("draft", "target"), ("target", "draft"))
LOST = 0.01  # share of places that may differ before drafts count as lost
LONGEST_TOKEN = 4096  # bytes of one token; of known vocabularies the longest has 1,024


@dataclass(frozen=True)
class Side:
    """One side of an alignment."""

    counterpart: NDArray[np.int32]  # id of the other side with the same bytes, -1 where none; int32 ``[ids]``
    by_ids: bool  # whether ids are joined on ids, and not through text
    token_bytes: Sequence[bytes]  # bytes of each id
    risks: NDArray[np.float16]
    """Absorption risk of each id, float16 ``[ids]``; NaN for a token that was never last in the sample of `align`.

    It is P(the token, as the last one of a text that ends with a token of the other side, is replaced once the other
    side's next token follows): how likely the end of a translated draft is to be wrong. Those of rare tokens are drawn
    towards the share of all tokens.
    """


class Alignment(Artifact):
    """An open alignment, read into memory.

    Attributes:
        draft: The draft's side.
        target: The target's side.
        prefix_index: Draft ids in the order of their bytes; int32.
    """

    format, version, roles = "spectool-alignment", 10, ("draft", "target")
    again = "Align again: spectool align"

    def __init__(self, path: Path) -> None:
        """Open the alignment at ``path``, as `Artifact` says, and check every invariant, about 4 ms for each MB.

        The checks hold for files from strangers with a matching hash: translating with what was opened always ends, and
        takes no more memory than its tables do.
        """
        super().__init__(path)
        self.draft, self.target = (self._side(*sides) for sides in SIDES)
        self.prefix_index = self._ids("prefix_index", 0, size := len(self.draft.counterpart))
        rows = len(self.prefix_index)
        self._expect(rows <= size, f"{rows} rows, expected at most {size}", "prefix_index")
        forth, back = self.draft.counterpart, self.target.counterpart
        for name, there, home in (("draft_to_target", forth, back), ("target_to_draft", back, forth)):
            both = (home[there[there != NONE]] != NONE).all()
            self._expect(bool(both), "an id is shared in one direction only", name)

    def require(self, draft: Tokenizer, target: Tokenizer) -> tuple[Tokenizer, Tokenizer]:
        """Check that the alignment was built for these two tokenizers, in this direction.

        Returns:
            The two, with the token bytes of the alignment.

        Raises:
            FingerprintMismatch: It was not.
            ArtifactError: It has another number of ids, or other bytes for a token that stands for a byte.
        """
        rebuild = shlex.join(["spectool", "align", "--draft", draft.name, "--target", target.name, "-o", "NEW.align"])
        for role, side, tokenizer in (("draft", self.draft, draft), ("target", self.target, target)):
            tokenizer.require(self.manifest.tokenizers[role], f"{self.path}: its {role} side", rebuild)
            found = len(side.token_bytes)
            self._expect(found == tokenizer.size, f"{found:,} ids, {tokenizer.name} has {tokenizer.size:,}")
            single = sorted(tokenizer.byte_tokens)
            for token, own in zip(single, tokenizer.token_bytes_of(single), strict=True):
                problem = f"token {token} has the bytes {side.token_bytes[token]!r}, {tokenizer.name} writes {own!r}"
                self._expect(side.token_bytes[token] == own, problem, f"{role}_token_bytes_offsets")
        return draft.with_token_bytes(self.draft.token_bytes), target.with_token_bytes(self.target.token_bytes)

    def _side(self, role: str, other: str) -> Side:
        size, across = (self.manifest.tokenizers[each]["size"] for each in (role, other))
        self._expect(0 < size < MOST_IDS, f"the {role} tokenizer has {size} ids, expected 1 to {MOST_IDS}")
        counterpart = self._ids(f"{role}_to_{other}", NONE, across, size)
        written = f"{role}_token_bytes"
        values, offsets = self._array(written, "uint8"), self._array(f"{written}_offsets", "uint32", size + 1)
        in_order = offsets[0] == 0 and (offsets[1:] >= offsets[:-1]).all() and offsets[-1] == len(values)
        self._expect(bool(in_order), "lists out of order", written)
        lengths = np.diff(offsets)
        longest = int(lengths.argmax())
        problem = f"token {longest} has {lengths[longest]:,} bytes, expected at most {LONGEST_TOKEN:,}"
        self._expect(bool(lengths[longest] <= LONGEST_TOKEN), problem, f"{written}_offsets")
        risks = self._array(f"{role}_risks", "float16", size)
        are_shares = np.isnan(risks) | ((risks >= 0) & (risks <= 1))
        self._expect(bool(are_shares.all()), "risks outside 0 to 1", f"{role}_risks")
        figures = self.manifest.statistics.get(role)
        by_ids = figures.get("by_ids") if isinstance(figures, dict) else None
        self._expect(isinstance(by_ids, bool), f"statistics.{role}.by_ids is {by_ids!r}, expected true or false")
        return Side(counterpart, bool(by_ids), TokenBytes(values, offsets), risks)

    def _ids(self, name: str, low: int, above: int, size: int | None = None) -> NDArray[np.int32]:
        """An array of ids from ``low`` to below ``above``; ``size`` is its length, None for any."""
        ids = self._array(name, "int32", size)
        fits = ids.min(initial=low) >= low and ids.max(initial=low) < above
        self._expect(bool(fits), f"ids outside {low} to {above - 1}", name)
        return ids


def alignment_arrays(sides: Mapping[str, Side]) -> dict[str, NDArray[Any]]:
    """The arrays of an alignment, by the role of each side."""
    in_order = sorted((raw, token) for token, raw in enumerate(sides["draft"].token_bytes) if raw)
    arrays: dict[str, NDArray[Any]] = {"prefix_index": np.array([token for _, token in in_order], np.int32)}
    for role, other in SIDES:
        side = sides[role]
        arrays[f"{role}_to_{other}"] = np.ascontiguousarray(side.counterpart, np.int32)
        together = TokenBytes.of(side.token_bytes)
        arrays[f"{role}_token_bytes"], arrays[f"{role}_token_bytes_offsets"] = together.values, together.offsets
        arrays[f"{role}_risks"] = np.ascontiguousarray(side.risks, np.float16)
    # Where numbers are mapped, they are aligned.
    return dict(sorted(arrays.items(), key=lambda each: -each[1].itemsize))


@dataclass
class JoinCheck:
    """Places at which joined ids of one side were compared with its tokenizer's own."""

    places: int = 0
    different: int = 0
    example: str = ""  # the first difference, in words; empty where there is none

    @property
    def share(self) -> float:
        """Places that differ / places."""
        return self.different / max(1, self.places)

    def __str__(self) -> str:
        """What differs, in words."""
        example = f", for example {self.example}" if self.example else ""
        return f"{self.different:,} of {self.places:,} places ({self.share:.1%}){example}"


def require_checked(path: Path, manifest: Manifest, note: Callable[[str], object] = lambda message: None) -> None:
    """Refuse an alignment whose joined ids differed from the tokenizers' own at more than a share of `LOST`.

    Smaller differences are passed to ``note``, one sentence each.

    Raises:
        ArtifactError: One of the two sides differed at more than that share of places.
    """
    for side, name, found in checked_sides(manifest):
        what = "committed text translated to the draft" if side == "draft" else "proposals translated to the target"
        message = f"{path}: {what} ({name}): ids differ from the tokenizer's own at {found}"
        if found.share > LOST:
            raise ArtifactError(
                f"{message}. Expected at most {LOST:.0%}. The output stays the target's own, but drafts are lost "
                "there. Use a draft with another tokenizer, or report this one"
            )
        if found.different:
            note(f"{message}. The output stays the target's own; at these places drafts are lost")


def checked_sides(manifest: Manifest) -> list[tuple[str, str, JoinCheck]]:
    """Each side of an alignment: its role, its name and what was found; of the draft the worse of check and sample.

    Raises:
        ArtifactError: The manifest lacks a figure, or has one that cannot be.
    """
    sides, statistics = [], manifest.statistics
    try:
        for side, other in SIDES:
            replayed, recorded = statistics[f"{other}_to_{side}"], statistics[side]["check"]
            found = JoinCheck(int(recorded["places"]), int(recorded["different"]), str(recorded["example"]))
            if side == "draft":  # the sample was joined as committed text is
                sample = JoinCheck(int(replayed["other_tokens"]), int(replayed["different_tokens"]))
                found = max(found, sample, key=lambda check: check.share)
            if not 0 <= found.different <= found.places:
                raise ValueError(f"{found.different} of {found.places} places")
            sides.append((side, manifest.tokenizers[side]["name"], found))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ArtifactError(
            f"the check in this alignment's manifest lacks a figure or has a wrong one ({error}). Align again"
        ) from error
    return sides
