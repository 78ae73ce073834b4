"""What rejection sampling costs a cycle beside exact match: all that is no pass of a model, with real models.

    python benchmarks/sampling_cost.py --draft qwen2.5-coder-0.5b --target gemma3-270m

Both models' passes are evaluated where they are called, and their time is taken off that of the cycle. What is left is
drafting and translating, the draws, the verdict over the whole vocabulary, caches and the loop. Drafts have the same
length, since rows cost most: no rule ends them early, and every proposal is drawn that can be. Each prompt is answered
in both ways, every other one in the opposite order. Prompts are held-out text. Milliseconds of wall clock over cycles
with a draft: quartiles, and their number.

Prints JSON and adds to ``benchmarks/results/sampling_cost.jsonl``. Preload OpenBLAS as README says.
"""

import json
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import click
import mlx.core as mx
from real_artifacts import alignment_of
from real_data import encoded, real_corpus
from real_models import real_model

from spectool.runtime import Sampling, load_drafter
from spectool.runtime.decoding.drafter import Cycle
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.drafters import drawn
from spectool.runtime.models import load_model
from spectool.tokenization import open_tokenizer

RESULTS = Path(__file__).parent / "results" / "sampling_cost.jsonl"
PROMPT = 48


class Timed:
    """A model whose passes are evaluated at once, and timed."""

    def __init__(self, model: Any) -> None:
        self.model, self.seconds, self.passes = model, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return the logits of a pass, evaluated."""
        if inputs[0].size == 1 and "cache" not in options:  # only its shape is read
            return self.model(*inputs)
        mx.eval(*inputs)
        start = perf_counter()
        logits = self.model(*inputs, **options)
        mx.eval(logits)
        self.seconds += perf_counter() - start
        self.passes += 1
        return logits


@click.command()
@click.option("--draft", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--target", default="gemma3-270m", show_default=True)
@click.option("--language", default="pl", show_default=True)
@click.option("--prompts", default=6, show_default=True)
@click.option("--tokens", default=48, show_default=True)
@click.option("--temperature", default=0.7, show_default=True)
@click.option("--num-draft-tokens", "length", default=4, show_default=True)
@click.option("--label", default="now", show_default=True)
def main(
    draft: str, target: str, language: str, prompts: int, tokens: int, temperature: float, length: int, label: str
) -> None:
    """Measure, print and save."""
    model, loaded = load_model(real_model(target))
    drafting, other = load_model(real_model(draft))
    timed, timed_draft = Timed(model), Timed(drafting)
    pair = alignment_of(f"{draft}-{target}", real_model(draft), real_model(target), language)
    drafter = load_drafter(loaded, draft_model=(timed_draft, other), alignment=pair, history=False, min_probability=0.0)
    documents = encoded(open_tokenizer(loaded), real_corpus(language, "valid"), 400_000)
    texts = [ids[:PROMPT] for ids in documents if len(ids) > PROMPT][:prompts]
    costs: dict[str, list[float]] = {"exact": [], "rejection": []}
    passes = dict.fromkeys(costs, 0)

    def answer(ids: list[int], verify: Any, seed: int) -> None:
        mx.random.seed(seed)
        last: list[tuple[float, float, int]] = []

        def ended(cycle: Cycle) -> None:
            now, spent = perf_counter(), timed.seconds + timed_draft.seconds
            if len(last) > 1 and cycle.proposal:  # the first ones also make tables
                costs[verify].append(now - last[-1][0] - (spent - last[-1][1]))
                passes[verify] += timed_draft.passes - last[-1][2]
            last.append((now, spent, timed_draft.passes))

        sampler = Sampling(temp=temperature)
        options: dict[str, Any] = {"num_draft_tokens": length, "max_tokens": tokens, "verify": verify}
        for _ in generate_step(mx.array(ids), timed, drafter=drafter, sampler=sampler, on_cycle=ended, **options):
            pass

    drawn.Arm.upper_bound = property(lambda self: 0.0)  # type: ignore[assignment, method-assign]  # drawing wins a tie
    for number, ids in enumerate(texts):
        for verify in ("exact", "rejection") if number % 2 else ("rejection", "exact"):
            answer(ids, verify, number)
    row: dict[str, Any] = {"label": label, "draft": draft, "target": target, "length": length}
    row |= {"temperature": temperature, "language": language, "prompts": prompts, "tokens": tokens}
    for name, seconds in costs.items():
        row[name] = [round(1000 * part, 3) for part in quantiles(seconds, n=4)] + [len(seconds)]
        row[f"{name}_draft_passes"] = round(passes[name] / len(seconds), 2)
    click.echo(json.dumps(row))
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
