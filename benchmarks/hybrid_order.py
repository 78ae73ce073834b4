"""What a draft model adds to dictionary and history, and how often it is worth being asked.

    python benchmarks/train_models.py pl uk three     # the models, once
    python benchmarks/hybrid_order.py                 # with OpenBLAS as in benchmarks/train_models.py: faster
    python benchmarks/hybrid_order.py --case pl qwen pl --text generated

Held-out text, or text that the target has drawn, is replayed as the target's output. Passes are counted, not timed, so
every figure can be had again. Configurations:

    look-up         dictionary and history, up to 8 tokens
    model, k        the draft model in every pass, k tokens
    expected gain   all of them, the model asked where that promises more tokens in the same time (`HybridDrafter`)

Time is counted in target passes. A draft pass costs ``--draft-cost`` of one, a look-up nothing. The verification of a
few more tokens costs nothing either. Speed is tokens over that time; plain decoding has 1. The order by expected gain
knows the cost and learns the rest as it goes.

Prints a Markdown table and adds to ``benchmarks/results/hybrid_order.jsonl``. Tokenizers and corpora come from the
folder named by SPECTOOL_SHARED.
"""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import real_artifacts
from mlx_lm.generate import generate_step
from real_data import encoded, real_corpus
from tqdm import tqdm
from train_models import MODELS

from spectool.measure.emulate import replay
from spectool.runtime import load_drafter
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.drafters.hybrid import HybridDrafter
from spectool.runtime.models import load_model
from spectool.tokenization import open_tokenizer

RESULTS = Path(__file__).parent / "results" / "hybrid_order.jsonl"
CASES = (
    ("three", "draft", "pl"),
    ("pl", "qwen", "pl"),
    ("pl", "apt4", "pl"),
    ("uk", "qwen", "uk"),
    ("uk", "bielik", "uk"),
)
_PROPOSED = 8  # tokens in one pass at most
_PROMPT = 24  # tokens of a document that the target goes on from
_DRAWN = 120  # tokens after it
_TEMPERATURE = 0.7  # greedy text of a small model runs in circles, which flatters the history

Documents = list[list[int]]


class Counted:
    """A model that counts its passes."""

    def __init__(self, model: Any) -> None:
        """Stand for ``model``."""
        self.passes = 0
        self._model = model

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        """Run a pass; without a cache it is never computed, and not counted."""
        self.passes += cache is not None
        return self._model(tokens, cache=cache)

    def __getattr__(self, name: str) -> Any:
        """Return what the model has."""
        return getattr(self._model, name)


@click.command()
@click.option("--case", "cases", type=(str, str, str), multiple=True, default=CASES, help="Recipe, draft and language.")
@click.option("--models", type=click.Path(path_type=Path), default=MODELS, help="Where the trained models are.")
@click.option("--text", type=click.Choice(["held-out", "generated", "both"]), default="both", show_default=True)
@click.option("--tokens", default=300, show_default=True, help="Target tokens to replay, of each text.")
@click.option(
    "--num-draft-tokens", "lengths", multiple=True, default=(2,), show_default=True, help="Of the model alone."
)
@click.option("--draft-cost", "costs", multiple=True, default=(0.05, 0.2), show_default=True, help="In target passes.")
def main(
    cases: tuple[tuple[str, str, str], ...],
    models: Path,
    text: str,
    tokens: int,
    lengths: tuple[int, ...],
    costs: tuple[float, ...],
) -> None:
    """Replay every text with every configuration; save and print."""
    lines = []
    for recipe, draft, language in cases:
        target, loaded = load_model(str(models / recipe / "target"))
        tokenizer = open_tokenizer(loaded)
        held_out = list(encoded(tokenizer, real_corpus(language, "valid"), tokens))
        texts = {"held-out": held_out, "generated": drawn(target, held_out, tokens) if text != "held-out" else []}
        counted, configurations = drafting(models / recipe, draft, language, loaded, lengths, costs)
        for kind in texts if text == "both" else (text,):
            for configuration, make in tqdm(configurations.items(), desc=f"{recipe} {draft} {kind}", disable=None):
                counted.passes = 0
                drafter, most = make()
                statistics = replay(texts[kind], drafter, most)
                passes, asked = statistics.passes / statistics.tokens, counted.passes / statistics.tokens
                known = [cost for cost in costs if configuration == f"expected gain, {cost:g}"] or costs
                line = {
                    "recipe": recipe,
                    "draft": draft,
                    "language": language,
                    "text": kind,
                    "tokens": statistics.tokens,
                    "way": configuration,
                    "tokens per pass": round(1 / passes, 4),
                    "draft passes per token": round(asked, 4),
                    "acceptance": round(statistics.acceptance_rate, 4),
                    "speed": {f"{cost:g}": round(1 / (passes + cost * asked), 4) for cost in known},
                }
                lines.append(line)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    click.echo(markdown(lines, costs))


