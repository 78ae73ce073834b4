"""Seconds with pretrained models: every configuration, plain decoding and mlx-lm's own speculative decoding in turns.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 OPENBLAS_NUM_THREADS=1 \\
        python benchmarks/real_speed.py --same qwen2.5-coder-0.5b --draft smollm2-135m --language pl

``--same`` has the target's tokenizer, so mlx-lm's own loop drafts with it as well. ``--draft`` has another one, and
its tokens are translated. Prompts are those of ``real_text.py``. Above temperature 0, the noise that draws a token
depends only on prompt and position, so every configuration must write the same text. Each prompt is decoded in all
configurations, and every other prompt in the opposite order.

The speed is the median, with quartiles, of the seconds of mlx-lm's plain loop divided by those of the configuration on
the same prompt, without the time for reading the prompt. ``auto`` learns from prompt to prompt, as ``chat`` and
``serve`` do, and starts from what ``spectool doctor`` has measured. With ``--busy N``, N other processes keep the
processor busy all the time. Prints a table and appends to ``benchmarks/results/real_speed.jsonl``.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import click
import mlx.core as mx
from mlx_lm.generate import generate_step as plain_step
from mlx_lm.generate import speculative_generate_step
from pass_cost import pass_cost
from real_data import alignment_of, dictionary_of
from real_models import real_model
from real_text import drawn, prompt_ids, real_prompts
from saving import BLAS, save
from tqdm import tqdm

from spectool.runtime import DraftStatistics, generate_step, load_drafter
from spectool.runtime.loading import load_model

PLAIN = "mlx-lm, plain"
LOOK_UPS = "dictionary + history"
THEIRS = 4  # draft tokens of mlx-lm's own speculative decoding
PASSES = (2, 5, 9, 17)  # tokens of the passes whose cost is shown


@dataclass
class Configuration:
    """How to decode, and what was measured.

    Attributes:
        steps: Starts a generation, from a prompt, a number of tokens and logits processors.
        statistics: What spectool's loop counted; empty for mlx-lm's.
    """

    steps: Callable[[mx.array, int, Any], Iterator[tuple[Any, ...]]]
    statistics: DraftStatistics = field(default_factory=DraftStatistics)
    seconds: list[float] = field(default_factory=list)  # of each generation, after its first token
    tokens: int = 0
    passes: int = 0
    other_texts: int = 0

    def run(self, prompt: list[int], tokens: int, noise: Any) -> list[int]:
        """Decode; return the tokens."""
        output: list[int] = []
        for token, _, *drafted in self.steps(mx.array(prompt), tokens, noise):
            if not output:
                began = time.perf_counter()
            output.append(int(token))
            self.passes += drafted != [True]  # a pass ends with a token of the target's own
        self.seconds.append(time.perf_counter() - began)
        self.tokens += len(output)
        return output

    def figures(self, plain: "Configuration") -> dict[str, Any]:
        """Speed compared with plain decoding, and what was drafted."""
        speeds = [theirs / ours for theirs, ours in zip(plain.seconds, self.seconds, strict=True)]
        low, _, high = quantiles(speeds, n=4) if len(speeds) > 1 else speeds * 3
        return {
            "speed": round(median(speeds), 3),
            "quartiles": [round(low, 3), round(high, 3)],
            "speeds": [round(speed, 3) for speed in speeds],
            "other texts": self.other_texts,
            "tokens per pass": round(self.tokens / max(1, self.passes), 3),
            "acceptance": round(self.statistics.acceptance_rate, 3) if self.statistics.proposed else None,
        }


@click.command()
@click.option("--target", default="qwen2.5-coder-1.5b", show_default=True)
@click.option("--same", help="Draft model with the target's tokenizer; none by default.")
@click.option("--draft", "drafts", multiple=True, help="Draft model with another tokenizer; repeatable.")
@click.option("--language", default="pl", show_default=True)
@click.option("--temperature", default=0.7, show_default=True)
@click.option("--prompts", "number", default=5, show_default=True)
@click.option("--tokens", default=64, show_default=True, help="Tokens of an answer.")
@click.option("--num-draft-tokens", "lengths", multiple=True, default=("auto", "4"), show_default=True)
@click.option("--busy", default=0, help="Processes that keep the processor busy.")
def main(
    target: str,
    same: str | None,
    drafts: tuple[str, ...],
    language: str,
    temperature: float,
    number: int,
    tokens: int,
    lengths: tuple[str, ...],
    busy: int,
) -> None:
    """Measure, print and save."""
    for _ in range(busy):
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        click.get_current_context().call_on_close(process.kill)
    model, tokenizer = load_model(real_model(target))
    prompts = [prompt_ids(tokenizer, target, text) for text in real_prompts(target, language, number)]
    measured = {PLAIN: Configuration(lambda p, n, noise: plain_step(p, model, max_tokens=n, logits_processors=noise))}
    if same:
        measured[f"mlx-lm, {same}, {THEIRS}"] = theirs(model, load_model(real_model(same))[0])
    for length in lengths:
        for name, drafter in drafters(target, language, same, drafts):
            measured[f"{name}, {length}"] = ours(model, drafter, int(length) if length.isdigit() else None)
    with tqdm(total=len(prompts) * len(measured), unit=" answers") as bar:
        for turn, prompt in enumerate(prompts):
            noise = [drawn(temperature, turn, model(mx.array([[0]])).shape[-1])] if temperature else None
            expected: list[int] = []
            for name in list(measured)[:: -1 if turn % 2 else 1]:
                output = measured[name].run(prompt, tokens, noise)
                expected = expected or output
                measured[name].other_texts += output != expected
                bar.update()
    about = {
        "target": target,
        "language": language,
        "temperature": temperature,
        "prompts": len(prompts),
        "tokens": tokens,
        "busy": busy,
        "blas": BLAS,
        "machine": platform.machine(),
        "plain ms a token": round(median(measured[PLAIN].seconds) / (tokens - 1) * 1e3, 1),
        "pass cost": {size: round(pass_cost(model, size), 2) for size in PASSES},
    }
    click.echo(json.dumps(about))
    for name, configuration in measured.items():
        figures = configuration.figures(measured[PLAIN])
        click.echo(f"{name:<60} " + "  ".join(f"{key} {figures[key]}" for key in figures if key != "speeds"))
        save("real_speed", {**about, "configuration": name, **figures})
    for name, length in product((Path(each).name for each in (same, *drafts) if each), lengths):
        together = measured[f"{name} + {LOOK_UPS}, {length}"].seconds
        members = measured[f"{name}, {length}"].seconds, measured[f"{LOOK_UPS}, {length}"].seconds
        gains = [min(each) / seconds for seconds, *each in zip(together, *members, strict=True)]
        click.echo(f"{name} + {LOOK_UPS}, {length}, over its better member in each answer: {median(gains):.3f}")
        click.echo("   " + " ".join(f"{gain:.2f}" for gain in gains))


def ours(model: Any, drafter: Any, length: int | None) -> Configuration:
    """Decode with spectool's loop."""
    statistics = DraftStatistics()

    def steps(prompt: mx.array, tokens: int, noise: Any) -> Iterator[tuple[Any, ...]]:
        options = {"max_tokens": tokens, "logits_processors": noise, "statistics": statistics}
        return generate_step(prompt, model, drafter=drafter, num_draft_tokens=length, **options)

    return Configuration(steps, statistics)


def theirs(model: Any, draft: Any) -> Configuration:
    """Decode with mlx-lm's own speculative loop."""

    def steps(prompt: mx.array, tokens: int, noise: Any) -> Iterator[tuple[Any, ...]]:
        options = {"num_draft_tokens": THEIRS, "max_tokens": tokens, "logits_processors": noise}
        return speculative_generate_step(prompt, model, draft, **options)

    return Configuration(steps)


def drafters(target: str, language: str, same: str | None, drafts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield every drafter by name."""
    where, look_ups = real_model(target), {"dictionary": dictionary_of(target, language)}
    yield LOOK_UPS, load_drafter(where, **look_ups)
    for draft in filter(None, (same, *drafts)):
        pair: dict[str, Any] = {"draft_model": load_model(real_model(draft))}
        pair |= {} if draft == same else {"alignment": alignment_of(draft, target, language)}
        name = Path(draft).name
        yield name, load_drafter(where, **pair, history=False)
        yield f"{name} + {LOOK_UPS}", load_drafter(where, **look_ups, **pair)


if __name__ == "__main__":
    main()
