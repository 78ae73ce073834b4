"""What single cycles tell: where drafts come from, and how many tokens a pass should commit."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spectool.artifacts.formats.benchmark import PLAIN, WAY, Benchmark
from spectool.measure.report.trials import Way
from spectool.runtime.draft_length.cost_model import geometric_tokens


@dataclass(frozen=True, slots=True)
class Cycles:
    """Cycles of a way that proposed equally many tokens from the same source.

    Attributes:
        source: Of the drafts; empty for passes without.
        proposed: Draft tokens in each.
        number: How many cycles.
        accepted: Draft tokens, over all of them.
        rejections: Cycles that ended in a draft token the target did not want.
    """

    source: str
    proposed: int
    number: int
    accepted: int
    rejections: int


def read_cycles(run: Benchmark, left_out: Collection[tuple[int, str]]) -> dict[Way, list[Cycles]]:
    """Sum up the cycles of every drafted way, but for some blocks and targets."""
    generations = run.generations.select(["block", "order", *WAY])
    of_block = zip(generations["block"].to_pylist(), generations["model"].to_pylist(), strict=True)
    generations = generations.filter(pa.array([pair not in left_out for pair in of_block]))
    cycles = run.cycles.select(["block", "order", "source", "proposed", "accepted"])
    rejected = pc.cast(pc.less(cycles["accepted"], cycles["proposed"]), pa.int64())
    joined = cycles.append_column("rejected", rejected).join(generations, ["block", "order"], join_type="inner")
    keys = [*WAY, "source", "proposed"]
    sums = joined.group_by(keys).aggregate([("accepted", "count"), ("accepted", "sum"), ("rejected", "sum")])
    found: dict[Way, list[Cycles]] = defaultdict(list)
    for row in sums.sort_by([("source", "ascending"), ("proposed", "ascending")]).to_pylist():
        if row["drafter"] != PLAIN:
            way = Way(row["model"], row["drafter"], row["strategy"], row["num_draft_tokens"], row["temperature"])
            counts = (row["accepted_count"], row["accepted_sum"], row["rejected_sum"])
            found[way].append(Cycles(row["source"], row["proposed"], *counts))
    return found


def agreement(cycles: Sequence[Cycles]) -> float | None:
    """Return the share of draft tokens accepted among those that the target looked at; None where there was none.

    A rejection ends a cycle and the tokens after it are not looked at, so that this is the ``a`` of the geometric
    expectation and more than the acceptance rate, which counts them.
    """
    accepted = sum(some.accepted for some in cycles)
    examined = accepted + sum(some.rejections for some in cycles)
    return accepted / examined if examined else None


def expected_tokens(cycles: Sequence[Cycles]) -> float | None:
    """Return the tokens per pass if every draft token were accepted with the same probability, independently.

    Each cycle counts with the tokens that it proposed, which may be fewer than were asked for.
    """
    probability = agreement(cycles)
    if probability is None:
        return None
    total = sum(some.number for some in cycles)
    return sum(some.number * geometric_tokens(probability, some.proposed) for some in cycles) / total
