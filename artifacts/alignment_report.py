"""What an alignment's manifest says of its check, and whether the alignment is to be used."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spectool import ArtifactError
from spectool.artifacts.alignment import SIDES
from spectool.artifacts.manifest import Manifest

LOST = 0.01  # share of places that may differ before drafts count as lost


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
