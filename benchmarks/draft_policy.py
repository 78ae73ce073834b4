"""Look-ups and a draft model together, against the better of the two, on texts that are replayed on published curves.

    python benchmarks/draft_policy.py --target bielik-11b-v2.5 --draft gemma-pl --alignment pair.align \
        --dictionary pl.dict --answers bielik-11b-v2.6
    python benchmarks/draft_policy.py … --language pl         people's held-out text instead of a model's answers
    python benchmarks/draft_policy.py … --written .scratch/real_text/qwen2.5-coder-1.5b.pl.t0.jsonl --too-long 0.2

The draft model's answers are kept, by place and draft length (`spectool.measure.predict`), so all curves and costs are
replayed from the same ones. Both turns of a question are one document. Prints, for each curve and cost of a draft token
in plain passes, the speed of look-ups, of the model and of both over plain decoding, and how often the first token was
right where the model was asked. Then, for each source and each tenth of what was believed, how often that was right.
With ``--too-long``, how fast both are on a CPU where every time that was measured is too long by about this share at
random, as after a short measurement on a busy machine.

Appends to ``benchmarks/results/draft_policy.jsonl``.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import click
from real_data import encoded, real_corpus, real_tokenizer
from real_models import SHARED
from real_text import read_text
from saving import json_lines, save

from spectool.artifacts.dictionary import Dictionary
from spectool.measure.chips import published
from spectool.measure.predict import RecordedModel, Text, play
from spectool.runtime.drafters.drafter import accepted_length
from spectool.runtime.drafters.lookup import TENTHS, LookupDrafter, tenth
from spectool.runtime.loading import LEAST_OF_LOOKUPS, load_drafter
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.policy import Choice, Policy
from spectool.runtime.policy.record import DraftCost

COSTS = 0.03, 0.05, 0.1
CPU = {1: 1.0, 2: 1.04, 5: 1.22, 9: 1.4, 17: 1.75}  # Qwen2.5-Coder 0.5B with OpenBLAS, from real_speed.jsonl
_DRAFTS = 4  # tokens that the model is asked for at most
_MEASUREMENTS = 16  # with errors


class Believed(NamedTuple):
    """What was believed of proposed tokens."""

    tokens: int = 0
    promised: float = 0.0
    right: int = 0

    @property
    def error(self) -> float:
        """How far the mean of what was believed is from the share that was right."""
        return abs(self.promised - self.right) / self.tokens


class Watched(Policy):
    """A policy that counts what it believes of the tokens that it proposes, and what became of them."""

    def __init__(self, curve: PassCurve) -> None:
        """Choose by what passes cost."""
        super().__init__(curve)
        self.rows = list[int]()  # of each pass
        self.believed = defaultdict[tuple[str, int], Believed](Believed)
        self.asked = self.first_right = 0

    def learn(self, choice: Choice, committed: Sequence[Sequence[int]]) -> None:
        """Count, and learn."""
        tokens, proposal = committed[0], choice.proposals[0]
        self.rows.append(0 if choice.rests else 1 + len(proposal.tokens))
        right = accepted_length(proposal.tokens, tokens)
        for at, each in enumerate(proposal.probabilities[: min(right + 1, len(tokens))]):
            count, promised, good = self.believed[proposal.source, tenth(each)]
            self.believed[proposal.source, tenth(each)] = Believed(count + 1, promised + each, good + (at < right))
        if (model := choice.asked.models.get(0)) is not None:
            self.asked += 1
            self.first_right += list(model.proposal.tokens[:1]) == list(tokens[:1])
        super().learn(choice, committed)


def curves() -> dict[str, PassCurve]:
    """Those of dense models, and a CPU's."""
    found = {row.title: row.curve for row in published() if not row.experts}
    return {**found, "CPU, OpenBLAS": PassCurve({64: CPU}, {64: 1.0})}


def table(texts: Sequence[Text], dictionary: Dictionary, recorded: RecordedModel) -> Iterator[dict[str, object]]:
    """A row for each curve and cost, and at last one for each source and tenth of what was believed."""
    believed = defaultdict[tuple[str, int], Believed](Believed)

    def speed(curve: PassCurve, cost: float, look_ups: bool, model: bool) -> tuple[float, Watched]:
        policy = Watched(curve)
        found = play(
            texts,
            policy,
            LookupDrafter(dictionary, True, LEAST_OF_LOOKUPS) if look_ups else None,
            recorded if model else None,
            DraftCost(cost, cost / 8),
        )
        return found.counts.tokens / (found.counts.passes + found.checking + found.drafting), policy

    for title, curve in curves().items():
        alone, _ = speed(curve, 0.0, True, False)
        for cost in COSTS:
            model, _ = speed(curve, cost, False, True)
            both, policy = speed(curve, cost, True, True)
            for key, each in policy.believed.items():
                believed[key] = Believed(*map(sum, zip(believed[key], each, strict=True)))
            yield {
                "curve": title,
                "draft cost": cost,
                "look-ups": round(alone, 3),
                "model": round(model, 3),
                "both": round(both, 3),
                "of the better": round(both / max(1.0, alone, model), 3),
                "asked": policy.asked,
                "first right": round(policy.first_right / max(1, policy.asked), 3),
            }
    for (source, level), each in sorted(believed.items()):
        yield {
            "source": source,
            "believed": f"{level / TENTHS:.1f} to {(level + 1) / TENTHS:.1f}",
            "tokens": each.tokens,
            "mean": round(each.promised / each.tokens, 3),
            "right": round(each.right / each.tokens, 3),
        }


