"""What drafts would gain on a machine: a replayed text, by a curve of what its passes cost. A range, never a point."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from spectool import SpectoolError
from spectool.measure.chips import ChipCosts, chip_of, published, rows_for
from spectool.measure.replay import replay
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.policy.curve import FREE, PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.runtime.settings import MAX_DRAFT_TOKENS

# What a pass with drafts takes more than a plain one may turn out to be these times as much as the curve says:
PUBLISHED = 0.8, 1.25
MEASURED = 0.9, 1.25  # the least of several times, which is hardly ever too long
ONE_MATRIX = 0.6, 1.1  # for a whole model, because attention and norms are flatter than a matrix
_FAR = 3  # times the size that was measured: another kind of model
_SHORT = 1024  # tokens of context after which a pass still takes about as long as after none
APART = 0.04  # of a text's time on this machine; without it, two of four runs of benchmarks/predicted.py lay 1% outside
_LOOP = 0.03  # plain passes that a cycle may take besides: looking up, and reading the tokens
ALWAYS_UNKNOWN = (
    "heat: a hot machine takes longer for passes with drafts",
    "text: what your model writes may be easier or harder to guess than this",
)
_GAIN = 1.03  # the middle of a range that is called a gain
_EXAMPLE = 20  # tokens a second, where nobody knows how many it would be


class Machine(NamedTuple):
    """What passes cost somewhere."""

    curve: PassCurve = FREE
    shares: tuple[float, float] = 1.0, 1.0  # of what passes take more than plain ones: by which it may be wrong
    row: ChipCosts | None = None  # what was published
    context: int = 0  # the longest that was measured
    noise: float = 0.0  # of the time that a text takes, as a share of it
    plain: float | None = None  # tokens a second without drafts, after a short context, if that is known

    def not_known(self, size: float | None, context: int) -> Iterator[str]:
        """What may differ from the measurement, in words."""
        measured = self.row and self.row.parameters
        if self.row and self.row.scope == "matrix":
            yield "model: where one matrix was measured, --size and --context change nothing; the rest depends on them"
        elif context > self.context:
            yield f"context: measured after {self.context:,} tokens; after {context:,}, passes over more rows cost more"
        if measured and not size:
            yield "size: give yours with --size, which leaves out measurements of far other sizes"
        elif measured and size and not _near(size, self.row):
            yield f"size: measured with {measured:g} billion weights, not {size:g}"


class Forecast(NamedTuple):
    """The speed that is expected, in times of plain decoding, and what was counted."""

    low: float
    high: float
    counts: DraftStatistics

    @property
    def range(self) -> str:
        """Both ends."""
        return f"{self.low:.2f} to {self.high:.2f}"

    def sentence(self, plain: float = _EXAMPLE) -> str:
        """What to expect of a model that writes ``plain`` tokens a second without drafts."""
        if self.low + self.high < 2 * _GAIN:
            return f"No gain expected: {self.range} times as fast as plain decoding."
        times = round(_EXAMPLE * (self.low + self.high) / 2) / _EXAMPLE
        return (
            f"About {times:g} times as fast: {plain:.3g} tokens a second would become {times * plain:.3g}. "
            f"The range is {self.range}."
        )


def machines_on(
    chip: str, bits: int, mode: str, *, experts: bool = False, size: float | None = None, context: int = 0
) -> dict[str, Machine]:
    """What was published of passes on a chip, or on those of its generation, by source.

    Of a model of that ``size``, in billions of weights: other sizes are left out where there is anything else, and one
    matrix where a whole model was measured after about as many tokens.

    Raises:
        SpectoolError: Nothing was.
    """
    if not (name := chip_of(chip)):
        raise SpectoolError(f"--on: expected a chip of Apple's, such as M2 or 'M4 Pro', got {chip!r}")
    known = rows_for(name, experts=experts)
    rows = [row for row in known if (row.bits, row.mode) == (bits, mode)]
    if not rows:
        forms = ", ".join(dict.fromkeys(row.form for row in known)) or "none"
        among = (row.chips for row in published() if (row.bits, row.mode, row.experts) == (bits, mode, experts))
        chips = ", ".join(dict.fromkeys(chain.from_iterable(among))) or "none"
        raise SpectoolError(
            f"nobody has published what passes of {bits}-bit {mode} weights{' of experts' * experts} cost on {name} or "
            f"its generation, so no figure is guessed. Published of its generation: {forms}; with such weights: "
            f"{chips}. `spectool doctor` measures your own machine"
        )
    if size is not None:
        rows = [row for row in rows if row.parameters is None or _near(size, row)] or rows
        if any(_near(size, row) and min(row.curves) <= max(_SHORT, context) for row in rows):
            rows = [row for row in rows if row.scope != "matrix"]
    shares = {"pass": PUBLISHED, "matrix": ONE_MATRIX}
    return {row.title: Machine(row.curve, shares[row.scope], row, max(row.curves)) for row in rows}


def _near(size: float, row: ChipCosts | None) -> bool:
    """Whether a model of that many billions of weights was measured, or one of another size that is not far off."""
    return row is not None and row.parameters is not None and 1 / _FAR <= size / row.parameters <= _FAR


def predict(
    documents: Sequence[Sequence[int]],
    drafter: Drafter,
    machine: Machine,
    context: int = 0,
    progress: Callable[[int], object] = lambda tokens: None,
    prompts: Iterable[Sequence[int]] | None = None,
) -> Forecast:
    """Replay documents, each after its prompt and ``context`` tokens, with the policy that generates here."""
    more = 0.0  # plain passes that passes with drafts take more than plain ones

    def on_cycle(tokens: int, cost: float) -> None:
        nonlocal more
        more += cost - 1.0
        progress(tokens)

    policy = Policy(machine.curve) if machine.curve is not FREE else MAX_DRAFT_TOKENS
    counts = replay(documents, drafter, policy, on_cycle, prompts, context)
    cheap, dear = (counts.passes + share * more for share in machine.shares)
    low, high = counts.tokens / (dear + _LOOP * counts.passes), counts.tokens / max(1.0, cheap)
    return Forecast(low / (1 + machine.noise), high * (1 + machine.noise), counts)
