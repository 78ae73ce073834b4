"""What a pass takes on an Apple chip where nobody has timed it, as a range: by bandwidth, and a time for each pass.

    seconds = bytes of the weights / (share * bandwidth) + a fixed time

``bandwidth.toml`` has the figures with their sources, and passes that others have timed, which lie in the range.
"""

import tomllib
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from spectool import SpectoolError
from spectool.runtime.policy.record import DraftCost

_READ_AT_ONCE = 8  # tokens of a text that a small model reads in about the time of one


@cache
def known() -> dict[str, Any]:
    """The figures."""
    text = (files("spectool.measure") / "bandwidth.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def pass_seconds(chip: str, weights: float) -> list[float]:
    """Seconds of a plain pass over bytes of weights, at the four ends of what a chip, by `chip_of`, may be.

    Raises:
        SpectoolError: Its bandwidth is not known.
    """
    table = known()
    if (peak := table["gigabytes_per_second"].get(chip)) is None:
        raise SpectoolError(
            f"the bandwidth of {chip} is not in the table, so what a draft model would cost there is not guessed. "
            f"Known: {', '.join(table['gigabytes_per_second'])}"
        )
    bandwidths = peak[0] * table["share"]["low"], peak[1] * table["share"]["high"]
    fixed = table["milliseconds"]["ultra" if chip.endswith("Ultra") else "one"]
    return [weights / (1e9 * bandwidth) + each / 1e3 for bandwidth, each in product(bandwidths, fixed)]


def cost_range(chip: str, draft: float, target: float) -> tuple[DraftCost, DraftCost]:
    """The least and the most that a draft model may cost on a chip, both models given by the bytes of their weights."""
    ends = zip(pass_seconds(chip, draft), pass_seconds(chip, target), strict=True)
    shares = [one / other for one, other in ends]
    low, high = (DraftCost(share, share / _READ_AT_ONCE) for share in (min(shares), max(shares)))
    return low, high
