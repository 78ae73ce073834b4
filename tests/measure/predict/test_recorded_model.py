"""What was recorded of draft models, replayed, against live replays with the models themselves."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from spectool.build.alignment.stage import build_alignment
from spectool.build.pruning.stage import prune_model
from spectool.corpora import open_corpus, sample_path
from spectool.measure.first_guesses import right_proposals, share
from spectool.measure.predict import RecordedModel, Text, play
from spectool.measure.replay import replay
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, Proposal
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import load_drafter
from spectool.runtime.policy.curve import PassCurve
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost
from spectool.tests.measure.predict.predicting import TARGET
from spectool.tokenization.opening import open_tokenizer

CURVES = {"flat": {1: 1.0, 16: 1.2}, "steep": {1: 1.0, 2: 1.2, 4: 1.5, 8: 2.7}}
LIMIT = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The demo draft model with another tokenizer, and its alignment with the demo target."""
    folder = tmp_path_factory.mktemp("pair")
    nothing: Callable[[str], None] = lambda step: None  # noqa: E731
    whole = open_tokenizer(demo_path("draft"))
    prune_model(demo_path("draft"), whole, [open_corpus("sample:uk")], folder / "draft", nothing)
    sides = open_tokenizer(folder / "draft"), open_tokenizer(TARGET)
    build_alignment(*sides, open_corpus("sample:uk"), folder / "pair.align", nothing, sample=0)
    return folder / "draft", folder / "pair.align"


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    lines = sample_path("uk").read_text(encoding="utf-8").splitlines()
    ids = [open_tokenizer(TARGET).encode(" ".join(lines[at : at + 1] * 2)) for at in (0, 10, 20)]
    return [Text(each[:prompt], each[prompt : prompt + 30]) for each, prompt in zip(ids, (0, 7, 40), strict=True)]


def models(kind: str, pair: tuple[Path, Path], least: float) -> DrafterSet:
    draft, alignment = (demo_path("draft"), None) if kind == "same tokenizer" else pair
    found = load_drafter(TARGET, draft_model=draft, alignment=alignment, history=False, min_probability=least)
    assert found is not None
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["another", "same tokenizer"])
@pytest.mark.parametrize("least", [0.4, 0.0])
def test_a_recorded_model_takes_what_the_model_takes(
    kind: str, least: float, pair: tuple[Path, Path], texts: list[Text]
) -> None:
    (model,) = models(kind, pair, least).members
    model.longest = LIMIT
    recorded, seen = RecordedModel(model), set()
    for name, points in CURVES.items():
        for cost in (DraftCost(0.02, 0.002), DraftCost(0.3, 0.04)):
            for look_ups in (False, True):
                live = models(kind, pair, least).members
                live[0].longest = LIMIT
                policies = [Policy(PassCurve({0: points}, {0: 1.0})) for _ in range(2)]
                policies[1].records[live[0].name].begin_model(cost)
                lookup = LookupDrafter(None, True, 0.05) if look_ups else None
                members = [*([LookupDrafter(None, True, 0.05)] if look_ups else []), *live]
                outputs, prompts = [text.output for text in texts], [text.prompt for text in texts]
                replayed = play(texts, policies[0], lookup, recorded, cost)
                assert replayed.counts == replay(outputs, DrafterSet(members), policies[1], prompts=prompts)
                assert (replayed.drafting > 0) == any(each.passes for each in live), (name, cost)
                seen.add((replayed.counts.passes, "model" in replayed.counts.proposed_by))
    assert len(seen) > 4, "the curves and costs matter"


@pytest.mark.nightly
def test_fixed_lengths(pair: tuple[Path, Path], texts: list[Text]) -> None:
    recorded = RecordedModel(models("another", pair, 0.0).members[0])
    for length in (1, 4):
        live = models("another", pair, 0.0)
        found = play(texts, length, None, recorded).counts
        assert found == replay([text.output for text in texts], live, length, prompts=[text.prompt for text in texts])


class Every(Drafter):
    """A model that is right about every token but those of a few places, and takes two passes for three tokens."""

    name, costs_a_pass, longest = "every", True, LIMIT

    def __init__(self, text: Text, wrong: set[int]) -> None:
        self._all, self._wrong, self.made, self._at = [*text.prompt, *text.output], wrong, 0, 0

    @property
    def passes(self) -> int:
        return self.made

    def start(self, prompt: object) -> None:
        self._at = len(list(prompt))  # type: ignore[call-overload]

    def commit(self, tokens: object) -> None:
        self._at += len(list(tokens))  # type: ignore[call-overload]

    def propose(self, limit: int) -> Proposal:
        places = range(self._at, min(self._at + limit, len(self._all)))
        self.made += -(-2 * limit // 3)
        return Proposal([-1 if at in self._wrong else self._all[at] for at in places], self.name)


def test_shares_and_times_are_those_that_can_be_counted() -> None:
    seed = Random().randrange(1 << 30)
    print("seed", seed)
    rng = Random(seed)
    text = Text(list(range(20)), list(range(20, 120)))
    wrong = set(rng.sample(range(20, 120), 30))
    every, cost = Every(text, wrong), DraftCost(0.25, 0.125)
    assert share(right_proposals(RecordedModel(every), [text])) == 0.7
    recorded = RecordedModel(every)
    found = play([text], 3, None, recorded, cost)
    asked = every.made
    assert play([text], 3, None, recorded, cost) == found and every.made == asked > 0, "it is asked once"
    at, unread, drafting, asked = 20, 20, 0.0, 0
    while at < 120:
        drafting += max(0.25, 0.125 * unread) + 0.25  # two passes, the first of which reads
        right = next((k for k in range(3) if at + k in wrong or at + k >= 120), 3)
        at, unread, asked = at + right + 1, right + 1, asked + 1
    assert found.counts.passes == asked and found.checking == 0.0
    assert found.drafting == pytest.approx(drafting)
