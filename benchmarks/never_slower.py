"""Speed with a useless, a half-right and a perfect drafter compared with plain decoding, on a model of random weights.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 python benchmarks/never_slower.py

Every drafter sleeps for as long as a small model would need for its tokens, right or wrong. A round decodes the same
prompt in every configuration, each time in another order, with draft lengths that the policy chooses. A figure is
the geometric mean of the rounds' ratios to plain decoding in the same round, of the first tokens, in which the
policy learns, and of the others (*steady*). Appends to ``benchmarks/results/never_slower.jsonl``.
"""

import json
import platform
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import geometric_mean, median
from typing import Any

import click
import mlx.core as mx
from mlx_lm.models import llama
from pass_cost import pass_cost
from saving import save

from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, Proposal

PLAIN = "plain"
PROMPT = list(range(100, 132))
# Share of the draft tokens that are right.
DRAFTERS = {"useless": 0.0, "half right": 0.5, "perfect": 1.0}
VOCABULARY = 16_000


class Replayer(Drafter):
    """Knows the plain output and proposes each token right with a probability, after sleeping."""

    def __init__(self, text: Sequence[int], right: float, fixed: float, per_token: float, seed: int) -> None:
        """Propose ``text`` (token ids) with probability ``right``; ``fixed`` and ``per_token`` are seconds."""
        self.name, self.costs_a_pass = "replayer", True
        self._text, self._right = list(text), right
        self._fixed, self._per_token = fixed, per_token
        self._rng = random.Random(seed)
        self._at = 0

    def start(self, prompt: Sequence[int]) -> None:
        """Begin the text, or continue after the part of it that the prompt has."""
        self._at = len(prompt) - len(PROMPT)

    def propose(self, limit: int) -> Proposal:
        """Propose ``limit`` tokens after the time that they take."""
        time.sleep(self._fixed + self._per_token * limit)
        truth = self._text[self._at : self._at + limit]
        return Proposal([self._proposed(token) for token in truth], self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Continue in the text."""
        self._at += len(tokens)

    def _proposed(self, token: int) -> int:
        return token if self._rng.random() < self._right else (token + 1) % VOCABULARY


@click.command()
@click.option("--tokens", default=512, show_default=True, help="Tokens of a generation.")
@click.option("--learning", default=64, show_default=True, help="Tokens until the speed counts as steady.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--draft-cost", default=0.07, show_default=True, help="Of a draft token, in plain passes.")
@click.option("--fixed-draft-cost", default=0.05, show_default=True, help="Of a proposal, in plain passes.")
def main(tokens: int, learning: int, rounds: int, draft_cost: float, fixed_draft_cost: float) -> None:
    """Measure and print one JSON line for each drafter."""
    if not 0 < learning < tokens:
        raise click.UsageError("--learning: expected fewer tokens than --tokens")
    model = _model()
    statistics = {name: DraftStatistics() for name in DRAFTERS}

    def steps(name: str) -> Iterator[Any]:
        if name == PLAIN:
            return generate_step(mx.array(PROMPT), model, max_tokens=tokens)
        drafter = Replayer(text, DRAFTERS[name], fixed_draft_cost * plain_seconds, draft_cost * plain_seconds, seed=0)
        options = {"num_draft_tokens": None, "max_tokens": tokens, "statistics": statistics[name]}
        return generate_step(mx.array(PROMPT), model, drafter=drafter, **options)

    text, _, steady = _timed(steps(PLAIN), learning)
    plain_seconds = steady / (tokens - learning)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in (PLAIN, *DRAFTERS)}
    for round_ in range(rounds):
        for name in seconds if round_ % 2 == 0 else reversed(seconds):
            output, *times = _timed(steps(name), learning)
            seconds[name].append((times[0], times[1]))
            if output != text:
                raise click.ClickException(f"{name}: the text differs from plain decoding's")
    machine = {
        "machine": platform.platform(),
        "device": str(mx.default_device()),
        "tokens": tokens,
        "rounds": rounds,
        "plain ms a token": round(median(steady for _, steady in seconds[PLAIN]) / (tokens - learning) * 1e3, 3),
        "pass cost": {size: round(pass_cost(model, size), 2) for size in (2, 5, 9, 17)},
        "draft cost": [fixed_draft_cost, draft_cost],
    }
    click.echo(json.dumps(machine))
    for name, drafted in statistics.items():
        line = {"drafter": name, **_ratios(seconds[name], seconds[PLAIN])}
        line |= {"tokens per pass": round(drafted.tokens_per_pass, 2), "acceptance": round(drafted.acceptance_rate, 3)}
        click.echo(json.dumps(line))
        save("never_slower", {**line, **machine})


def _model() -> llama.Model:
    """A Llama of 33 million random weights."""
    sizes = {"hidden_size": 512, "num_hidden_layers": 6, "intermediate_size": 1536}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": False}
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs("llama", **sizes, **heads, rms_norm_eps=1e-5, vocab_size=VOCABULARY))
    mx.eval(model.parameters())
    return model


def _timed(steps: Iterator[Any], learning: int) -> tuple[list[int], float, float]:
    """The tokens, and the seconds of the first ``learning`` after the first one and of the others."""
    tokens = [int(next(steps)[0])]  # the prompt pass ends with it
    began = time.perf_counter()
    tokens += [int(step[0]) for step in islice(steps, learning - 1)]
    learnt = time.perf_counter()
    tokens += [int(step[0]) for step in steps]
    return tokens, learnt - began, time.perf_counter() - learnt


def _ratios(times: Sequence[tuple[float, float]], plain: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The speed compared with plain decoding over the rounds, of the first tokens and of the steady part."""
    first, steady = ([base[part] / mine[part] for mine, base in zip(times, plain, strict=True)] for part in (0, 1))
    return {"speed at first": round(geometric_mean(first), 3), "steady speed": round(geometric_mean(steady), 3)}


if __name__ == "__main__":
    main()
