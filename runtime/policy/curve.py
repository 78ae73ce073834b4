"""What a pass costs by its rows and its context, in plain passes; no clock is read here.

A *plain pass* takes one token and verifies no draft. Plain passes begin before the token of the one before them is
read, so on a GPU they take a little less than a lone pass over one row, which is what a cycle takes that might have
drafted and found nothing.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

FAR_OFF = 1.25  # times as long as expected: what varies less is noise, and changes hardly any decision
_NOISE = 1.2  # times as long as a pass over more rows: less is noise, and more a kernel that is slower for this size
_OUTLIER = 2.0  # a pass that takes longer than this many times the usual was disturbed, and counts as this many
_WEIGHT = 0.04  # of a new pass in the drift: the last 25 count
_STEP = 6  # bits: what 64 more tokens of context change is not worth working out again
_HOPED = 0.05  # plain passes for each row where rows are cheap
_FEWEST = 4  # passes of each kind before they are compared
_KEPT = 4096  # costs that are worked out already, of each kind
_NEAR = 1.0 + (FAR_OFF - 1.0) / 2  # what was far off is so no longer from here on, so that it does not come and go


class PassCurve:
    """Plain passes that a pass takes, interpolated in rows and in context.

    More rows hardly ever take less time, so a time that is a little longer than that of more rows is replaced by it. If
    it is much longer, other sizes have better kernels; but a measurement that is not ``final`` was rather disturbed.
    Beyond the rows that were measured, the steeper of the average and the last slope goes on in the shortest context;
    in a longer one, passes are as many times as long as those over the most rows that were measured there.
    """

    def __init__(
        self, seconds: Mapping[int, Mapping[int, float]], plain: Mapping[int, float], final: bool = True
    ) -> None:
        """Draw the curve through seconds by tokens of context and by rows, and ``plain`` ones by context."""
        self._depths = sorted(seconds)
        self._points = {depth: _smoothed(seconds[depth], _NOISE if final else math.inf) for depth in self._depths}
        self._plain = {depth: min(plain[depth], self._points[depth][1]) for depth in self._depths}
        if not final:  # a lone pass over a row takes hardly longer
            self._points = {depth: {**points, 1: self._plain[depth]} for depth, points in self._points.items()}
        self._drawn: dict[tuple[int, int], float] = {}
        self._costs: dict[tuple[int, int, int, int], list[float]] = {}

    def seconds(self, rows: int, context: int) -> float:
        """Seconds of a pass over ``rows`` tokens after ``context`` tokens; of a plain pass, where ``rows`` is 0."""
        key = rows, context >> _STEP
        if key not in self._drawn:
            if len(self._drawn) >= _KEPT:
                self._drawn.clear()
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
            if len(self._costs) >= _KEPT:
                self._costs.clear()
            plain = self.seconds(0 if texts == 1 else texts, context)
            rows = (texts * (1 + refed + length) for length in range(longest + 1))
            found = [self.seconds(each, context) / plain for each in rows]
            self._costs[key] = [max(1.0, cost) if refed + length else cost for length, cost in enumerate(found)]
        found = self._costs[key]
        if drift == 1.0:
            return found
        return [drift * cost if refed + length else cost for length, cost in enumerate(found)]


class Drift:
    """How many times as long passes with drafts, or those of a draft model, take as measured, compared with others.

    It counts only where it is far off. Where they take longer, that is one figure for all sizes. Where they take less,
    noise has made some sizes too dear, each in its own way, and no pass over fewer rows takes longer than one that was
    seen (docs/design.md).

    Attributes:
        factor: By which passes with drafts are taken to be dearer than measured; 1 where that is not far off.
    """

    def __init__(self, doubt: Callable[[], object] = lambda: None) -> None:
        """Begin with what was measured; ``doubt`` is called, perhaps often, where that is far off."""
        self.factor = 1.0
        self._ratios = {True: 1.0, False: 1.0}  # of passes with drafts, and of others, to what was expected
        self._seen = {True: 0, False: 0}
        self._shares: dict[int, tuple[int, float]] = {}  # by rows: passes with drafts, and their ratio to others'
        self._cheaper: dict[int, float] = {}  # these ratios where they are far below 1
        self._rows: set[int] = set()  # the first pass of a size prepares the others
        self._doubt, self._warned = doubt, False

    @property
    def wants_plain(self) -> bool:
        """Whether a pass without drafts is needed, because there have hardly been any to compare with."""
        return self._seen[False] < _FEWEST and self._seen[True] >= _FEWEST * (1 + self._seen[False])

    def corrected(self, costs: list[float], rows: int) -> list[float]:
        """Plain passes by draft length, ``rows`` without drafts; none far above what was seen of as many or more rows.

        If the most rows of which anything was seen were too dear, more than these are taken to cost in proportion.
        """
        if not self._cheaper:
            return costs
        costs, most = list(costs), math.inf
        for length in reversed(range(len(costs))):
            if (share := self._cheaper.get(rows + length)) is not None:
                costs[length] = max(1.0, share * costs[length] / self.factor)
            elif rows + length not in self._shares and costs[length] > FAR_OFF * most:
                costs[length] = most
            most = min(most, costs[length])
        top = max(self._shares, default=0)
        if top in self._cheaper and (seen := top - rows) < len(costs):
            slope = (costs[seen] - 1.0) / max(1, top - 1)
            costs[seen:] = [min(cost, costs[seen] + slope * more) for more, cost in enumerate(costs[seen:])]
        return costs

    def hoped(self, costs: Sequence[float], rows: int) -> list[float]:
        """The same ``costs``, but hardly any for rows of which little was seen."""
        seen = [self._shares.get(rows + at, (0, 0.0))[0] for at in range(len(costs))]
        return [min(cost, 1.0 + _HOPED * at) if seen[at] < _FEWEST else cost for at, cost in enumerate(costs)]

    def observe(self, rows: int, seconds: float, expected: float, *, drafted: bool) -> bool:
        """Record a pass over some rows, with drafts or without, that was expected to take ``expected`` seconds.

        Returns whether it took far less than others of which that was expected.
        """
        ratio, plain = seconds / expected if expected > 0 else 0.0, self._ratios[False]
        far_less = drafted and self._seen[False] >= _FEWEST and ratio * FAR_OFF < plain
        is_first = rows not in self._rows
        self._rows.add(rows)
        if ratio <= 0.0 or (is_first and not far_less):
            return False  # no clock, or it prepares the others
        if drafted and self._seen[False] >= _FEWEST:
            count, share = self._shares.get(rows, (0, 0.0))
            share += max(_WEIGHT, 1.0 / (count + 1)) * (min(_OUTLIER, ratio / plain) - share)
            self._shares[rows] = count + 1, share
            if share * (_NEAR if rows in self._cheaper else FAR_OFF + 1.0 / (count + 1)) < 1.0:
                self._cheaper[rows] = share
                self._doubt()
            else:
                self._cheaper.pop(rows, None)
        if rows not in self._cheaper:
            self._compare(ratio, drafted)
        return far_less

    def _compare(self, ratio: float, drafted: bool) -> None:
        """Compare passes with drafts, of all sizes that were not measured too dear, and those without."""
        self._seen[drafted] += 1
        before, count = self._ratios[drafted], self._seen[drafted]
        before = ratio if count == 1 or ratio < before / _OUTLIER else before  # what was believed was disturbed
        ratio = min(ratio, _OUTLIER * before)
        self._ratios[drafted] = before + max(_WEIGHT, 1.0 / count) * (ratio - before)
        found = self._ratios[True] / self._ratios[False]
        far = FAR_OFF if self.factor == 1.0 else _NEAR  # it does not come and go
        far += 1.0 / max(1, self._seen[True])  # of a few passes, one may have been disturbed
        self.factor = found if min(self._seen.values()) >= _FEWEST and found > far else 1.0
        if self.factor > 1.0 and not self._warned:
            self._warned = True
            self._doubt()
            logging.getLogger(__name__).warning(
                "drafts take %.1f times as long as measured on this machine, so fewer tokens are drafted. "
                "They are measured again at the next start. If it is cool and idle, run `spectool doctor` again.",
                found,
            )


def _smoothed(times: Mapping[int, float], noise: float) -> dict[int, float]:
    """Times by rows, none of which is longer than one of more rows unless it is so by more than ``noise`` times."""
    found, least = dict[int, float](), math.inf
    for rows in sorted(times, reverse=True):
        found[rows] = least if least < times[rows] <= noise * least else times[rows]
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
