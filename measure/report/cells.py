"""Figures as a table's cells spell them."""

from spectool.measure.intervals import BreakEven, Estimate

NONE = "—"
_ABSURD = 10  # a share from here on is only said to be large


def percent(share: float | None, digits: int = 0) -> str:
    """Spell a share.

    >>> percent(0.4157), percent(0.4157, 1), percent(None)
    ('42%', '41.6%', '—')
    """
    if share is None:
        return NONE
    return f"{share:.{digits}%}" if share < _ABSURD else f"over {_ABSURD:.0%}"


def decimal(value: float | None, digits: int = 2) -> str:
    """Spell a number.

    >>> decimal(1.2345), decimal(1234.5, 1), decimal(None)
    ('1.23', '1,234.5', '—')
    """
    return NONE if value is None else f"{value:,.{digits}f}"


def reach(found: Estimate | None, digits: int = 2) -> str:
    """Spell a figure and half the width of its interval.

    >>> reach(Estimate(1.064, 1.012, 1.116, 9)), reach(Estimate(1.06, None, None, 1)), reach(None)
    ('1.06 ± 0.05', '1.06', '—')
    """
    if found is None:
        return NONE
    if found.high is None:
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} ± {found.high - found.value:.{digits}f}"


def percent_reach(found: Estimate | None) -> str:
    """Spell a share and half the width of its interval.

    >>> percent_reach(Estimate(0.41, 0.36, 0.46, 9)), percent_reach(Estimate(0.41, None, None, 1)), percent_reach(None)
    ('41 ± 5%', '41%', '—')
    """
    if found is None:
        return NONE
    return (
        percent(found.value)
        if found.high is None
        else f"{100 * found.value:.0f} ± {100 * (found.high - found.value):.0f}%"
    )


def threshold(found: BreakEven | None) -> str:
    """Spell a break-even point, with the share of variance that its line explains.

    >>> from spectool.measure.intervals import Line
    >>> line = Line(9.0, 12.0, (0.0, 0.0, 0.0), 0.914, 20)
    >>> threshold(BreakEven(0.408, 0.053, line, 14.8)), threshold(BreakEven(1.394, 0.4, line, 14.8))
    ('41 ± 5% (R² 0.91)', 'not reachable: 139 ± 40% (R² 0.91)')
    >>> threshold(BreakEven(0.5, 1.2, line, 14.8)), threshold(None)
    ('unclear (R² 0.91)', '—')
    """
    if found is None:
        return NONE
    told = f"(R² {found.line.r_squared:.2f})"
    if found.reach > 1:
        return f"unclear {told}"
    spelt = f"{100 * found.alpha:.0f} ± {100 * found.reach:.0f}% {told}"
    return spelt if found.alpha <= 1 else f"not reachable: {spelt}"


def size(count: int | None) -> str:
    """Spell bytes.

    >>> size(11_320_000_000), size(2_500_000), size(None)
    ('11.3 GB', '2.5 MB', '—')
    """
    if count is None:
        return NONE
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
