"""The policy on simulated machines: mean speed over plain decoding, that of first answers, and the worst cells.

    python benchmarks/policy_grid.py                       about two minutes; --seeds 8 for narrower figures

Six cost curves, three kinds of look-ups, and four draft models or none, in sessions of 30 answers of 64 tokens.
Look-ups are right as often as they say; a draft model says nothing. Each cell is run with the curve as it is and with
each point of it wrong by 10% at random, and measured times, which only `Drift` sees, with noise of 0.05 and of 0.3.
Prints a table and saves it in ``benchmarks/results/policy_grid.jsonl``.
"""

import logging
from collections.abc import Sequence
from itertools import product

import click
from saving import save
from tqdm import tqdm

from spectool.lab.hindsight import Machine, Saved, play, policy_for
from spectool.lab.simulated_answers import CURVES, LOOK_UPS, MODELS, READING, TOKENS, texts


def speeds(machine: Machine, answers: Sequence[Saved], names: Sequence[str], wrong: float, seed: int) -> list[float]:
    """Speed over plain decoding of all answers of a session, and of the first one."""
    seconds = play(answers, names, machine, policy_for(machine, wrong, seed), seed)
    plain = TOKENS * machine.passes(1)
    return [plain * len(answers) / sum(seconds), plain / seconds[0]]


@click.command()
@click.option("--seeds", default=2, show_default=True)
def main(seeds: int) -> None:
    """Run the grid."""
    logging.disable()  # what drifts says so
    cells = list(product(CURVES, LOOK_UPS, MODELS, range(1, seeds + 1)))
    for names in (["look-up", "model"], ["look-up"]):
        for noise, wrong in ((0.05, 0.0), (0.3, 0.0), (0.05, 0.1)):
            found: dict[tuple[str, ...], list[list[float]]] = {}
            for curve, look_up, model, seed in tqdm(cells, disable=None, leave=False):
                machine = Machine(CURVES[curve], {"model": MODELS[model].cost}, READING, noise)
                answers = texts(LOOK_UPS[look_up], MODELS[model], seed)
                found.setdefault((curve, look_up, model), []).append(speeds(machine, answers, names, wrong, seed))
            means = {cell: [sum(part) / len(part) for part in zip(*each, strict=True)] for cell, each in found.items()}
            worst = sorted(means, key=lambda cell: means[cell][0])[:3]
            row = {
                "drafters": "+".join(names),
                "noise": noise,
                "wrong": wrong,
                "seeds": seeds,
                "mean": round(sum(each[0] for each in means.values()) / len(means), 3),
                "first": round(sum(each[1] for each in means.values()) / len(means), 3),
                "worst": {", ".join(cell): round(means[cell][0], 3) for cell in worst},
            }
            click.echo("  ".join(f"{key} {value}" for key, value in row.items()))
            save("policy_grid", row)


if __name__ == "__main__":
    main()
