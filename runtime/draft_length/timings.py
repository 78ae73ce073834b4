"""What passes and drafts cost on this machine, learnt from their own times.

Times are noisy: the first passes of a shape compile, other programs interfere, and contexts grow. So every figure is
the median of a few recent samples (of two, the lower one), and is trusted from its second sample on.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import median_low

RECENT_SAMPLES = 7  # that a median is taken over
PLAIN_SAMPLES = 14  # the same of plain passes, with which everything is compared
OUTLIER = 3.0  # what takes more than this many times the expected seconds was disturbed
STALE = 256  # cycles after which a figure is to be measured again
_LAG = 8  # up to this many missed tokens, a proposal costs what it always costs
_RECENT = 32  # proposals that count; earlier ones may have been of a busier machine or a shorter context
_FADING = 0.97  # weight of a figure, from cycle to cycle, where two cannot both be right
_HIDDEN = 1.25  # times as long as other passes over one token: one that began ahead has waited for the caller
_LEAST_WEIGHT = 1e-9
_FASTER = 2.0  # times as fast as expected: from here on it is no accident


class PassTimes:
    """Seconds of a target pass by the number of tokens in it, 1 to ``longest``.

    A pass over one token that begins ahead, before the token of the pass before it is read, has a place of its own, 0,
    because it can take less time: a GPU goes on while the next pass is prepared.

    Sizes that this generation has not measured yet take the times of earlier generations, scaled by how this one
    compares with them, because a longer context makes passes of every size slower.

    Attributes:
        curve: Expected seconds by tokens, shape [longest + 1]. Between measured sizes it is interpolated; beyond them
            it rises as it did from the smallest to the largest.
        plain_count: Plain passes recorded so far, of either kind.
    """

    def __init__(self, longest: int) -> None:
        self.curve = [0.0] * (longest + 1)
        self._samples = [
            deque[float](maxlen=RECENT_SAMPLES if size > 1 else PLAIN_SAMPLES) for size in range(longest + 1)
        ]
        self._seen = [0] * (longest + 1)  # cycle of the latest sample
        self._medians: dict[int, float] = {}
        self._carried: dict[int, float] = {}  # medians of earlier generations
        self._once: dict[int, float] = {}  # single samples of earlier generations
        self._ratios: deque[float] = deque(maxlen=RECENT_SAMPLES)  # of samples to the carried medians
        self._cycle = 0
        self.plain_count = 0

    @property
    def compared(self) -> bool:
        """Whether it is known how this generation's times compare with earlier ones; one sample may be disturbed."""
        return len(self._ratios) > 1 or not self._carried

    def carry(self, curve: Mapping[int, float]) -> None:
        """Start from seconds by tokens that were measured before, as if in an earlier generation."""
        self._carried = {tokens: seconds for tokens, seconds in curve.items() if tokens < len(self.curve)}

    def begin(self) -> None:
        """Begin another generation, whose context may be longer or shorter."""
        if self.compared:
            ratio = self._ratio()
            lone = {size: samples[0] for size, samples in enumerate(self._samples) if len(samples) == 1}
            self._once = {size: time * ratio for size, time in self._once.items()} | lone
            points = self._points()
            ahead = points.pop(0, None)
            self._carried = self._risen(points)
            if ahead is not None:
                self._carried[0] = min([ahead, *self._carried.values()])  # it may have waited for the caller
        self._medians.clear()
        self._ratios.clear()
        for samples in self._samples:
            samples.clear()

    def add(self, tokens: int, seconds: float) -> None:
        """Record a pass over ``tokens``."""
        self._cycle += 1
        samples = self._samples[tokens]
        if len(samples) > 1 and self._cycle - self._seen[tokens] > STALE:
            samples.clear()
            samples.append(self._medians[tokens])  # one vote among the new samples
        before = self._carried.get(tokens, self._once.get(tokens))
        # A single ratio that says several times as fast may come from an earlier pass that was disturbed.
        if before is not None and not samples and self._ratios and (self.compared or OUTLIER * self._ratio() > 1.0):
            samples.append(before * self._ratio())  # one vote, too
        samples.append(seconds)
        self._seen[tokens] = self._cycle
        self.plain_count += tokens < 2
        if tokens in self._carried:
            self._ratios.append(seconds / self._carried[tokens])
        if len(samples) > 1:
            self._medians[tokens] = median_low(samples)

    @property
    def plain_known(self) -> bool:
        """Whether plain passes, of either kind, are `known`."""
        return self.known(0) or self.known(1)

    def known(self, tokens: int) -> bool:
        """Whether passes over this many tokens were measured twice, and lately."""
        measured = tokens in self._medians or tokens in self._carried
        return measured and self._cycle - self._seen[tokens] <= STALE

    def typical(self, tokens: int) -> float:
        """Seconds of a pass over this many tokens: measured in this generation, or else expected."""
        return self._medians.get(tokens, self.curve[tokens])

    def measured(self) -> dict[int, float]:
        """The curve at the sizes measured at least twice."""
        return {size: self.curve[size] for size in sorted(self._medians | self._carried)}

    def at_least(self, budget: float) -> list[float]:
        """The curve with sizes that are not known as cheap as the next smaller known one.

        One that was measured at some time, or lies below one that was, is cheaper by ``budget`` plain passes at most.
        """
        curve, longest = self.curve[:], max(self._medians | self._carried)
        margin = budget * curve[1]
        for size in range(2, len(curve)):
            if not self.known(size):
                curve[size] = max(min(curve[size], curve[size - 1]), self.curve[min(size, longest)] - margin)
        return curve

    def update(self) -> None:
        """Draw the curve through the medians, of which there must be one."""
        found = self._points()
        ahead = found.pop(0, inf)
        if 1 not in found:
            found[1] = min([ahead, *found.values()])  # all plain passes have begun ahead
        points = list(self._risen(found).items())
        curve, (first, base) = self.curve, points[0]
        curve[1 : first + 1] = [base] * first
        for (low, start), (high, end) in pairwise(points):
            for size in range(low + 1, high + 1):
                curve[size] = start + (end - start) * (size - low) / (high - low)
        last, top = points[-1]
        slope = max(0.0, top - base) / max(1, last - first)
        for size in range(last + 1, len(curve)):
            curve[size] = top + slope * (size - last)
        curve[0] = ahead if ahead < _HIDDEN * curve[1] else curve[1]  # not the lower one, which noise makes too low

    def _points(self) -> dict[int, float]:
        """The medians by size, with the scaled ones of earlier generations."""
        ratio = self._ratio()
        points = {size: time * ratio for size, time in self._carried.items()} | self._medians
        for size in self._carried.keys() - self._medians:
            # A slow caller hides plain passes, which begin while it works, so the ratio to those says nothing.
            most = 2 * max(size, 1) * points.get(1, points[size])
            points[size] = min(points[size], max(self._carried[size], most))
        return points

    def _risen(self, points: Mapping[int, float]) -> dict[int, float]:
        """Times that never fall, by size from the smallest on, as close to the given ones as those were seen lately."""
        sizes = sorted(points)
        weights = [max(_FADING ** (self._cycle - self._seen[size]), _LEAST_WEIGHT) for size in sizes]
        return dict(zip(sizes, rising([points[size] for size in sizes], weights), strict=True))

    def _ratio(self) -> float:
        """How many times as long a pass takes in this generation as in earlier ones."""
        if len(self._ratios) == 2:  # the one that changes less, because the other may come from a disturbed pass
            return min(self._ratios, key=lambda ratio: max(ratio, 1.0 / ratio) if ratio else inf)
        return median_low(self._ratios) if self._ratios else 1.0


