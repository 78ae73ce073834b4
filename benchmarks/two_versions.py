"""Seconds of two checkouts of spectool on a pretrained model, in turns, each from a fresh start.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 OPENBLAS_NUM_THREADS=1 \\
        python benchmarks/two_versions.py --old ../old --old-drafter '{"dictionary": "old.dict"}' \\
        --new . --new-drafter '{"dictionary": "new.dict"}' --target qwen2.5-coder-0.5b --temperature 0.7

Each checkout has its environment in ``.venv``, and runs in a process of its own with an empty cache, so that both have
everything still to learn. Both decode every prompt, and mlx-lm's plain loop as well; every other prompt in the
opposite order. The first three prompts come once more at the end: how fast they were at first, compared with then, says
what a fresh start costs. With ``--old-cache`` and ``--new-cache``, such as folders that ``doctor`` of each has filled
as XDG_CACHE_HOME, nothing is measured first, so only the choices differ. Above temperature 0, the noise that draws a
token depends on prompt and position alone, so all must write the same text.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import click
from real_models import real_model

AGAIN = 3  # prompts that come again at the end


class Checkout:
    """A process that decodes with the spectool of one checkout."""

    def __init__(self, root: Path, settings: dict[str, Any], cache: str) -> None:
        command = [str(root / ".venv" / "bin" / "python"), __file__, "--decode", json.dumps(settings)]
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": str(root / "benchmarks")}
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)
        self.answers: list[dict[str, Any]] = []

    def decode(self, turn: int, plain: bool = False) -> dict[str, Any]:
        """The tokens of an answer, and its seconds after the first token."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps([turn, plain]), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()


def decode(
    target: str, path: str, drafter: dict[str, str], language: str, temperature: float, prompts: int, tokens: int
) -> None:
    """Answer the prompts that standard input names."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step as plain_step
    from real_text import drawn, prompt_ids, real_prompts

    from spectool.runtime import DraftStatistics, generate_step, load_drafter
    from spectool.runtime.loading import load_model

    model, tokenizer = load_model(path)
    texts = [prompt_ids(tokenizer, target, text) for text in real_prompts(target, language, prompts)]
    ours = load_drafter(path, **drafter)
    for turn, plain in map(json.loads, sys.stdin):
        noise = [drawn(temperature, turn, model(mx.array([[0]])).shape[-1])] if temperature else None
        options: dict[str, Any] = {"max_tokens": tokens, "logits_processors": noise}
        counted = DraftStatistics()
        prompt = mx.array(texts[turn])
        steps = (
            plain_step(prompt, model, **options)
            if plain
            else generate_step(prompt, model, drafter=ours, statistics=counted, **options)
        )
        output: list[int] = []
        passes, began = 0, time.perf_counter()
        for token, _, *drafted in steps:
            began = began if output else time.perf_counter()
            output.append(int(token))
            passes += drafted != [True]
        print(json.dumps({"tokens": output, "seconds": time.perf_counter() - began, "passes": passes}), flush=True)


@click.command()
@click.option("--old", type=click.Path(path_type=Path))
@click.option("--new", type=click.Path(path_type=Path))
@click.option("--old-drafter", default="{}", help="Arguments of load_drafter, as JSON.")
@click.option("--new-drafter", default="{}", help="The same for the other checkout.")
@click.option("--old-cache", type=click.Path(exists=True), help="Cache folder; by default an empty one.")
@click.option("--new-cache", type=click.Path(exists=True), help="The same for the other checkout.")
@click.option("--target", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--language", default="pl", show_default=True)
@click.option("--temperature", default=0.0, show_default=True)
@click.option("--prompts", default=12, show_default=True)
@click.option("--tokens", default=64, show_default=True)
@click.option("--plain/--no-plain", default=True, help="Whether mlx-lm's own loop decodes as well.")
@click.option("--decode", "settings", hidden=True)
def main(
    old: Path,
    new: Path,
    old_drafter: str,
    new_drafter: str,
    old_cache: str | None,
    new_cache: str | None,
    plain: bool,
    settings: str | None,
    **shared: Any,
) -> None:
    """Measure and print."""
    if settings:
        decode(**json.loads(settings))
        return
    path = real_model(shared["target"])
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        drafters = json.loads(old_drafter), json.loads(new_drafter)
        sides = [
            Checkout(root, {**shared, "path": path, "drafter": drafter}, cache)
            for root, drafter, cache in zip((old, new), drafters, (old_cache or one, new_cache or two), strict=True)
        ]
        reference: list[dict[str, Any]] = []
        for number, turn in enumerate([*range(shared["prompts"]), *range(AGAIN)]):
            for side in sides[:: -1 if number % 2 else 1]:
                side.answers.append(side.decode(turn))
            if plain:
                reference.append(sides[number % 2].decode(turn, plain=True))
            seconds = [each[-1]["seconds"] for each in (*(side.answers for side in sides), reference) if each]
            click.echo(f"{turn:3}  " + "  ".join(f"{each:.2f} s" for each in seconds))
        for side in sides:
            side.close()
    click.echo(json.dumps(shared))
    for name, side in zip(("old", "new"), sides, strict=True):
        once, again = side.answers[:-AGAIN], side.answers[-AGAIN:]
        first = median(later["seconds"] / at_first["seconds"] for later, at_first in zip(again, once, strict=False))
        per_pass = sum(len(each["tokens"]) for each in once) / sum(each["passes"] for each in once)
        click.echo(f"{name}: {per_pass:.2f} tokens a pass; first three answers {first:.3f} as fast as the same later")
        if plain:
            click.echo(f"   times plain: {spread(reference, side.answers)}")
    click.echo(f"new, times old: {spread(sides[0].answers, sides[1].answers)}")
    texts = zip(*(each for each in (*(side.answers for side in sides), reference) if each), strict=True)
    click.echo(f"texts that differ: {sum(len({str(each['tokens']) for each in answers}) > 1 for answers in texts)}")


def spread(slow: list[dict[str, Any]], fast: list[dict[str, Any]]) -> str:
    """Median and quartiles of how much faster the answers to the different prompts were."""
    pairs = zip(slow[:-AGAIN], fast[:-AGAIN], strict=True)
    low, middle, high = quantiles([one["seconds"] / other["seconds"] for one, other in pairs], n=4)
    return f"{middle:.3f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
