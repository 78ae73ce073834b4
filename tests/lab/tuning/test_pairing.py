"""Rows of two tokenizers, and divergences over the ids that both have, by hand."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from spectool import SpectoolError
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.lab.tuning.divergence import Pairing, measure_divergence, pairing_of
from spectool.lab.tuning.examples import NOWHERE, batch_of, examples_of_step, paired_example, row_of
from spectool.tests.lab.training.tiny_pair import random_model, tokenizer_of

DRAFT, TARGET = tokenizer_of("other"), tokenizer_of("target")
TEXTS = list(open_corpus("sample:pl"))[:12]


@pytest.fixture(scope="module")
def pairing(tmp_path_factory: pytest.TempPathFactory) -> Pairing:
    """Of the two demo tokenizers, by an alignment."""
    path = tmp_path_factory.mktemp("aligned") / "x.align"
    text = path.with_name("pl.txt")
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    build_alignment(DRAFT, TARGET, open_corpus(str(text)), path, lambda step: None)
    found = pairing_of(DRAFT, TARGET, path)
    return found


def test_one_id_of_each_spelling_counts(tmp_path: Path) -> None:
    """The demo's target spells some bytes twice: by a token, and by a byte-fallback token that it never writes."""
    text, path = tmp_path / "pl.txt", tmp_path / "x.align"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    build_alignment(TARGET, DRAFT, open_corpus(str(text)), path, lambda step: None)
    found = pairing_of(TARGET, DRAFT, path)
    assert found.draft is not None and found.target is not None
    pairs = dict(zip(np.array(found.draft).tolist(), np.array(found.target).tolist(), strict=True))
    assert len(set(pairs.values())) == len(pairs) == found.size
    token_bytes = {raw for raw in DRAFT.token_bytes if raw}
    assert sum(raw in token_bytes for raw in TARGET.token_bytes) > len(pairs) + 10
    written = {token for text in TEXTS for token in TARGET.encode(text) if TARGET.token_bytes[token] in token_bytes}
    assert len(written) > 100 and written <= pairs.keys()
    assert all(
        TARGET.token_bytes[mine] == DRAFT.token_bytes[theirs] for mine, theirs in pairs.items() if mine in written
    )


def test_places_stand_after_the_same_bytes() -> None:
    shares = []
    for text in TEXTS:
        example = paired_example(DRAFT, TARGET, False, text, 40)
        assert example is not None
        draft, target = example.draft.tolist(), example.target.tolist()
        ends = {len(TARGET.bytes_of(target[: place + 1])): place for place in range(len(target))}
        for place, at in enumerate(example.at.tolist()):
            before = len(DRAFT.bytes_of(draft[: place + 1]))
            assert at == ends.get(before, NOWHERE)
        shares.append((example.at != NOWHERE).mean())
    assert 0.2 < np.mean(shares) < 1


def test_one_vocabulary() -> None:
    pairing = pairing_of(TARGET, tokenizer_of("draft"), None)
    assert pairing.same_vocabulary and pairing.size == TARGET.size
    example = paired_example(TARGET, TARGET, True, TEXTS[0], 10)
    assert example is not None
    assert example.draft.tolist() == [TARGET.roles.bos, *TARGET.encode(TEXTS[0])[:10]]
    assert example.at.tolist() == list(range(10))
    with pytest.raises(SpectoolError, match=r"has another vocabulary than .*spectool align --draft"):
        pairing_of(DRAFT, TARGET, None)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("kind", ["one vocabulary", "two"])
def test_divergence_by_hand(kind: str, pairing: Pairing) -> None:
    """Row by row, place by place, without padding."""
    name = "target" if kind == "one vocabulary" else "other"
    draft, target = random_model(name, seed=1, scale=0.7), random_model("target", seed=2, scale=0.7)
    used = Pairing(TARGET.size) if kind == "one vocabulary" else pairing
    tokenizer = TARGET if kind == "one vocabulary" else DRAFT
    made = [paired_example(tokenizer, TARGET, used.same_vocabulary, text, 20) for text in TEXTS[:5]]
    examples = [example for example in made if example is not None]
    nats, kl, overlap, places = 0.0, 0.0, 0.0, 0
    for example in examples:
        log_q = np.array(draft(mx.array(example.draft[None])))[0]
        for place, at in enumerate(example.at.tolist()):
            if at != NOWHERE:
                logits = np.array(target(mx.array(example.target[None])))[0, at]
                of_draft = np.arange(used.size) if used.draft is None else np.array(used.draft)
                of_target = np.arange(used.size) if used.target is None else np.array(used.target)
                p, q = log_softmax(logits[of_target]), log_softmax(log_q[place][of_draft])
                nats -= (np.exp(p) * q).sum()
                kl += (np.exp(p) * (p - q)).sum()
                overlap += np.minimum(np.exp(p), np.exp(q)).sum()
                places += 1
    found = measure_divergence(draft, target, used, examples, 2)
    assert found.places == places > 20
    assert found.cross_entropy == pytest.approx(nats / places, rel=1e-4)
    assert found.kl == pytest.approx(kl / places, rel=1e-3)
    assert found.acceptance == pytest.approx(overlap / places, rel=1e-4)


def test_places_to_compare_are_those_of_both_rows() -> None:
    examples = [e for t in TEXTS if (e := paired_example(DRAFT, TARGET, False, t, 20)) is not None]
    nowhere = examples[1]._replace(at=np.full_like(examples[1].at, NOWHERE))
    batch = batch_of([nowhere, examples[0]])
    assert set(batch.rows.tolist()) == {1}
    assert row_of(DRAFT, [5]).tolist() == ([5] if DRAFT.roles.bos is None else [DRAFT.roles.bos, 5])


def test_draws_take_all_before_any_twice() -> None:
    found = [place for step in range(14) for place in examples_of_step(step, 7, 3, [1, 2])]
    for first in range(0, 42, 7):
        assert sorted(found[first : first + 7]) == list(range(7))
    assert len({tuple(found[first : first + 7]) for first in range(0, 42, 7)}) > 3
    assert found != [place for step in range(14) for place in examples_of_step(step, 7, 3, [1, 3])]