def mistaken(
    texts: Sequence[Text], dictionary: Dictionary, recorded: RecordedModel, too_long: float
) -> Iterator[dict[str, object]]:
    """For each cost of a draft token on a CPU, the speed with exact costs, and with measured ones that are too long."""
    exact = PassCurve({64: CPU}, {64: 1.0})

    def speed(cost: float, seed: int | None) -> float:
        rng = Random(seed)

        def measured(time: float) -> float:
            return time if seed is None else time * (1.0 + abs(rng.gauss(0.0, too_long)))

        plain = measured(1.0)
        curve = PassCurve({64: {rows: measured(time) for rows, time in CPU.items()}}, {64: plain}, final=seed is None)
        policy, believed = Watched(curve), measured(cost) / plain
        look_ups = LookupDrafter(dictionary, True, LEAST_OF_LOOKUPS)
        counts = play(texts, policy, look_ups, recorded, DraftCost(believed, believed / 8)).counts
        passes = sum(max(1.0, exact.seconds(rows, 64)) for rows in policy.rows)
        return counts.tokens / (passes + recorded.plain_passes(DraftCost(cost, cost / 8)))

    for cost in COSTS:
        speeds = [speed(cost, seed) for seed in range(_MEASUREMENTS)]
        yield {
            "too long by": too_long,
            "draft cost": cost,
            "exact": round(speed(cost, None), 3),
            "least": round(min(speeds), 3),
            "median": round(median(speeds), 3),
            "most": round(max(speeds), 3),
        }


def answers(name: str) -> list[str]:
    """Published answers of a model, both turns of a question as one text."""
    found = defaultdict[object, list[tuple[int, str]]](list)
    for one in json_lines(SHARED / "answers" / f"{name}.jsonl"):
        found[one["id"]].append((one["turn"], one["text"]))
    return ["\n\n".join(text for _, text in sorted(turns)) for turns in found.values()]


@click.command()
@click.option("--target", required=True, help="A tokenizer of those in SPECTOOL_SHARED.")
@click.option("--draft", required=True, help="The draft model's directory.")
@click.option("--alignment", required=True, type=Path)
@click.option("--dictionary", required=True, type=Path)
@click.option("--answers", "name", help="Of a model, in SPECTOOL_SHARED; without it, people's held-out text.")
@click.option("--written", type=Path, help="What a model of real_models.py wrote, as real_text.py keeps it.")
@click.option("--too-long", type=float, help="By how much measured times are too long, such as 0.2; exact by default.")
@click.option("--language", default="pl", show_default=True)
@click.option("--texts", "most", default=24, show_default=True)
@click.option("--tokens", default=200, show_default=True, help="Of each text that are replayed.")
def main(
    target: str,
    draft: str,
    alignment: Path,
    dictionary: Path,
    name: str | None,
    written: Path | None,
    too_long: float | None,
    language: str,
    most: int,
    tokens: int,
) -> None:
    """Replay, print and keep."""
    tokenizer = real_tokenizer(target)
    documents: Iterator[Sequence[int]] = iter(())
    if written is not None:
        name = written.stem
    elif name is None:
        documents = islice(
            (ids for ids in encoded(tokenizer, real_corpus(language, "valid"), 10**6) if len(ids) > tokens), most
        )
    else:
        documents = iter(tokenizer.encode_batch(answers(name)[:most]))
    texts = [] if written is None else [Text(*each) for each in read_text(written)]
    for at, ids in enumerate(documents):  # every other one from its middle on, where there is more history
        begin = max(0, min(400, len(ids) - tokens)) if at % 2 else 0
        texts.append(Text(ids[:begin], ids[begin : begin + tokens]))
    drafters = load_drafter(tokenizer, draft_model=draft, alignment=alignment, history=False)
    assert drafters is not None
    drafters.members[0].longest = _DRAFTS
    sources = Dictionary(dictionary), RecordedModel(drafters.members[0])
    for row in table(texts, *sources) if too_long is None else mistaken(texts, *sources, too_long):
        click.echo("  ".join(f"{key} {value}" for key, value in row.items()))
        save("draft_policy", {"target": target, "text": name or language, **row})


if __name__ == "__main__":
    main()
