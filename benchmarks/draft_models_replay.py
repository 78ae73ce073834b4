"""Which draft model pays for which tokenizer: guesses that are right, tokens per pass, and speed on published curves.

    python benchmarks/draft_models_replay.py speeds     all that `draft_models_record.py` has kept; no model runs
    python benchmarks/draft_models_replay.py together   both kinds of drafters against the better one, also later on
    python benchmarks/draft_models_replay.py beliefs    what the policy expects of asking a draft model

Translates the drafts that were recorded, and takes drafters and policy as they are now. Nobody here has a Mac: what
passes cost is what others have published (``measure/chips.jsonl``), and what a draft token costs is assumed. Alignments
are made with the bundled samples and dictionaries from the bundled packs, as by ``setup``. Adds lines to
``benchmarks/results/draft_models.jsonl``, of which `draft_models_tables.py` makes tables.
"""

import json
import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import click
import numpy as np
from draft_models_record import (
    BEST,
    FOLDER,
    LONGEST,
    NAMES,
    SOURCES,
    TARGETS,
    Chain,
    Side,
    asking,
    draft_of,
    read_known,
    texts_of,
    translator_of,
)
from real_data import made, real_tokenizer
from real_models import SHARED
from saving import save

from spectool.artifacts.dictionary import Dictionary
from spectool.measure.chips import published
from spectool.measure.first_guesses import guesses, passages, right_proposals
from spectool.measure.predict import RecordedModel, Text, play
from spectool.runtime.drafters.drafter import Drafter, Drafting, Proposal, alone
from spectool.runtime.drafters.drafter_slot import LATEST
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.loading import LEAST_OF_LOOKUPS, LEAST_OF_MODELS, load_model
from spectool.runtime.policy.candidate import Candidate, level_of
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.models import DOUBTED
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.tokenization.opening import open_tokenizer

COSTS = (0.03, 0.1, 0.2)
COMPARED = (0.03, 0.05, 0.1)
LENGTHS = (1, 2, 4)
_READING = 1 / 8  # of the cost of a draft token: what a token costs that the draft model only reads
_RESAMPLED = 1000
Way = tuple[LookupDrafter | None, RecordedModel | None]


class Kept:
    """A `ModelSource` that says again what a model said, and ends its drafts as generation does.

    Attributes:
        chain: What it says next.
        made: Draft tokens of that so far.
    """

    costs_a_pass, cache = True, None

    def __init__(self) -> None:
        self.chain: Chain = [], False, []
        self.made = 0

    @property
    def likely(self) -> list[float]:
        """As of a `ModelSource`."""
        return self.chain[2][: self.made]

    def drafting(
        self, context: object, rule: object, limit: int, unchanged: int = 0
    ) -> Drafting[tuple[list[int], bool]]:
        """As of a `ModelSource`."""
        self.made = 0
        while self.made < limit and self._may_go_on():
            self.made += 1
        return self.chain[0][: self.made], self.chain[1]
        yield

    def going_on(self) -> Drafting[list[int]]:
        """As of a `ModelSource`."""
        before, self.made = self.made, self.made + self._may_go_on()
        return self.chain[0][before : self.made]
        yield

    def _may_go_on(self) -> bool:
        enough = not self.made or self.likely[-1] >= math.log(LEAST_OF_MODELS)
        return enough and self.made < len(self.chain[0])


