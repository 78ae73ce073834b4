"""Figures of places against slow ones by hand, in the target's vocabulary, and Theorem 2 on real rows."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spectool.lab.fairness import places
from spectool.lab.fairness.places import compare
from spectool.lab.paper_tables.cost_model import geometric_tokens
from spectool.lab.tuning.divergence import Pairing, measure_divergence, pairing_of
from spectool.lab.tuning.examples import NOWHERE, Example, paired_example
from spectool.tests.lab.training.tiny_pair import random_model, tokenizer_of

DRAFT, TARGET = tokenizer_of("other"), tokenizer_of("target")


def softmax(logits: Any, temperature: float = 1) -> np.ndarray:
    wide = np.array(logits).astype(np.float64)
    if not temperature:
        return np.eye(len(wide))[wide.argmax()]
    wide = np.exp((wide - wide.max()) / temperature)
    return wide / wide.sum()


def texts(work: Path) -> list[str]:
    return (work / "uk.txt").read_text(encoding="utf-8").splitlines()[:7]


def examples_of(work: Path, same: bool) -> list[Example]:
    tokenizer = TARGET if same else DRAFT
    made = (paired_example(tokenizer, TARGET, same, text[:60], 1000) for text in texts(work))
    return [example for example in made if example is not None]


@pytest.mark.parametrize("same", [True, False])
def test_places_by_hand(same: bool, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = random_model("target" if same else "other", seed=1, scale=0.7)
    target = random_model("target", seed=2, scale=0.7)
    pairing = Pairing(TARGET.size) if same else pairing_of(DRAFT, TARGET, work / "other.align")
    assert pairing is not None
    examples = examples_of(work, same)
    names = ("acceptance", "draft_misfit", "target_misfit", "row", 0.0, 0.5, 2.0)
    expected: dict[str | float, list[float]] = {name: [] for name in names}
    for row, example in enumerate(examples):
        of_draft = np.array(draft(mx.array(example.draft[None])))[0]
        of_target = np.array(target(mx.array(example.target[None])))[0]
        for place, at in enumerate(example.at.tolist()):
            if at == NOWHERE:
                continue
            at_temperature = {}
            for temperature in (0.0, 0.5, 2.0, 1.0):
                p, q = softmax(of_target[at], temperature), np.zeros(TARGET.size)
                if pairing.draft is None or pairing.target is None:
                    q = softmax(of_draft[place], temperature)
                else:
                    shared = softmax(of_draft[place][np.array(pairing.draft)], temperature)
                    for id_, probability in zip(np.array(pairing.target).tolist(), shared.tolist(), strict=True):
                        q[id_] += probability
                at_temperature[temperature] = np.minimum(p, q).sum()
            for temperature in (0.0, 0.5, 2.0):
                expected[temperature].append(at_temperature[temperature])
            token = example.target[at + 1]
            u = np.eye(TARGET.size)[token]
            alpha = at_temperature[1.0]
            r_p, r_q = np.abs(u - p).sum() / 2, np.abs(u - q).sum() / 2
            assert abs(alpha - (1 - r_q)) <= r_p + 1e-12
            for name, value in (("acceptance", alpha), ("draft_misfit", r_q), ("target_misfit", r_p), ("row", row)):
                expected[name].append(value)
    monkeypatch.setattr(places, "_AT_ONCE", 200_000)  # several batches
    done: list[int] = []
    found = compare(draft, target, pairing, examples, done.append, (0.0, 0.5, 2.0))
    assert sum(done) == len(examples) and len(done) > 1
    for name, values in expected.items():
        np.testing.assert_allclose(found.at[name], values, rtol=2e-4, atol=1e-6)
    measured = measure_divergence(draft, target, pairing, examples, 3)
    figures = found.figures(3)
    assert figures["by_temperature"] == pytest.approx(
        {f"{t:g}": np.mean(expected[t]) for t in (0.0, 0.5, 2.0)}, rel=1e-4
    )
    rows = np.array(expected["row"])
    fitness = [1 - np.array(expected["draft_misfit"])[rows == row].mean() for row in np.unique(rows)]
    assert [one for one, _ in figures["examples"]] == pytest.approx(fitness, rel=1e-4)
    assert figures["places"] == measured.places
    assert figures["cross_entropy"] == pytest.approx(measured.cross_entropy, rel=1e-5)
    assert figures["kl"] == pytest.approx(measured.kl, rel=1e-4)
    assert figures["acceptance_shared"] == pytest.approx(measured.acceptance, rel=1e-5)
    assert figures["tokens_by_place"] == pytest.approx(np.mean([geometric_tokens(a, 3) for a in found.at.acceptance]))
    assert figures["tokens_by_place"] >= geometric_tokens(figures["acceptance"], 3)
    share = sum((example.at != NOWHERE).sum() for example in examples) / sum(len(example.at) for example in examples)
    assert figures["share"] == pytest.approx(share) and (share == 1) == same
    if not same:
        assert figures["acceptance"] < figures["acceptance_shared"], "ids that the draft lacks have some of p"


def test_acceptance_is_that_of_rejection_sampling(work: Path) -> None:
    """Draw drafts from q and keep each with min(1, p/q): the share kept is alpha."""
    draft, target = random_model("target", seed=1, scale=0.7), random_model("target", seed=2, scale=0.7)
    examples = examples_of(work, True)[:3]
    rng = np.random.default_rng(7)
    kept, draws = 0, 0
    for example in examples:
        q_of, p_of = (np.array(model(mx.array(example.draft[None])))[0] for model in (draft, target))
        for place in range(len(example.draft) - 1):
            p, q = softmax(p_of[place]), softmax(q_of[place])
            tokens = rng.choice(len(q), size=400, p=q)
            kept += int((rng.random(400) < np.minimum(1, p[tokens] / q[tokens])).sum())
            draws += 400
    found = compare(draft, target, Pairing(TARGET.size), examples).figures(1)
    assert found["acceptance"] == pytest.approx(kept / draws, abs=5 * 0.5 / draws**0.5)
