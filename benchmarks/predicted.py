"""Compares the range that `predict` gives for this machine with the speed that `bench` measures.

    python benchmarks/predicted.py --model qwen2.5-coder-0.5b --dict pl.dict --runs 5
    python benchmarks/predicted.py --model qwen2.5-coder-1.5b --dict pl.dict --runs 10 \\
        --draft-model gemma-pl --alignment gemma-qwen.align

Each run measures passes as `doctor` does, lets `bench` decode a few prompts plainly and with dictionary, history and
draft model if there is one, and replays the very texts that came of it. Prints, and appends to
``benchmarks/results/predicted.jsonl``.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click
from real_models import real_model
from saving import BLAS, save

from spectool.measure.bench.prompts import ids_of_prompt, load_prompts
from spectool.measure.bench.results import PLAIN, DrafterSpec, Options
from spectool.measure.bench.run import run_benchmark
from spectool.measure.doctor import measure_costs
from spectool.measure.machines import machine_here
from spectool.measure.predict import RecordedModel, Text, predict
from spectool.runtime import DrafterSet, load_drafter
from spectool.runtime.loading import load_model
from spectool.runtime.policy.costs import model_key
from spectool.runtime.policy.pass_costs import save_costs
from spectool.tokenization.opening import open_tokenizer


@click.command()
@click.option("--model", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--dict", "dictionary", type=click.Path(path_type=Path), required=True)
@click.option("--draft-model", "draft", type=click.Path(exists=True))
@click.option("--alignment", type=click.Path(exists=True))
@click.option("--language", default="pl", show_default=True)
@click.option("--runs", default=5, show_default=True)
@click.option("--prompts", "count", default=4, show_default=True)
@click.option("--tokens", default=48, show_default=True)
def main(model: str, dictionary: Path, draft: str | None, alignment: str | None, runs: int, **settings: Any) -> None:
    """Measure, compare and save."""
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    path = real_model(model)
    sources: dict[str, Any] = {"dictionary": (str(dictionary),), "history": True}
    if draft is not None:
        sources |= {"draft_model": draft, "alignment": alignment}
    about = {"model": model, "blas": BLAS} | ({"draft": Path(draft).name} if draft else {})
    inside = 0
    for seed in range(runs):
        for name in filter(None, (path, draft)):
            loaded, tokenizer = load_model(name)
            save_costs(model_key(loaded), measure_costs(loaded, tokenizer, name))
        found = one_run(path, sources, seed, **settings)
        inside += found["low"] <= found["measured"] <= found["high"]
        click.echo(json.dumps({**about, **found}))
        save("predicted", {**about, **settings, **found})
    click.echo(f"{inside} of {runs} in the range")


def one_run(path: str, sources: dict[str, Any], seed: int, language: str, count: int, tokens: int) -> dict[str, float]:
    """The range, and the speed that was measured."""
    options = Options(path, {"drafts": DrafterSpec((), sources)}, language, count, tokens=tokens, temp=0.7, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        run = run_benchmark(options, Path(folder) / "run", lambda line: None)
    tokenizer = load_model(path, lazy=True)[1]
    prompts = [ids_of_prompt(each, tokenizer) for each in load_prompts(language, open_tokenizer(path), count, 0)]
    drafted = [block.by_configuration["drafts", None] for block in run.blocks]
    plainly = [block.by_configuration[PLAIN, 0] for block in run.blocks]
    plain = sum(each.seconds / each.tokens * one.tokens for each, one in zip(plainly, drafted, strict=True))
    texts = [Text(prompt, one.output) for prompt, one in zip(prompts, drafted, strict=True)]
    found = load_drafter(open_tokenizer(path), **sources)
    assert isinstance(found, DrafterSet)
    machine, model = machine_here(load_model(path, lazy=True)[0], path), None
    if draft := sources.get("draft_model"):
        assert found.cache is not None
        model = RecordedModel(found.members[1])
        machine = machine._replace(draft=machine.draft_costs(found.cache.model, draft))
    expected = predict(texts, machine, found.members[0], model)
    measured = plain / sum(one.seconds for one in drafted)
    return {"low": round(expected.low, 3), "measured": round(measured, 3), "high": round(expected.high, 3)}


if __name__ == "__main__":
    main()
