"""What drafts gain where a model is spread over machines, by what each message between them takes; simulated.

    python benchmarks/group_latency.py                       about a minute

A model of 32 layers sends two messages in each (tensor parallelism), and we send one more in every pass. A plain pass
computes for 8 ms, in which an M4 Pro reads half of 4.5 GB of weights; passes over more rows compute longer, as was
published for two chips. Plain decoding is mlx-lm's, without our message. Answers are those of `policy_grid.py`:
look-ups that are right as often as they say, and a draft model on rank 0 that computes for a tenth of a pass for each
token and is right at seven of ten. The policy knows costs to about 10%. What longer messages take beyond their delay is
left out. Appends to ``benchmarks/results/group_latency.jsonl``.
"""

import json
import logging
from collections.abc import Callable
from functools import partial

import click
import numpy as np
from saving import save

from spectool.lab.hindsight import Machine, play, policy_for
from spectool.lab.simulated_answers import LOOK_UPS, MODELS, READING, TOKENS, texts

MESSAGES = 2 * 32  # of a pass
COMPUTING = 0.008  # seconds of a plain pass without messages
DELAYS = {"none": 0.0, "Thunderbolt with RDMA": 20e-6, "Thunderbolt over TCP": 300e-6, "Ethernet": 1e-3}
CHIPS = {  # what passes over more rows compute, in plain passes: whole models, as they were published
    "M4 Pro, 8 bits": ((1, 2, 3, 4, 5, 6, 8, 17), (1, 1.05, 1.05, 1.1, 1.14, 1.43, 1.71, 3.4)),
    "M3 Ultra, 4 bits": ((1, 17), (1, 3.72)),
}


def spread(computing: Callable[[int], float], messages: float) -> Callable[[int], float]:
    """Seconds of a pass by rows, when its messages take so long together."""
    return lambda rows: COMPUTING * float(computing(rows)) + messages


@click.command()
@click.option("--seeds", default=4, show_default=True)
def main(seeds: int) -> None:
    """Run the simulation."""
    logging.disable()
    for chip, (rows, costs) in CHIPS.items():
        for delay, seconds in DELAYS.items():
            plain = COMPUTING + MESSAGES * seconds
            row: dict[str, object] = {"chip": chip, "messages": delay, "milliseconds": round(plain * 1e3, 1)}
            passes = spread(partial(np.interp, xp=rows, fp=costs), (MESSAGES + 1) * seconds)
            for drafters in (["look-up"], ["look-up", "model"]):
                machine = Machine(passes, {"model": MODELS["cheap"].cost * COMPUTING}, READING * COMPUTING, 0.05)
                ours = counted = 0.0
                for seed in range(1, seeds + 1):
                    answers = texts(LOOK_UPS["mixed"], MODELS["cheap"], seed)
                    ours += sum(play(answers, drafters, machine, policy_for(machine, 0.1, seed), seed))
                    counted += TOKENS * len(answers)
                row["+".join(drafters)] = round(counted * plain / ours, 2)
            click.echo(json.dumps(row))
            save("group_latency", row)


if __name__ == "__main__":
    main()
