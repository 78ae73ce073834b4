"""What drafting did in one generation or replay, and the ratios that users compare."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectool.runtime.policy.policy import Policy


@dataclass(slots=True, repr=False)
class DraftStatistics:
    """What drafting did so far. The loop adds each pass, and then each token as it yields it.

    A stop string, or the reader, can end the text before all tokens of the last pass are yielded. The rest count
    neither as tokens nor as accepted.

    Attributes:
        passes: Target forward passes after the prompt (verification steps).
        tokens: Tokens yielded after the prompt.
        proposed: Draft tokens sent to verification.
        accepted: Tokens yielded that had been drafted.
        drafted_passes: Passes that verified at least one draft token.
        proposed_by: Proposed draft tokens by the drafter's name.
        accepted_by: Accepted draft tokens by the drafter's name.
        failures: Names and errors of drafters that failed and were switched off, one for each generation.
        policy: What chooses the drafts of the generation; None where their length is fixed.
    """

    passes: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    drafted_passes: int = 0
    proposed_by: Counter[str] = field(default_factory=Counter)
    accepted_by: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    policy: "Policy | None" = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Such as ``<DraftStatistics: 24 tokens in 12 passes (2.00 per pass), 12 of 30 draft tokens accepted>``."""
        return (
            f"<DraftStatistics: {self.tokens} tokens in {self.passes} passes ({self.tokens_per_pass:.2f} per pass), "
            f"{self.accepted} of {self.proposed} draft tokens accepted>"
        )

    def record_pass(self, source: str, proposed: int) -> None:
        """Add a verification of ``proposed`` draft tokens, whose tokens are yielded later."""
        self.passes += 1
        if proposed:
            self.drafted_passes += 1
            self.proposed += proposed
            self.proposed_by[source] += proposed

    def record_tokens(self, source: str, count: int, drafted: int) -> None:
        """Add ``count`` tokens that are yielded, ``drafted`` of which ``source`` has drafted."""
        self.tokens += count
        if drafted:
            self.accepted += drafted
            self.accepted_by[source] += drafted

    @property
    def tokens_per_pass(self) -> float:
        """Committed tokens / target passes: the hardware-independent speed-up (1.0 = plain decoding)."""
        return self.tokens / self.passes if self.passes else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / proposed draft tokens (alpha)."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def coverage(self) -> float:
        """Share of passes that had a proposal."""
        return self.drafted_passes / self.passes if self.passes else 0.0

    @property
    def mean_accepted_length(self) -> float:
        """Accepted draft tokens / passes with a proposal (MAL)."""
        return self.accepted / self.drafted_passes if self.drafted_passes else 0.0
