"""Where should a proposal of a draft model end? At one length for all, or by the probabilities of its tokens.

    python benchmarks/real_text.py --model gemma3-270m --language pl --temperature 0.7
    python benchmarks/proposal_ends.py --draft smollm2-135m --target gemma3-270m --language pl

The text that the target wrote is replayed, a real draft model proposing ``k`` tokens in every cycle, through anchored
translation where the tokenizers differ. Of each proposal are kept: the probability P that its first tokens are right,
by the draft's own probabilities; what was accepted. Then proposals end at one length, or where P falls below a
threshold. They end behind the token that takes it there, whose pass is spent (*behind*), or before it (*before*). Speed
is tokens / (passes + rows beside the first x the cost of a row + draft passes x the cost of one). Each rule gets its
best setting, and *behind* the default one, too. Intervals: 95%, bootstrapped over cycles. Adds to
``benchmarks/results/proposal_ends.jsonl``.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click
import mlx.core as mx
import numpy as np
from lockstep import Lockstep, Row, row_length
from real_artifacts import alignment_of
from real_models import real_model
from real_text import Written, read_text, text_path

from spectool.artifacts import Alignment
from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.loading import load_model
from spectool.runtime.translation.factory import make_translator
from spectool.tokenization import Tokenizer, open_tokenizer

RESULTS = Path(__file__).parent / "results" / "proposal_ends.jsonl"
THRESHOLDS = (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
COSTS = ((0.02, 0.05), (0.02, 0.15), (0.05, 0.05), (0.05, 0.15), (0.05, 0.35), (0.1, 0.15), (0.1, 0.35))  # row, draft
_RESAMPLED = 500


class Cycle(NamedTuple):
    """A proposal: P of its first 1, 2, … draft tokens; how many target tokens these make; how many were accepted."""

    right: list[float]
    rows: list[int]
    accepted: int


class Source(ModelSource):
    """Keeps the probability of each draft token, the first one among all that fit the frontier."""

    def draft(self, *arguments):
        """Draft as ever."""
        self.probabilities = []
        return super().draft(*arguments)

    def _chain(self, first, likely, *arguments):
        self.probabilities = [mx.exp(likely).item()]
        return super()._chain(first, likely, *arguments)

    def _best(self, logits):
        token, likely = super()._best(logits)
        self.probabilities.append(mx.exp(likely).item())
        return token, likely


def replay(
    alignment: Alignment, sides: tuple[Tokenizer, Tokenizer], k: int, cycles: list[Cycle], text: Written, row: Row
) -> None:
    """Replay a text, and note what was proposed."""
    draft, target = (side.surfaces for side in sides)
    source = Source(row, bos=sides[0].roles.bos, size=sides[0].size)
    translator, place = make_translator("anchored", alignment, *sides), 0
    translator.commit(text.prompt)
    while place < len(text.output):
        context = translator.draft_context()
        drafts, healed = source.draft(context, translator.constraint(), k)
        ids = translator.translate(drafts, healed) if drafts else []
        behind = len(draft[context.ids[-1]]) if healed else 0
        said = np.cumsum([len(draft[token]) for token in drafts]) - behind
        rows = np.searchsorted(np.cumsum([len(target[token]) for token in ids]), said, side="right")
        accepted = accepted_length(ids, text.output[place : place + len(ids) + 1])
        cycles.append(Cycle(np.cumprod(source.probabilities).tolist(), rows.tolist(), accepted))
        translator.commit(text.output[place : place + accepted + 1])
        place += accepted + 1


Ends = Callable[[Cycle, float], tuple[int, int]]


def at_length(cycle: Cycle, length: float) -> tuple[int, int]:
    """Return how many draft tokens are made, and how many are kept."""
    return (min(int(length), len(cycle.right)),) * 2


def behind(cycle: Cycle, threshold: float) -> tuple[int, int]:
    """Return how many draft tokens are made, and how many are kept."""
    made = next((place + 1 for place, p in enumerate(cycle.right) if p < threshold), len(cycle.right))
    return made, made


def before(cycle: Cycle, threshold: float) -> tuple[int, int]:
    """Return how many draft tokens are made, and how many are kept."""
    made, _ = behind(cycle, threshold)
    return made, made - (made > 0 and cycle.right[made - 1] < threshold)


def best(
    cycles: Sequence[Cycle], costs: tuple[float, float], ends: Ends, settings: Sequence[float]
) -> tuple[float, np.ndarray]:
    """Return the best setting of a rule, its speed and that of resampled cycles; always the same draws."""
    drawn = np.random.default_rng(0).integers(len(cycles), size=(_RESAMPLED, len(cycles)))
    found = []
    for setting in settings:
        made, kept = np.array([ends(cycle, setting) for cycle in cycles]).T
        rows = np.array([cycle.rows[most - 1] if most else 0 for cycle, most in zip(cycles, kept, strict=True)])
        tokens = 1 + np.minimum([cycle.accepted for cycle in cycles], rows)
        spent = 1 + costs[0] * rows + costs[1] * made
        speeds = tokens[drawn].sum(axis=1) / spent[drawn].sum(axis=1)
        found.append((setting, np.array([tokens.sum() / spent.sum(), *speeds])))
    return max(found, key=lambda one: one[1][0])


def beside(setting: float, speed: np.ndarray, other: np.ndarray) -> list[float]:
    """Return a setting, its speed, and the interval of how much more that is than another one."""
    return [setting, *(round(float(p), 4) for p in (speed[0], *np.quantile(speed[1:] / other[1:] - 1, (0.025, 0.975))))]


@click.command()
@click.option("--draft", default="smollm2-135m", show_default=True)
@click.option("--target", default="gemma3-270m", show_default=True)
@click.option("--language", default="pl", show_default=True)
@click.option("--temperature", default=0.7, show_default=True, help="Of the text that the target wrote.")
@click.option("--texts", default=12, show_default=True)
@click.option("--num-draft-tokens", "k", default=8, show_default=True)
def main(draft: str, target: str, language: str, temperature: float, texts: int, k: int) -> None:
    """Replay, cut, and print."""
    model, loaded = load_model(real_model(draft))
    paths = Path(real_model(draft)), Path(real_model(target))
    sides = open_tokenizer(loaded), open_tokenizer(str(paths[1]))
    alignment = Alignment(alignment_of(f"{draft}-{target}-{language}", *paths, language))
    written = list(islice(read_text(text_path(target, language, temperature)), texts))
    lockstep = Lockstep(model, len(written), row_length(([*text.prompt, *text.output] for text in written), *sides))
    cycles: list[Cycle] = []
    lockstep.run(partial(replay, alignment, sides, k, cycles, text) for text in written)
    for costs in COSTS:
        length, fixed = best(cycles, costs, at_length, range(k + 1))
        rules = {
            "behind": (behind, THRESHOLDS),
            "before": (before, THRESHOLDS),
            "default": (behind, (MIN_PROBABILITY,)),
        }
        row = {
            "draft": draft,
            "target": target,
            "language": language,
            "temperature": temperature,
            "k": k,
            "cycles": len(cycles),
            "row": costs[0],
            "draft pass": costs[1],
            "one length": [int(length), round(float(fixed[0]), 4)],
            **{name: beside(*best(cycles, costs, *rule), fixed) for name, rule in rules.items()},
        }
        click.echo(json.dumps(row))
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    accepted = np.array([cycle.accepted for cycle in cycles])
    least = accepted[np.random.default_rng(0).integers(len(cycles), size=(100_000, 5))].min(axis=1)
    click.echo(f"{len(cycles):,} cycles; tokens a pass: {1 + accepted.mean():.3f}")
    click.echo(f"five texts that all keep what the least of them accepted: {1 + least.mean():.4f}")


if __name__ == "__main__":
    main()
