"""Speed with a useless, a half-right and a perfect drafter compared with plain decoding, on a model of random weights.

    python benchmarks/never_slower.py --rounds 5 --tokens 512
    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 python benchmarks/never_slower.py

Every drafter sleeps for as long as a small model would need for its tokens, right or wrong. A round decodes the same
prompt in every configuration, each time in another order. A figure is the geometric mean of the rounds' ratios to plain
decoding in the same round. The steady speed leaves out the first tokens, in which the controller learns. Plain decoding
is `generate_step` without a drafter; mlx-lm's own loop, which begins the next pass while the last token is read, is
measured as well. The same text is also generated in short answers, as in a conversation, with a controller for each
(*alone*) and with one for all (*shared*). Appends to ``benchmarks/results/never_slower.jsonl``.
"""

import json
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import click
import mlx.core as mx
from mlx_lm.generate import generate_step as host_generate_step
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache
from pass_cost import pass_cost

from spectool.measure.intervals import geometric_mean
from spectool.runtime.decoding.drafter import Drafter, Proposal
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.draft_length.controller import Controller

RESULTS = Path(__file__).parent / "results" / "never_slower.jsonl"
PLAIN, HOST = "plain", "mlx-lm"
PROMPT = list(range(100, 132))
# Share of the draft tokens that are right.
DRAFTERS = {"useless": 0.0, "half right": 0.5, "perfect": 1.0}
VOCABULARY = 16_000


class Replayer(Drafter):
    """Knows the plain output and proposes each token right with a probability, after sleeping."""

    def __init__(self, text: Sequence[int], right: float, fixed: float, per_token: float, seed: int) -> None:
        """Propose ``text`` (token ids) with probability ``right``; ``fixed`` and ``per_token`` are seconds."""
        self.name = "replayer"
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
@click.option("--hidden", default=512, show_default=True, help="Width of the model; 512 makes 33M parameters.")
@click.option("--layers", default=6, show_default=True)
@click.option("--bits", type=click.Choice(["4", "8"]), help="Quantise the model.")
@click.option("--drafter", "names", multiple=True, type=click.Choice(list(DRAFTERS)), help="All by default.")
@click.option("--tokens", default=512, show_default=True, help="Tokens of a generation.")
@click.option("--learning", default=128, show_default=True, help="Tokens left out of the steady speed.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--draft-cost", default=0.07, show_default=True, help="Of a draft token, in plain passes.")
@click.option("--fixed-draft-cost", default=0.05, show_default=True, help="Of a proposal, in plain passes.")
@click.option("--fixed-lengths", default="2,4,8", show_default=True, help="Fixed draft lengths to compare with.")
@click.option("--answer", "answer_tokens", default=48, show_default=True, help="Tokens of a short answer.")
def main(
    hidden: int,
    layers: int,
    bits: str | None,
    names: tuple[str, ...],
    tokens: int,
    learning: int,
    rounds: int,
    draft_cost: float,
    fixed_draft_cost: float,
    fixed_lengths: str,
    answer_tokens: int,
) -> None:
    """Measure and print one JSON line for each drafter and each rule for the draft length."""
    if not 0 < learning < tokens:
        raise click.UsageError("--learning: expected fewer tokens than --tokens")
    model, parameters = _model(hidden, layers, int(bits) if bits else None)
    text = [token for token, _, _ in generate_step(mx.array(PROMPT), model, max_tokens=tokens)]
    plain_seconds = _timed(generate_step(mx.array(PROMPT), model, max_tokens=tokens), learning)[1] / (tokens - learning)
    costs = {size: round(pass_cost(model, size), 2) for size in (2, 5, 9, 17)}
    statistics: dict[str, DraftStatistics] = {}
    outputs: dict[str, list[int]] = {}

    def replayer(right: float) -> Replayer:
        return Replayer(text, right, fixed_draft_cost * plain_seconds, draft_cost * plain_seconds, seed=0)

    def drafting(right: float, length: int | None, name: str) -> Callable[[], Iterator[Any]]:
        def steps() -> Iterator[Any]:
            drafter = replayer(right)
            statistics[name] = DraftStatistics()
            return generate_step(
                mx.array(PROMPT),
                model,
                drafter=drafter,
                num_draft_tokens=length,
                max_tokens=tokens,
                statistics=statistics[name],
            )

        return steps

    def answering(right: float, shared: bool, name: str) -> Callable[[], Iterator[Any]]:
        def steps() -> Iterator[Any]:
            drafter, controller, cache = replayer(right), Controller(), make_prompt_cache(model)
            statistics[name] = DraftStatistics()
            written, fed = list(PROMPT), 0
            while len(written) < len(PROMPT) + tokens:
                for step in generate_step(
                    mx.array(written[fed:]),
                    model,
                    drafter=drafter,
                    num_draft_tokens=controller if shared else Controller(),
                    max_tokens=min(answer_tokens, len(PROMPT) + tokens - len(written)),
                    prompt_cache=cache,
                    cached_tokens=written[:fed],
                    statistics=statistics[name],
                ):
                    written.append(step[0])
                    yield step
                fed = len(written) - 1

        return steps

    configurations: dict[str, Callable[[], Iterator[Any]]] = {
        PLAIN: lambda: generate_step(mx.array(PROMPT), model, max_tokens=tokens),
        HOST: lambda: host_generate_step(mx.array(PROMPT), model, max_tokens=tokens),
    }
    lengths = [None, *(int(length) for length in fixed_lengths.split(",") if length)]
    for drafter in names or DRAFTERS:
        right = DRAFTERS[drafter]
        for length in lengths:
            name = f"{drafter}, {'auto' if length is None else length}"
            configurations[name] = drafting(right, length, name)
        for name, shared in ((f"{drafter}, answers alone", False), (f"{drafter}, answers shared", True)):
            configurations[name] = answering(right, shared, name)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in configurations}
    order = list(configurations)
    for round_ in range(rounds):
        for name in order if round_ % 2 == 0 else reversed(order):
            outputs[name], *times = _timed(configurations[name](), learning)
            seconds[name].append((times[0] + times[1], times[1]))
    machine = {
        "machine": platform.platform(),
        "device": str(mx.default_device()),
        "million parameters": round(parameters / 1e6, 1),
        "bits": bits or "float32",
        "tokens": tokens,
        "rounds": rounds,
        "answer": answer_tokens,
        "plain ms a token": round(median(steady for _, steady in seconds[PLAIN]) / (tokens - learning) * 1e3, 3),
        "pass cost": costs,
        "draft cost": [fixed_draft_cost, draft_cost],
    }
    for name in order[1:]:
        line = {"way": name, **_ratios(seconds[name], seconds[PLAIN]), "equal": outputs[name] == outputs[PLAIN]}
        if name in statistics:
            drafted = statistics[name]
            line["tokens per pass"] = round(drafted.tokens_per_pass, 2)
            line["acceptance"] = round(drafted.acceptance_rate, 3)
        click.echo(json.dumps(line))
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, **machine}) + "\n")
    click.echo(json.dumps(machine))


