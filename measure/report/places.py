"""Where drafts are accepted: by place in the draft, by position in the text, and by temperature."""

from spectool.measure.intervals import ENOUGH
from spectool.measure.page import NONE, cell
from spectool.measure.report.tables import speedup
from spectool.measure.report.trials import Frame, Trials, per, pooled_acceptance, pooled_tokens_per_pass

_SHOWN = 8  # places of a draft
_FIRST = 16  # tokens of a text: the first range of positions; each further one is as long as all before it


def by_place(trials: Trials) -> dict[str, Frame]:
    """Return the share of draft tokens accepted at each place of a draft, of those that the target looked at."""
    drafted = trials.cycles[trials.cycles.proposed > 0]
    cycles, none = dict(list(drafted.groupby("row"))), drafted.iloc[:0]
    longest = min(_SHOWN, drafted.proposed.max() if len(drafted) else 0)

    def row(some: Frame) -> dict[str, str]:
        seen, found = cycles.get(some.row.iloc[0], none), {}
        for place in range(1, longest + 1):
            examined = seen[(seen.proposed >= place) & (seen.accepted >= place - 1)]
            share = (examined.accepted >= place).mean() if len(examined) >= ENOUGH else None
            found[f"token {place}"] = cell(share, ".0%")
        return found

    def table(here: Frame) -> Frame:
        found = per(here, "label", row)
        return found.loc[:, (found != NONE).any()]

    return trials.by_model(table) if longest else {}


def by_position(trials: Trials) -> dict[str, Frame]:
    """Return the share of draft tokens accepted by how many tokens of the text came before the draft."""
    cycles = trials.cycles.assign(range=trials.cycles.position.map(position_range))
    ranges = sorted(cycles.range.unique())
    groups = {key: pooled_acceptance(seen) for key, seen in cycles.groupby(["row", "range"])}
    names = [f"{_FIRST * 2 ** (place - 1) if place else 0} to {_FIRST * 2**place - 1}" for place in ranges]

    def row(some: Frame) -> dict[str, str]:
        found = (groups.get((some.row.iloc[0], place)) for place in ranges)
        return dict(zip(names, (cell(share, ".0%") for share in found), strict=True))

    return trials.by_model(lambda here: per(here, "label", row))


def position_range(position: int) -> int:
    """Return the number of the range that a position in the text lies in.

    >>> [position_range(position) for position in (0, 15, 16, 31, 32, 63, 64)]
    [0, 0, 1, 1, 2, 2, 3]
    """
    return (position // _FIRST).bit_length()


def by_temperature(trials: Trials) -> dict[str, Frame]:
    """Return acceptance, tokens per pass and speed-up of each configuration by temperature; nothing for one alone."""
    temperatures = sorted(trials.drafted.temperature.unique())

    def row(some: Frame) -> dict[str, str]:
        found = {}
        for temperature in temperatures:
            drawn, name = some[some.temperature == temperature], f"{temperature:g}"
            found[f"{name}: accepted"] = cell(pooled_acceptance(drawn), ".0%")
            found[f"{name}: tokens per pass"] = cell(pooled_tokens_per_pass(drawn)) if len(drawn) else NONE
            found[f"{name}: speed-up"] = cell(speedup(drawn)) if len(drawn) else NONE
        return found

    def table(here: Frame) -> Frame:
        said = here.temperature.map(lambda temperature: f", temperature {temperature:g}")
        same = [label.replace(part, "") for label, part in zip(here.label, said, strict=True)]
        return per(here.assign(same=same), "same", row)

    return trials.by_scope(table) if len(temperatures) > 1 else {}
