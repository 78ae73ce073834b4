"""What passes and drafts cost on this machine, learnt from their own times.

Times are noisy: the first pass of a shape compiles, other programs interfere, contexts grow. So every figure is the
median of a few recent samples, and of two samples the lower one.
"""

from collections import defaultdict, deque
from itertools import pairwise
from statistics import median_low

WINDOW = 7  # samples that a median is taken over
STALE = 256  # passes after which a size has to be measured again
_PROPOSALS = 32  # latest proposals that tell what drafting costs
_CAUGHT_UP = 8  # committed tokens that a drafter reads at no measurable cost


class PassTimes:
    """Seconds of a target pass by its number of rows (tokens): ``level * relative cost``.

    The relative costs are kept from one generation to the next. The first passes of a generation are compared with
    them, and set the level: a longer context or a busy machine makes passes of all sizes slower.

    Attributes:
        curve: Expected seconds by rows, shape [longest + 1]; index 0 is not used. It is interpolated between measured
            sizes, and rises beyond them as it did from the smallest size to the largest.
    """

    def __init__(self, longest: int) -> None:
        """Expect passes over 1 to ``longest`` rows."""
        self.curve = [0.0] * (longest + 1)
        self._samples: list[deque[float]] = [deque(maxlen=WINDOW) for _ in self.curve]  # seconds / level
        self._seen = [0] * (longest + 1)  # number of the latest pass of each size
        self._relative: dict[int, float] = {}  # medians of the samples, from the second one on
        self._level = 1.0
        self._ratios = [1.0] * WINDOW  # seconds / relative cost of this generation's first passes
        self._passes = 0

    def begin(self) -> None:
        """Begin another generation, whose context may be longer or shorter."""
        if self._relative:
            self._ratios.clear()

    @property
    def settled(self) -> bool:
        """Whether the level of this generation is known. One sample is not enough, because it may be disturbed."""
        return len(self._ratios) > 1

    def add(self, rows: int, seconds: float) -> None:
        """Add the time of a pass over ``rows`` (1 to the longest)."""
        self._passes += 1
        relative, samples = self._relative.get(rows), self._samples[rows]
        if relative and len(self._ratios) < WINDOW:
            self._ratios.append(seconds / relative)
            self._level = median_low(self._ratios)
        if not self.settled:
            return
        if relative and self._passes - self._seen[rows] > STALE:
            samples.clear()
            samples.append(relative)
        samples.append(seconds / self._level)
        self._seen[rows] = self._passes
        if len(samples) > 1:
            self._relative[rows] = median_low(samples)

    def known(self, rows: int) -> bool:
        """Whether passes over ``rows`` were measured twice, and recently."""
        return rows in self._relative and self._passes - self._seen[rows] <= STALE

    def measured(self) -> dict[int, float]:
        """Return the curve at the sizes that were measured at least twice."""
        return {rows: self.curve[rows] for rows in sorted(self._relative)}

    def at_least(self) -> list[float]:
        """Return the curve with each size that is not known as cheap as the next smaller one that is."""
        curve = self.curve[:]
        for rows in range(2, len(curve)):
            if not self.known(rows):
                curve[rows] = min(curve[rows], curve[rows - 1])
        return curve

    def update(self) -> None:
        """Draw the curve through the medians; there must be one."""
        points = [(rows, self._level * cost) for rows, cost in sorted(self._relative.items())]
        for i in range(
            len(points) - 1, 0, -1
        ):  # more rows are not cheaper: a smaller size that costs more was disturbed
            points[i - 1] = points[i - 1][0], min(points[i - 1][1], points[i][1])
        (first, base), (last, top) = points[0], points[-1]
        self.curve[1 : first + 1] = [base] * first
        for (low, start), (high, end) in pairwise(points):
            for rows in range(low + 1, high + 1):
                self.curve[rows] = start + (end - start) * (rows - low) / (high - low)
        slope = (top - base) / max(1, last - first)
        for rows in range(last + 1, len(self.curve)):
            self.curve[rows] = top + slope * (rows - last)


class DraftTimes:
    """Seconds of a drafter in a cycle: a fixed part, a part for each token, and what catching up costs.

    Attributes:
        fixed: Seconds of a cycle in which it was asked, however little it proposed.
        per_token: Seconds of each token proposed.
        per_missed: Seconds of each token that it has to read first: of the prompt, or committed while it was not asked.
    """

    def __init__(self) -> None:
        """Begin without any sample."""
        self.fixed = self.per_token = self.per_missed = 0.0
        self._prepared = False
        self._samples: deque[tuple[int, float]] = deque(maxlen=_PROPOSALS)  # tokens proposed, seconds
        self._catching_up: deque[float] = deque(maxlen=WINDOW)

    def __call__(self, tokens: int, missed: int = 0) -> float:
        """Return the expected seconds of a proposal of ``tokens`` after ``missed`` tokens."""
        return self.fixed + self.per_token * tokens + self.per_missed * missed

    def add(self, tokens: int, missed: int, seconds: float) -> None:
        """Add the time of a proposal of ``tokens``, before which the drafter had ``missed`` tokens to read.

        The very first one prepares the drafter and does not count.
        """
        expected = self(tokens)
        if self._samples and missed > _CAUGHT_UP:
            if seconds > expected / 2:
                self._catching_up.append(max(0.0, seconds - expected) / missed)
                if len(self._catching_up) > 1:
                    self.per_missed = median_low(self._catching_up)
                return
            # Much faster than expected even though it had to catch up, so the machine is no longer busy. A drafter that
            # seems too slow is asked so rarely that it nearly always has to catch up.
            faster = seconds / expected
            self._samples = deque([(size, time * faster) for size, time in self._samples], maxlen=_PROPOSALS)
            self._catching_up.clear()
            self.per_missed *= faster
        if self._prepared:
            self._samples.append((tokens, seconds))
        self._prepared = True

    def update(self) -> None:
        """Put a line through the medians by size, each weighted by its samples; neither part is negative."""
        if not self._samples:
            return
        by_size = defaultdict[int, list[float]](list)
        for tokens, seconds in self._samples:
            by_size[tokens].append(seconds)
        points = [(tokens, median_low(times), len(times)) for tokens, times in by_size.items()]
        size = sum(tokens * count for tokens, _, count in points) / len(self._samples)
        time = sum(seconds * count for _, seconds, count in points) / len(self._samples)
        spread = sum(count * (tokens - size) ** 2 for tokens, _, count in points)
        most = time / size if size else 0.0
        slope = sum(count * (tokens - size) * (seconds - time) for tokens, seconds, count in points)
        self.per_token = min(max(0.0, slope / spread), most) if spread else most
        self.fixed = time - self.per_token * size