def _model(hidden: int, layers: int, bits: int | None) -> tuple[Any, int]:
    """A Llama of random weights and its number of parameters."""
    heads = max(1, hidden // 64)
    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=3 * hidden,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        rms_norm_eps=1e-5,
        vocab_size=VOCABULARY,
        tie_word_embeddings=False,
    )
    mx.random.seed(0)
    model = llama.Model(args)
    from mlx.utils import tree_flatten

    parameters = sum(weight.size for _, weight in tree_flatten(model.parameters()))
    if bits is not None:
        from mlx.nn import quantize

        quantize(model, bits=bits)
    mx.eval(model.parameters())
    return model, parameters


def _timed(steps: Iterator[Any], learning: int) -> tuple[list[int], float, float]:
    """The tokens, and the seconds of the first ``learning`` after the first one and of the others."""
    tokens = [int(next(steps)[0])]  # the prompt pass ends with it
    began = time.perf_counter()
    tokens += [int(step[0]) for step in islice(steps, learning - 1)]
    learnt = time.perf_counter()
    tokens += [int(step[0]) for step in steps]
    return tokens, learnt - began, time.perf_counter() - learnt


def _ratios(times: Sequence[tuple[float, float]], plain: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The speed compared with plain decoding over the rounds, of all tokens and of the steady part."""
    whole, steady = ([base[part] / mine[part] for mine, base in zip(times, plain, strict=True)] for part in (0, 1))
    return {"speed": round(geometric_mean(whole), 3), "steady speed": round(geometric_mean(steady), 3)}


if __name__ == "__main__":
    main()