class KeptModel(Drafter):
    """Proposes at the places of texts what the product makes of what its model said there."""

    name, costs_a_pass, longest, passes = "model", True, LONGEST, 0

    def __init__(self, sides: Sequence[Side], translator: ByteAlignedTranslator | None, honesty: float) -> None:
        """Know what a model said; there is no translator where its tokens are the target's."""
        self._kept, self.honesty = Kept(), honesty
        self._translated = None if translator is None else TranslatedDrafter(self._kept, translator)  # type: ignore[arg-type]
        self._chains = {
            (*side.prompt, *side.output[:at]): chain for side in sides for at, chain in enumerate(side.chains)
        }
        self._ends = {text[-LATEST // 2 :]: chain for text, chain in self._chains.items()}  # brief ones come last

    def start(self, prompt: Sequence[int]) -> None:
        """Go to a place."""
        # One that begins to read in the middle of a text is taken to know as much as one that began with the text.
        self._kept.chain = self._chains.get(text := tuple(prompt)) or self._ends[text[-LATEST // 2 :]]
        if self._translated is not None:
            self._translated.start(prompt)

    def propose(self, limit: int) -> Proposal:
        """As a model does."""
        if self._translated is not None:
            proposal = self._translated.propose(limit)
        else:
            ids, _ = alone(self._kept.drafting((), None, limit), None)
            proposal = Proposal(ids, self.name, np.exp(np.diff(self._kept.likely, prepend=0.0)).tolist())
        self.passes += max(1, self._kept.made)
        return proposal


def first_guesses(texts: Sequence[Text], drafter: Drafter) -> list[list[bool]]:
    """Whether the first token that a drafter proposes is right, at each place of each text."""
    return [list(right_proposals(drafter, [text])) for text in texts]


class Spent(NamedTuple):
    """Tokens of each text, and the passes or plain passes that they took."""

    tokens: list[int]
    passes: list[float]

    def speed(self) -> float:
        """Tokens in a pass."""
        return sum(self.tokens) / sum(self.passes)

    def interval(self) -> list[float]:
        """The middle 95% of what other draws of the same number of texts give."""
        texts = np.array([self.tokens, self.passes])
        draws = np.random.default_rng(0).integers(0, texts.shape[1], (_RESAMPLED, texts.shape[1]))
        tokens, passes = texts[:, draws].sum(axis=2)
        return [round(float(each), 3) for each in np.quantile(tokens / passes, (0.025, 0.975))]


def at_length(texts: Sequence[Text], length: int, way: Way) -> Spent:
    """Replay texts one after the other with up to a number of draft tokens; each pass counts as one."""
    cycles = list[int]()
    play(texts, length, *way, progress=cycles.append)
    tokens = [len(text.output) for text in texts]
    passes = np.searchsorted(np.cumsum(cycles), np.cumsum(tokens), "right")
    return Spent(tokens, np.diff(passes, prepend=0).tolist())


def spent(texts: Sequence[Text], policy: Policy, way: Way, cost: float) -> Spent:
    """Replay texts one after the other, with a policy that goes on learning from text to text."""
    found = play(texts, policy, *way, DraftCost(cost, cost * _READING))
    return Spent([found.counts.tokens], [found.counts.passes + found.checking + found.drafting])


def speed(texts: Sequence[Text], curve: PassCurve, way: Way, cost: float) -> float:
    """Times plain decoding, on a published curve, from a fresh start."""
    return round(spent(texts, Policy(curve), way, cost).speed(), 3)


def later_speed(texts: Sequence[Text], curve: PassCurve, way: Way, cost: float) -> float:
    """The same of each half of the texts with a policy that has written the other half before."""
    tokens, passes = list[int](), list[float]()
    for first in (0, 1):
        policy = Policy(curve)
        spent(texts[first::2], policy, way, cost)
        later = spent(texts[1 - first :: 2], policy, way, cost)
        tokens, passes = tokens + later.tokens, passes + later.passes
    return round(Spent(tokens, passes).speed(), 3)


def figures(texts: Sequence[Text], model: RecordedModel, look_ups: LookupDrafter) -> dict[str, Any]:
    """All that is known of a draft model for a target, alone and with look-ups."""
    right = {"look-ups": first_guesses(texts, look_ups), "model": first_guesses(texts, model)}
    right["either"] = [list(map(max, *pair)) for pair in zip(*right.values(), strict=True)]
    ways = {"look-ups": (look_ups, None), "model": (None, model), "both": (look_ups, model)}
    first = {name: Spent([sum(each) for each in found], [len(each) for each in found]) for name, found in right.items()}
    places = sum(len(text.output) for text in texts)
    found = {"texts": len(texts), "places": places, "first": {}, "tokens per pass": {}, "curves": {}}
    found["first"] = {name: [round(each.speed(), 3), *each.interval()] for name, each in first.items()}
    for length in LENGTHS:
        spent = {name: at_length(texts, length, way) for name, way in ways.items()}
        by_name = {name: [round(each.speed(), 3), *each.interval()] for name, each in spent.items()}
        found["tokens per pass"][length] = by_name
    for row in published():
        found["curves"][row.title] = {
            name: [speed(texts, row.curve, way, cost) for cost in COSTS[: len(COSTS) if way[1] else 1]]
            for name, way in ways.items()
        }
    return found


def look_ups_of(target: str, language: str) -> LookupDrafter:
    """The bundled dictionary of a language for a target, and the history."""
    options = "--tokenizer", SHARED / "tokenizers" / target, "--pack", language
    return LookupDrafter(
        Dictionary(made(f"{target}-{language}-pack.dict", "build-dict", *options)), True, LEAST_OF_LOOKUPS
    )


@click.group()
def main() -> None:
    """Replay what draft models have said."""


@main.command("speeds")
@click.option("--draft", "drafts", multiple=True, type=click.Choice(list(NAMES)), default=list(NAMES))
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), default=SOURCES)
@click.option("--target", "targets", multiple=True, default=list(TARGETS), show_default=True)
def speeds_command(drafts: Sequence[str], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Replay what was recorded, with look-ups, draft model and both, as drafters and policy are now."""
    logging.disable()
    for draft, source, target in product(drafts, sources, targets):
        written, model = recorded(draft, source, target)
        if not written:
            click.echo(f"{draft}, {source}, {target}: not recorded")
            continue
        found = {"draft": draft, "source": source, "target": target}
        found |= figures(written, RecordedModel(model), look_ups_of(target, source[:2]))
        click.echo(json.dumps({key: value for key, value in found.items() if key != "curves"}))
        save("draft_models", found)


@main.command("together")
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), default=SOURCES)
@click.option("--target", "targets", multiple=True, default=list(TARGETS), show_default=True)
def together_command(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Divide the speed with look-ups and model by that with the better one, at first and later on, by draft cost."""
    curves = {tuple(row.curve.costs(LONGEST, 0)): row for row in published()}  # some are like others
    for source, target in product(sources, targets):
        written, kept = recorded(BEST, source, target)
        if not written:
            click.echo(f"{source}, {target}: not recorded")
            continue
        look_ups, model = look_ups_of(target, source[:2]), RecordedModel(kept)
        ways = (look_ups, None), (None, model), (look_ups, model)
        for cost, (when, fast) in product(COMPARED, (("at first", speed), ("later on", later_speed))):
            ratios = dict[str, float]()
            for row in curves.values():
                one, other, both = (fast(written, row.curve, way, cost) for way in ways)
                ratios[row.title] = round(both / max(one, other), 3)
            found = {"source": source, "target": target, "cost": cost, "when": when, "ratios": ratios}
            click.echo(json.dumps(found | {"ratios": sorted(ratios.values())}))
            save("draft_models_together", found)


def recorded(draft: str, source: str, target: str) -> tuple[list[Text], KeptModel]:
    """The texts of a source that a draft model was asked about to their ends, and what it said."""
    known, translator, tokenizer = read_known(draft, source), translator_of(draft, target), real_tokenizer(target)
    texts = [(number, text) for number, text in enumerate(texts_of(source)) if number in known]
    sides = {
        number: [Side(tokenizer, translator, *text, briefly=how) for how in (False, True)] for number, text in texts
    }
    for number, both in sides.items():
        for side in both:
            next(asking(side, known[number]), None)  # ends where the model was not asked
    sides = {number: both for number, both in sides.items() if all(side.is_over for side in both)}
    written = [Text(whole.prompt, whole.output) for whole, _ in sides.values()]
    every = [side for both in sides.values() for side in both]
    return written, KeptModel(every, translator, honesty_of(draft, source[:2]))


def honesty_of(draft: str, language: str) -> float:
    """How often guesses of a draft model are right on the sample of a language, as a share of what it says of them."""
    path = FOLDER / f"{draft}.{language}.guesses.json"
    if not path.exists():
        model, loaded = load_model(str(draft_of(draft)))
        path.write_text(json.dumps(guesses(model, open_tokenizer(loaded), passages(f"sample:{language}"))))
    found = json.loads(path.read_text())
    return float(found["right"] / found["said"])


@main.command("beliefs")
@click.option("--draft", type=click.Choice(list(NAMES)), default=BEST)
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), default=SOURCES[:2])
def beliefs_command(draft: str, sources: Sequence[str]) -> None:
    """Print how probable the best first token is once the model was asked, and how often it is right, by level.

    Levels are of how sure look-ups are, and each has four quarters of places (`spectool.runtime.policy.models`).
    """
    found = defaultdict[int, list[tuple[float, bool]]](list)
    for source, target in product(sources, TARGETS):
        (written, model), look_ups = recorded(draft, source, target), look_ups_of(target, source[:2])
        for text in written:
            look_ups.start(text.prompt)
            for at, token in enumerate(text.output):
                model.start([*text.prompt, *text.output[:at]])
                one, other = (Candidate(each, each.stated) for each in (look_ups.propose(1), model.propose(1)))
                same = list(one.proposal.tokens) == list(other.proposal.tokens)
                both = 1.0 - (1.0 - one.first) * (1.0 - other.first)
                best = both if same else max(other.first, DOUBTED * one.first)
                said = other if same or other.first == best else one
                found[level_of([one])].append((best, list(said.proposal.tokens) == [token]))
                look_ups.commit([token])
    for level, places in sorted(found.items()):
        quarters = np.array_split(np.array(sorted(places)), 4)
        click.echo(f"{level}: " + ", ".join("{:.2f} ({:.2f})".format(*quarter.mean(axis=0)) for quarter in quarters))


if __name__ == "__main__":
    main()