class DraftTimes:
    """Seconds of a drafter in a cycle: a fixed part, a part per token, and what catching up costs.

    A drafter that is taken to be too slow is hardly asked any more, and then always has to catch up. If the machine has
    become free since, or the context short, even such a proposal must be able to show it.

    Attributes:
        fixed: Seconds of a cycle in which it was asked, regardless of what it proposed.
        per_token: Seconds of each token proposed.
        per_missed: Seconds of each token that it has yet to read, of the prompt or from cycles without it.
    """

    def __init__(self) -> None:
        self.fixed = self.per_token = self.per_missed = 0.0
        self._samples: dict[int, deque[float]] = {}  # by tokens; none is empty
        self._order: deque[int] = deque()  # tokens of the samples, the oldest first
        self._lags: deque[float] = deque(maxlen=RECENT_SAMPLES)
        self._begun = False

    @property
    def measured(self) -> bool:
        """Whether there is anything to go by."""
        return bool(self._samples)

    def start_from(self, fixed: float, per_token: float, per_missed: float) -> None:
        """Start from seconds that were measured before, as if each of two sizes had been seen once."""
        self._samples = {size: deque([fixed + per_token * size]) for size in (1, 4)}
        self._order, self.per_missed = deque(self._samples), per_missed
        self.update()

    def begin(self) -> None:
        """Begin another generation, for which the drafter has to prepare."""
        self._begun = False

    def add(self, tokens: int, missed: int, seconds: float) -> None:
        """Record a proposal of ``tokens``, made when the drafter had ``missed`` tokens yet to read.

        The first one of a generation only tells what reading the prompt takes, unless it was faster by far.
        """
        first, self._begun = not self._begun, True
        expected = self(tokens)
        if self._samples and (first or missed > _LAG) and seconds < expected / _FASTER:
            self._scale(seconds / expected)
            if tokens in self._samples:
                self._drop(tokens)
        elif first and (not self._samples or missed <= _LAG):
            return
        elif self._samples and missed > _LAG:
            self._lags.append(max(0.0, seconds - expected) / missed)
            self.per_missed = median_low(self._lags)
            return
        self._sample(tokens, seconds)

    def __call__(self, tokens: int, missed: int = 0) -> float:
        """The expected seconds."""
        return self.fixed + self.per_token * tokens + self.per_missed * missed

    def update(self) -> None:
        """Fit a line through the medians, each weighted by its samples; neither part is negative."""
        if not self._samples:
            return
        points = [(size, median_low(samples), len(samples)) for size, samples in self._samples.items()]
        weight = len(self._order)
        size = sum([size * count for size, _, count in points]) / weight
        time = sum([time * count for _, time, count in points]) / weight
        spread = sum([count * (x - size) ** 2 for x, _, count in points])
        if spread:
            slope = sum([count * (x - size) * (y - time) for x, y, count in points]) / spread
        else:
            slope = time / size if size else 0.0
        self.per_token = min(max(0.0, slope), time / size if size else 0.0)
        self.fixed = time - self.per_token * size

    def _sample(self, tokens: int, seconds: float) -> None:
        if len(self._samples.get(tokens, ())) == RECENT_SAMPLES:
            self._drop(tokens)
        elif len(self._order) == _RECENT:
            self._drop(self._order[0])
        self._samples.setdefault(tokens, deque()).append(seconds)
        self._order.append(tokens)

    def _drop(self, tokens: int) -> None:
        """Forget the oldest sample of a size."""
        self._samples[tokens].popleft()
        if not self._samples[tokens]:
            del self._samples[tokens]
        self._order.remove(tokens)

    def _scale(self, factor: float) -> None:
        """Take everything to last ``factor`` times as long; what was measured counts as one sample of each size."""
        self.per_missed *= factor
        self._lags.clear()
        self._samples = {size: deque([median_low(samples) * factor]) for size, samples in self._samples.items()}
        self._order = deque(self._samples)


def rising(times: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The closest times that never fall: neighbours that do are replaced by their mean (isotonic regression).

    More tokens never take less time, so what says so is noise, or was measured when the machine was busier. What is
    several times as long was disturbed, and does not count.

    >>> rising([1.0, 3.0, 2.0, 4.0, 90.0, 5.0], [1.0, 1.0, 3.0, 1.0, 1.0, 1.0])
    [1.0, 2.25, 2.25, 4.0, 5.0, 5.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, and number of times
    for mean, weight in zip(times, weights, strict=True):
        count = 1
        while pools and pools[-1][0] > mean:
            before, more, others = pools.pop()
            if before < OUTLIER * mean:
                mean, weight = (before * more + mean * weight) / (more + weight), weight + more
            count += others
        pools.append((mean, weight, count))
    return [mean for mean, _, count in pools for _ in range(count)]