def drafting(
    recipe: Path, draft: str, language: str, tokenizer: Any, lengths: tuple[int, ...], costs: tuple[float, ...]
) -> tuple[Counted, dict[str, Callable[[], tuple[Drafter, int]]]]:
    """Return the draft model, and what makes each configuration: a new drafter, and the tokens to ask it for."""
    model, loaded = load_model(str(recipe / draft))
    counted = Counted(model)
    foreign = open_tokenizer(loaded).fingerprint != open_tokenizer(tokenizer).fingerprint
    aligned = real_artifacts.alignment(recipe, draft, language) if foreign else None
    dictionary = real_artifacts.dictionary(recipe, language)

    def by_model() -> Drafter:
        return load_drafter(tokenizer, draft_model=(counted, loaded), alignment=aligned, history=False)

    def by_look_up() -> Drafter:
        return load_drafter(tokenizer, dictionary=dictionary)

    configurations: dict[str, Callable[[], tuple[Drafter, int]]] = {"look-up": lambda: (by_look_up(), _PROPOSED)}
    configurations |= {f"model, {length}": lambda length=length: (by_model(), length) for length in lengths}
    configurations |= {
        f"expected gain, {cost:g}": lambda cost=cost: (HybridDrafter([by_look_up(), by_model()], cost), _PROPOSED)
        for cost in costs
    }
    return counted, configurations


def drawn(target: Any, documents: Documents, tokens: int) -> Documents:
    """Return beginnings of documents as the target goes on with them, ``tokens`` in all."""
    mx.random.seed(0)
    made = []
    for document in islice((d for d in documents if len(d) >= _PROMPT), max(1, tokens // (_PROMPT + _DRAWN))):
        prompt = document[:_PROMPT]
        steps = generate_step(
            mx.array(prompt),
            target,
            max_tokens=_DRAWN,
            sampler=lambda logprobs: mx.random.categorical(logprobs / _TEMPERATURE),
        )
        made.append([*prompt, *(int(token) for token, _ in steps)])
    return made


def markdown(lines: list[dict[str, Any]], costs: tuple[float, ...]) -> str:
    """Lay the figures out as a table."""
    header = ["draft", "text", "way", "tokens per pass", "draft passes per token", "acceptance"]
    header += [f"speed at {cost:g}" for cost in costs]
    rows = ["| " + " | ".join(header) + " |", "|---|---|---" + "|---:" * (len(header) - 3) + "|"]
    for line in lines:
        cells = [f"{line['recipe']} {line['draft']}", f"{line['language']}, {line['text']}", line["way"]]
        cells += [
            f"{line['tokens per pass']:.3f}",
            f"{line['draft passes per token']:.3f}",
            f"{line['acceptance']:.1%}",
        ]
        cells += [f"{line['speed'][key]:.3f}" if (key := f"{cost:g}") in line["speed"] else "" for cost in costs]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
