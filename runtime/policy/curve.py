"""What a pass costs by its rows and its context, in plain passes; no clock is read here.

A *plain pass* takes one token and verifies no draft. Plain passes begin before the token of the one before them is
read, so on a GPU they take a little less than a lone pass over one row, which is what a cycle takes that might have
drafted and found nothing.
"""

import logging
import math
from collections.abc import Mapping
from itertools import pairwise

FAR_OFF = 1.25  # times as long as expected: what varies less is noise, and changes hardly any decision
_NOISE = 1.2  # times as long as a pass over more rows: less is noise, and more a kernel that is slower for this size
_OUTLIER = 2.0  # a pass that takes longer than this many times the usual was disturbed, and counts as this many
_WEIGHT = 0.04  # of a new pass in the drift: the last 25 count
_STEP = 6  # bits: what 64 more tokens of context change is not worth working out again
_FEWEST = 4  # passes of each kind before they are compared


class PassCurve:
    """Plain passes that a pass takes, interpolated in rows and in context.

    More rows hardly ever take less time, so a time that is a little longer than that of more rows is replaced by it. If
    it is much longer, other sizes have better kernels, as 4 and 8 rows have on CPUs. Beyond the rows that were
    measured, the steeper of the average and the last slope goes on in the shortest context; in a longer one, passes are
    as many times as long as those over the most rows that were measured there.
    """

    def __init__(self, seconds: Mapping[int, Mapping[int, float]], plain: Mapping[int, float]) -> None:
        """Draw the curve through seconds by tokens of context and by rows, and ``plain`` ones by context."""
        self._depths = sorted(seconds)
        self._points = {depth: _smoothed(seconds[depth]) for depth in self._depths}
        self._plain = {depth: min(plain[depth], self._points[depth][1]) for depth in self._depths}
        self._drawn: dict[tuple[int, int], float] = {}
        self._costs: dict[tuple[int, int, int, int], list[float]] = {}

    def seconds(self, rows: int, context: int) -> float:
        """Seconds of a pass over ``rows`` tokens after ``context`` tokens; of a plain pass, where ``rows`` is 0."""
        key = rows, context >> _STEP
        if key not in self._drawn:
            at = [self._measured(rows, depth) for depth in self._depths]
            slope = max(0.0, at[-1] - at[0]) / max(1, self._depths[-1] - self._depths[0])
            self._drawn[key] = at[0] + slope * max(0, context - self._depths[0])
        return self._drawn[key]

    def _measured(self, rows: int, depth: int) -> float:
        """Seconds of a pass in a context that was measured."""
        if not rows:
            return self._plain[depth]
        points, shortest = self._points[depth], self._points[self._depths[0]]
        last = max(points)
        if points is shortest or rows <= last:
            return _at(points, rows)
        return _at(shortest, rows) * points[last] / _at(shortest, last)

    def costs(self, longest: int, context: int, *, texts: int = 1, refed: int = 0, drift: float = 1.0) -> list[float]:
        """Plain passes of the same ``texts`` that a pass takes, by draft length, shape [longest + 1].

        Each text has a row for its last token, one for each draft, and ``refed`` rows of tokens that are fed again.
        """
        key = longest, context >> _STEP, texts, refed
        if key not in self._costs:
            plain = self.seconds(0 if texts == 1 else texts, context)
            rows = (texts * (1 + refed + length) for length in range(longest + 1))
            self._costs[key] = [self.seconds(each, context) / plain for each in rows]
        found = self._costs[key]
        return [cost if refed + length == 0 else max(1.0, drift * cost) for length, cost in enumerate(found)]


class Drift:
    """How many times as long passes with drafts take as the curve says, compared with passes without.

    It counts only where it is far off, as on a machine that is hot or shared, or was measured at a bad moment.

    Attributes:
        factor: By which passes with drafts are taken to be dearer than measured; 1 where that is not far off.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._ratios = {True: 1.0, False: 1.0}  # of passes with drafts, and of others, to what was expected
        self._seen = {True: 0, False: 0}
        self._rows: set[int] = set()  # the first pass of a size prepares the others
        self._warned = False

    @property
    def wants_plain(self) -> bool:
        """Whether a pass without drafts is needed, because there have hardly been any to compare with."""
        return self._seen[False] < _FEWEST and self._seen[True] >= _FEWEST * (1 + self._seen[False])

    def observe(self, rows: int, seconds: float, expected: float, *, drafted: bool) -> None:
        """Record a pass over some rows, with drafts or without, that was expected to take ``expected`` seconds."""
        if rows not in self._rows or not (seconds > 0 and expected > 0):  # a clock may stand still
            self._rows.add(rows)
            return
        self._seen[drafted] += 1
        before, count = self._ratios[drafted], self._seen[drafted]
        ratio = seconds / expected
        before = ratio if count == 1 or ratio < before / _OUTLIER else before  # what was believed was disturbed
        ratio = min(ratio, _OUTLIER * before)
        self._ratios[drafted] = before + max(_WEIGHT, 1.0 / count) * (ratio - before)
        found = self._ratios[True] / self._ratios[False]
        far = FAR_OFF if self.factor == 1.0 else 1.0 + (FAR_OFF - 1.0) / 2  # it does not come and go
        far += 1.0 / max(1, self._seen[True])  # of a few passes, one may have been disturbed
        self.factor = found if min(self._seen.values()) >= _FEWEST and found > far else 1.0
        if self.factor > 1.0 and not self._warned:
            self._warned = True
            logging.getLogger(__name__).warning(
                "passes with drafts take %.1f times as long as measured on this machine, so fewer tokens are drafted. "
                "If it is cool and idle, run `spectool doctor` again.",
                found,
            )


def _smoothed(times: Mapping[int, float]) -> dict[int, float]:
    """Times by rows, in which one of more rows that is a little less is taken for the right one of both."""
    found, least = dict[int, float](), math.inf
    for rows in sorted(times, reverse=True):
        found[rows] = least if least < times[rows] <= _NOISE * least else times[rows]
        least = min(least, times[rows])
    return dict(sorted(found.items()))


def _at(points: Mapping[int, float], rows: int) -> float:
    """The time of a pass over ``rows`` tokens, on the line through the two nearest points."""
    known = list(points.items())
    for (low, start), (high, end) in pairwise(known):
        if rows <= high:
            return start + (end - start) * (rows - low) / (high - low)
    last, top = known[-1]
    slopes = [(top - time) / (last - row) for row, time in (known[0], known[-2])] if len(known) > 1 else [0.0]
    return top + max(0.0, *slopes) * (rows - last)


FREE = PassCurve({0: {1: 1.0}}, {0: 1.0})
"""Every pass takes as long as a plain one. A fixed draft length uses this, because it does not depend on costs."""

ASSUMED = PassCurve({0: {1: 1.0, 17: 3.72}}, {0: 1.0})
"""Where nothing was measured: 0.83 + 0.17 for each row, as published for Gemma 4 31B in 4 bits on an M3 Ultra."""
