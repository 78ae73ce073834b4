"""What a measurement at a bad moment costs: passes of the demo model are timed while other programs run.

    python benchmarks/disturbed.py            about a minute; on a machine that is idle but for this

How many times as long each size took as on the idle machine is carried over to cheap curves, and sessions are simulated
with them. Prints each measurement, and which share of the gain of look-ups is left in answers 21 to 40.
"""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import click

from spectool.lab.hindsight import Machine, play
from spectool.lab.simulated_answers import CURVES, LOOK_UPS, MODELS, READING, TOKENS, texts
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_model
from spectool.runtime.policy.costs import SECONDS, SHORT
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.measuring import time_passes
from spectool.runtime.policy.policy import Policy


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Let other programs compute meanwhile."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for each in started:
            each.kill()


@click.command()
@click.option("--measurements", default=16, show_default=True)
@click.option("--loops", default=2, show_default=True, help="Busy loops during a measurement.")
def main(measurements: int, loops: int) -> None:
    """Measure, and simulate."""
    logging.disable()  # what drifts says so
    model, _ = load_model(str(demo_path("target")))
    idle, plain, _ = time_passes(model, lambda each: 12.0)
    errors = list[tuple[dict[int, float], float]]()
    for _ in range(measurements):
        with busy(loops):
            found, other, _ = time_passes(model, lambda each: max(SHORT * each, SECONDS))
        click.echo("plain passes: " + ", ".join(f"{rows}: {time / other[64]:.1f}" for rows, time in found[64].items()))
        at = {rows: time / idle[64][rows] for rows, time in found[64].items()}
        errors.append((at, other[64] / min(plain[64], idle[64][1])))
    for name, shares in LOOK_UPS.items():
        left = list[float]()
        for curve in (CURVES["flat"], CURVES["rising"]):
            answers = texts(shares, MODELS["bad"], 1, 40)

            def gain(seconds: dict[int, float], plain: float, curve=curve, answers=answers) -> float:
                policy = Policy(PassCurve({64: seconds}, {64: plain}, final=plain == 1.0))
                spent = play(answers, ["look-up"], Machine(curve, {}, READING, 0.05), policy)[20:]
                return TOKENS * len(spent) / sum(spent) - 1.0

            best = gain({rows: curve(rows) for rows in idle[64]}, 1.0)
            left += [gain({rows: curve(rows) * each for rows, each in at.items()}, own) / best for at, own in errors]
        click.echo(
            f"{name}: gain {best:.2f}; of it are left {min(left):.2f} at least, {median(left):.2f} as the median"
        )


if __name__ == "__main__":
    main()
