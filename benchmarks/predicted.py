"""Compares the range that `predict` gives for this machine with the speed that `bench` measures.

    python benchmarks/predicted.py --model qwen2.5-coder-0.5b --dict pl.dict --runs 5

Each run measures passes as `doctor` does, lets `bench` decode a few prompts plainly and with dictionary and history,
and replays the very texts that came of it. Prints, and appends to ``benchmarks/results/predicted.jsonl``.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click
from real_models import real_model

from spectool.artifacts.dictionary import Dictionary
from spectool.measure.bench.prompts import ids_of_prompt, load_prompts
from spectool.measure.bench.results import PLAIN, DrafterSpec, Options
from spectool.measure.bench.run import run_benchmark
from spectool.measure.doctor import measure_costs
from spectool.measure.predict import APART, MEASURED, Machine, predict
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import LEAST_OF_LOOKUPS, load_model
from spectool.runtime.policy.costs import model_key
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.pass_costs import save_costs
from spectool.tokenization.opening import open_tokenizer

RESULTS = Path(__file__).parent / "results" / "predicted.jsonl"


@click.command()
@click.option("--model", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--dict", "dictionary", type=click.Path(path_type=Path), required=True)
@click.option("--language", default="pl", show_default=True)
@click.option("--runs", default=5, show_default=True)
@click.option("--prompts", "count", default=4, show_default=True)
@click.option("--tokens", default=48, show_default=True)
def main(model: str, dictionary: Path, runs: int, **settings: Any) -> None:
    """Measure, compare and save."""
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    path = str(real_model(model))
    loaded, tokenizer = load_model(path)
    inside = 0
    for seed in range(runs):
        costs = measure_costs(loaded, tokenizer, model)
        save_costs(model_key(loaded), costs)
        machine = Machine(PassCurve(costs.seconds, costs.plain), MEASURED, noise=APART)
        found = one_run(path, tokenizer, dictionary, seed, machine, **settings)
        inside += found["low"] <= found["measured"] <= found["high"]
        blas = "OpenBLAS" if "openblas" in os.environ.get("LD_PRELOAD", "") else "reference"
        click.echo(json.dumps({"model": model, "blas": blas, **found}))
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"model": model, "blas": blas, **settings, **found}) + "\n")
    click.echo(f"{inside} of {runs} in the range")


def one_run(
    path: str, tokenizer: Any, dictionary: Path, seed: int, machine: Machine, language: str, count: int, tokens: int
) -> dict[str, float]:
    """The range, and the speed that was measured."""
    spec = DrafterSpec((), {"dictionary": (str(dictionary),), "history": True})
    options = Options(path, {"look-ups": spec}, language, count, tokens=tokens, temp=0.7, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        run = run_benchmark(options, Path(folder) / "run", lambda line: None, _NoProgress)
    prompts = [ids_of_prompt(each, tokenizer) for each in load_prompts(language, open_tokenizer(path), count, 0)]
    drafted = [block.by_configuration["look-ups", None] for block in run.blocks]
    plainly = [block.by_configuration[PLAIN, 0] for block in run.blocks]
    plain = sum(each.seconds / each.tokens * one.tokens for each, one in zip(plainly, drafted, strict=True))
    drafter = LookupDrafter(Dictionary(dictionary), True, LEAST_OF_LOOKUPS)
    found = predict([one.output for one in drafted], drafter, machine, prompts=prompts)
    measured = plain / sum(one.seconds for one in drafted)
    return {"low": round(found.low, 3), "measured": round(measured, 3), "high": round(found.high, 3)}


class _NoProgress:
    def __init__(self, *about: object) -> None:
        pass

    def __enter__(self) -> Any:
        return lambda step: None

    def __exit__(self, *error: object) -> None:
        pass


if __name__ == "__main__":
    main()
