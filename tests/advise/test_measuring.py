"""Replays give what the loop gives; a saved run gives back the costs that it was made with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from spectool import ArtifactError
from spectool.advise.machine import copy_bandwidth, this_machine
from spectool.advise.replayed import replay
from spectool.advise.saved_run import verification_of
from spectool.artifacts.benchmark import FORMAT, PLAIN, VERSION, write_block
from spectool.artifacts.manifest import Manifest, seal
from spectool.corpora import read_sample
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafter import Proposal
from spectool.runtime.generation import generate_step
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.statistics import DraftStatistics


class Oracle:
    """Knows the text, and is wrong at every ``wrong``-th token."""

    name = "oracle"

    def __init__(self, text: list[int], wrong: int) -> None:
        self.said = [token + 1 if place % wrong == wrong - 1 else token for place, token in enumerate(text)]
        self.position = 0

    def start(self, prompt: Any) -> None:
        self.position = 0

    def propose(self, limit: int) -> Proposal:
        return Proposal(self.said[self.position : self.position + limit], self.name)

    def commit(self, tokens: Any) -> None:
        self.position += len(tokens)


def test_a_replay_counts() -> None:
    text = list(range(100, 120))
    right = replay([((), text)], Oracle(text, 1000), 4)
    assert (right.statistics.passes, right.statistics.tokens, right.statistics.acceptance_rate) == (4, 20, 1.0)
    half = replay([((), text)], Oracle(text, 2), 1)
    assert (half.statistics.passes, half.statistics.accepted) == (10, 10)
    guesses = right.guesses("x")
    assert (guesses.proposed, guesses.coverage) == (4.0, 1.0)
    assert guesses.tokens_per_pass.value == 5.0


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("drafting", ["history", "model"])
def test_a_replay_of_the_targets_text_is_a_generation(drafting: str, k: int) -> None:
    model, loaded = load_model(str(demo_path("target")))
    draft = demo_path("draft") if drafting == "model" else None
    drafter = load_drafter(loaded, draft_model=draft, history=draft is None)
    assert drafter is not None
    texts, counted = [], DraftStatistics()
    for sample in read_sample("pl")[:3]:
        prompt = loaded.encode(sample)[:24]
        written = [token for token, _, _ in generate_step(mx.array(prompt), model, max_tokens=32)]
        steps = generate_step(
            mx.array(prompt), model, drafter=drafter, num_draft_tokens=k, max_tokens=32, statistics=counted
        )
        assert [token for token, _, _ in steps] == written
        texts.append((prompt, written))
    found = replay(texts, drafter, k).statistics
    assert (found.passes, found.proposed, found.accepted) == (counted.passes, counted.proposed, counted.accepted)


def generation(order: int, drafter: str, **columns: Any) -> dict[str, Any]:
    empty = {"strategy": None, "joules": None, "first_difference": None, "gap": None, "output": [1]}
    numbers = dict.fromkeys(("proposed", "accepted", "drafted_passes", "prompt_tokens", "peak_memory"), 0)
    named = {"language": "pl", "kind": "list", "prompt": "p", "repetition": 0, "model": "m", "num_draft_tokens": 2}
    times = dict.fromkeys(("prompt_seconds", "draft_seconds", "pass_seconds"), 0.0)
    own = {"block": 0, "order": order, "drafter": drafter, "tokens": 20, "passes": 20, "seconds": 2.0}
    return {**empty, **numbers, **named, **times, **own, **columns}


def cycles(order: int, proposed: int, seconds: float) -> Iterator[dict[str, Any]]:
    for number in range(12):
        yield {
            "block": 0,
            "order": order,
            "cycle": number,
            "position": number,
            "source": "x" if proposed else "",
            "proposed": proposed,
            "accepted": 0,
            "committed": 1,
            "draft_seconds": 0.01,
            "pass_seconds": seconds if number else 9.0,  # the first one waits for the prompt
            "seconds": seconds + 0.015,
        }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose plain step takes 0.1 s, and passes over 2 and 4 drafts 1.2 and 1.8 times that."""
    path = tmp_path / "a.bench"
    path.mkdir()
    rows = [generation(0, PLAIN, num_draft_tokens=0), generation(1, "a"), generation(2, "b", num_draft_tokens=4)]
    write_block(path, rows, [*cycles(1, 2, 0.12), *cycles(2, 4, 0.18)])
    models = [{"name": "m", "path": "/models/m"}, {"name": "other", "path": "/models/other"}]
    seal(path, Manifest(FORMAT, VERSION, {"models": models}, {}, {}, {}))
    return path


@pytest.mark.parametrize("target", ["m", "/models/m"])
def test_costs_of_a_saved_run(run: Path, target: str) -> None:
    found = verification_of(run, target)
    assert found.passes == pytest.approx({2: 1.2, 4: 1.8})
    assert found.loop == pytest.approx(0.05)
    assert found.beta.value == pytest.approx((0.2 * 4 + 0.8 * 16) / (16 + 256))
    assert found.beta.origin == f"measured: medians of {run}"


def test_a_run_that_does_not_tell(run: Path) -> None:
    with pytest.raises(ArtifactError, match="expected a run of /elsewhere, got one of m, other"):
        verification_of(run, "/elsewhere")
    with pytest.raises(ArtifactError, match="expected plain generations of other and at least 5 passes"):
        verification_of(run, "other")


def test_the_machine() -> None:
    assert 1e8 < copy_bandwidth() < 1e13
    stated = this_machine(200, 16)
    assert (stated.bandwidth.value, stated.memory.value) == (200e9, 16e9)
    assert (stated.bandwidth.origin, stated.memory.origin) == ("stated", "stated")
    memory = this_machine(200).memory
    assert memory.value is not None
    assert memory.value > 1e8
