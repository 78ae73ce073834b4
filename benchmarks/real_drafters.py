"""Drafters on text that pretrained models wrote: dictionary and history, and drafts of another tokenizer.

    python benchmarks/real_text.py --model gemma3-270m --language pl --temperature 0.7
    python benchmarks/real_drafters.py --model gemma3-270m
    python benchmarks/real_drafters.py --model qwen2.5-coder-1.5b --draft gemma3-270m
    python benchmarks/real_drafters.py --model qwen2.5-coder-1.5b --draft gemma3-270m --first-ids

Every text of a model that ``real_text.py`` has kept is replayed after its prompt with each drafter, with k draft tokens
per cycle. The replay takes as many passes as generating would have taken, because all these drafts are single tokens,
verified by exact match. Dictionaries are built once, from other text of the language. Intervals are 95% intervals,
bootstrapped over prompts. Without ``--draft``, dictionary and history are compared with the published look-ups. With
it, the published ways to translate its drafts are compared with the runtime's; ``gain`` is tokens per pass - 1, and
``translation us`` is the median of the processor microseconds of a cycle's translations.

With ``--draft-cost``, every text is instead replayed with look-ups, the draft model and both, each with a policy
for all texts, on a simulated machine whose passes cost what ``--row-cost`` and ``--draft-cost`` say, as noisily as
``--noise`` says, and compared with the best choices in hindsight. The draft model is asked at every position of a text,
which takes minutes. With ``--first-ids``, it is asked there for 1, 2, 4 and 8 tokens, and the share of first ids that
are right is printed.

Prints JSON lines and appends to ``benchmarks/results/real_drafters.jsonl``. On Linux, preload OpenBLAS as in
``real_speed.py``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import click
import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from overhead import outside
from real_data import alignment_of, dictionary_of, dictspec_of, tokenizer_of
from real_models import real_model
from real_text import FOLDER, Written, read_text, repeated_4_grams
from saving import save

from spectool.artifacts.alignment import Alignment
from spectool.artifacts.dictionary import MIN_PROBABILITY, Dictionary
from spectool.lab.dictspec import DictSpecDrafter
from spectool.lab.hindsight import Machine, Saved, best_seconds, play, policy_for, record
from spectool.lab.prompt_lookup import FallbackDrafter, PromptLookupDrafter
from spectool.lab.strategies import MOST_IDS_A_DRAFT_TOKEN, IntersectionTranslator, make_translator
from spectool.measure.replay import replay
from spectool.runtime import DrafterSet, DraftStatistics, load_drafter
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.loading import load_model
from spectool.tokenization.opening import open_tokenizer

STRATEGIES = ("context", "naive", "intersection", "byte-aligned")
_TEXT = re.compile(r"(?P<language>\w+)\.(held-out|t(?P<temperature>[\d.]+?)(\.p(?P<penalty>[\d.]+))?)")
TRANSLATING = ("draft_context", "translate", "commit")
_RESAMPLED = 2000


def look_ups(model: str, language: str) -> Iterator[tuple[str, Drafter]]:
    """Yield every drafter that looks up, by name."""
    ours = Dictionary(dictionary_of(model, language))
    theirs = dictspec_of(model, language)
    yield "prompt look-up (vLLM)", PromptLookupDrafter()
    yield "DictSpec", DictSpecDrafter(theirs)
    yield "DictSpec and prompt look-up", FallbackDrafter([DictSpecDrafter(theirs), PromptLookupDrafter()])
    yield "history", LookupDrafter(None, True, MIN_PROBABILITY)
    yield "dictionary", LookupDrafter(ours, False, MIN_PROBABILITY)
    yield "dictionary and history", LookupDrafter(ours, True, MIN_PROBABILITY)
    yield "dictionary and history, from 0", LookupDrafter(ours, True)


def translated(model: str, draft: str, language: str, length: int) -> Iterator[tuple[str, Drafter]]:
    """Yield a draft model with every way to translate its drafts, by the name of the way."""
    loaded, tokenizer = load_model(real_model(draft))
    sides = open_tokenizer(tokenizer), open_tokenizer(str(tokenizer_of(model)))
    alignment, settings = (
        Alignment(alignment_of(draft, model, language)),
        {"bos": sides[0].roles.bos, "size": sides[0].size},
    )
    for name in STRATEGIES:
        translator, source = make_translator(name, alignment, *sides), ModelSource(loaded, **settings)
        if isinstance(translator, IntersectionTranslator):
            source = MaskedSource(loaded, translator.within, **settings)
        yield name, TranslatedDrafter(source, translator, length)


class MaskedSource(ModelSource):
    """A model that drafts only the ids of a mask."""

    def __init__(self, model: Any, within: NDArray[np.bool_], **options: Any) -> None:
        """Draft with ``model`` the ids of ``within``, bool [draft ids]; options as for `ModelSource`."""
        super().__init__(model, **options)
        self._within = mx.array(np.append(within, np.zeros(self.size, np.bool_))[: self.size])

    def read(self, logits: mx.array) -> mx.array:
        """As `ModelSource.read`, with -inf outside the mask."""
        return mx.where(self._within, super().read(logits), -mx.inf)


def _note(ends: list[float], spent: Sequence[float], tokens: int) -> None:
    ends.append(spent[0])


def interval(runs: Sequence[DraftStatistics]) -> list[float]:
    """Tokens per pass of all prompts, and the ends of its interval over resampled ones; the draws are the same."""
    counts = np.array([(run.tokens, run.passes) for run in runs], dtype=np.float64)
    drawn = np.random.default_rng(0).integers(len(runs), size=(_RESAMPLED, len(runs)))
    tokens, passes = np.vstack([counts.sum(axis=0), counts[drawn].sum(axis=1)]).T
    values = tokens / passes
    return [round(float(value), 4) for value in (values[0], *np.quantile(values[1:], (0.025, 0.975)))]


def compared(saved: Sequence[Saved], machine: Machine) -> Iterator[tuple[str, float, float]]:
    """Yield each way of drafting, its speed, and that of the first three texts, in plain decoding's.

    These are medians over six orders of the texts, since what is learnt depends on the order. In the second ways, it is
    known what passes of both models cost.
    """
    ways = {"look-ups": ["look-ups"], "draft": ["draft"], "both": ["look-ups", "draft"]}
    orders = [Random(seed).sample(saved, len(saved)) for seed in range(6)]
    for way, names in (*ways.items(), *((f"{way}, costs known", names) for way, names in ways.items())):
        speeds = [_speeds(order, _played(order, names, machine, way not in ways)) for order in orders]
        yield way, *map(median, zip(*speeds, strict=True))
    for way, names in ways.items():
        speeds = [_speeds(order, [best_seconds(text, machine, names) for text in order]) for order in orders]
        yield f"{way}, best in hindsight", *map(median, zip(*speeds, strict=True))


def _played(texts: Sequence[Saved], names: Sequence[str], machine: Machine, measured: bool) -> list[float]:
    return play(texts, names, machine, policy_for(machine, assumed=not measured))


def _speeds(texts: Sequence[Saved], seconds: Sequence[float]) -> tuple[float, float]:
    plain = [len(text.output) for text in texts]
    return round(sum(plain) / sum(seconds), 2), round(sum(plain[:3]) / sum(seconds[:3]), 2)


def simulated(model: str, draft: str, language: str, texts: Sequence[Written], machines: Sequence[Machine]) -> None:
    """Print the speeds of look-ups, the draft model and both on each machine."""
    pair = {"draft_model": real_model(draft), "alignment": alignment_of(draft, model, language)}
    both = load_drafter(real_model(model), dictionary=dictionary_of(model, language), **pair)
    assert isinstance(both, DrafterSet)
    members = dict(zip(("look-ups", "draft"), both.members, strict=True))
    saved = [record(text.prompt, text.output, members, 8) for text in texts]
    for machine in machines:
        for way, speed, first in compared(saved, machine):
            click.echo(f"{language}: {way}, {machine.drafts['draft']}: {speed}; first three texts {first}")


def first_ids(texts: Sequence[Written], drafter: Drafter) -> dict[int, float]:
    """The share of positions at which the first id of a proposal is right, by the tokens asked for."""
    right = dict.fromkeys((1, 2, 4, 8), 0)
    for text in texts:
        drafter.start(text.prompt)
        for token in text.output:
            for length in right:
                right[length] += list(drafter.propose(length).tokens[:1]) == [token]
            drafter.commit([token])
    return {length: round(count / sum(len(text.output) for text in texts), 3) for length, count in right.items()}


@click.command()
@click.option("--model", required=True, help="Of real_models.py, a directory, a hub id, or a tokenizer alone.")
@click.option("--language", "languages", multiple=True, default=("pl", "uk"), show_default=True)
@click.option("--num-draft-tokens", "lengths", type=int, multiple=True, default=(4,), show_default=True)
@click.option("--draft", help="Draft model with another tokenizer.")
@click.option("--draft-cost", "costs", type=float, multiple=True, help="Of a draft token, in plain passes; simulates.")
@click.option("--row-cost", default=0.045, show_default=True, help="Of each further token in a pass, likewise.")
@click.option("--noise", default=0.05, show_default=True, help="Standard deviation of the logarithm of a pass time.")
@click.option("--first-ids", "firsts", is_flag=True, help="Share of first ids that are right, by draft length.")
def main(
    model: str,
    languages: tuple[str, ...],
    lengths: tuple[int, ...],
    draft: str | None,
    costs: tuple[float, ...],
    row_cost: float,
    noise: float,
    firsts: bool,
) -> None:
    """Replay all texts of a model with every drafter; save and print."""
    name, found = Path(model).name, 0
    for path in sorted(FOLDER.glob(f"{name}.*.jsonl")):
        told = _TEXT.fullmatch(path.name.removeprefix(f"{name}.").removesuffix(".jsonl"))
        if told is None or told["language"] not in languages:
            continue
        texts, language = read_text(path), told["language"]
        found += 1
        if draft and costs:
            machines = [
                Machine(lambda rows: 1 + row_cost * (rows - 1), {"draft": cost}, cost / 20, noise) for cost in costs
            ]
            simulated(model, draft, language, texts, machines)
            continue
        if draft and firsts:
            pair = {"draft_model": real_model(draft), "alignment": alignment_of(draft, model, language)}
            drafter = load_drafter(str(tokenizer_of(model)), history=False, **pair)
            assert drafter is not None
            click.echo(f"{language}: {first_ids(texts, drafter)}")
            continue
        for length in lengths:
            gain: float | None = None
            ways = translated(model, draft, language, length) if draft else look_ups(model, language)
            for label, drafter in ways:
                most = length * MOST_IDS_A_DRAFT_TOKEN if draft else length
                timed = [(drafter._translator, name) for name in TRANSLATING] if draft else []
                ends: list[float] = []
                with outside(timed) as spent:
                    done = partial(_note, ends, spent)
                    runs = [replay([text.output], drafter, most, done, [text.prompt]) for text in texts]
                tokens, passes, proposed, accepted = (
                    sum(getattr(run, count) for run in runs) for count in ("tokens", "passes", "proposed", "accepted")
                )
                gain = tokens / passes - 1 if gain is None else gain
                row = {
                    "model": name,
                    "draft": draft,
                    "language": language,
                    "temperature": float(told["temperature"]) if told["temperature"] else None,
                    "penalty": float(told["penalty"]) if told["penalty"] else None,
                    "tokens": tokens,
                    "prompts": len(texts),
                    "repeated 4-grams": round(repeated_4_grams([text.output for text in texts]), 4),
                    "k": length,
                    "drafter": label,
                    "tokens per pass": interval(runs),
                    f"gain / {STRATEGIES[0]}'s": round((tokens / passes - 1) / gain, 3) if draft and gain else None,
                    "translation us": round(1e6 * median(b - a for a, b in pairwise(ends)), 1) if draft else None,
                    "acceptance": round(accepted / proposed, 4) if proposed else None,
                    "drafted": round(proposed / passes, 3),
                }
                click.echo(json.dumps(row, ensure_ascii=False))
                save("real_drafters", row)
    if not found:
        raise click.ClickException(f"no text of {name} in {FOLDER}; write some with benchmarks/real_text.py")


if __name__ == "__main__":
    main()
