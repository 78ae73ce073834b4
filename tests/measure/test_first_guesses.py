"""First guesses on a text: of a draft model in the tokens of any target, of look-ups, and of other forms of weights."""

import random
import shutil
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from spectool.artifacts.manifest import Manifest
from spectool.artifacts.pruned_draft import FORMAT, RECORD, VERSION, honesty_of
from spectool.commands.prune_draft import in_form
from spectool.corpora import open_corpus
from spectool.measure import forms
from spectool.measure.first_guesses import guesses, most_probable, right_guesses, right_proposals, share
from spectool.measure.predict import Text
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import load_model
from spectool.tests.build.test_pruning import make_model
from spectool.tokenization.opening import open_tokenizer

SEED = random.SystemRandom().randrange(10**6)
TEXTS = [document[:300] for document in open_corpus("sample:pl")][:20]


class Oracle:
    """Guesses what a text has, but for some places."""

    def __init__(self, ids: list[int], size: int, wrong: set[int]) -> None:
        self.guesses = [(token + 1) % size if at in wrong else token for at, token in enumerate(ids)]
        self.size = size

    def __call__(self, fed: mx.array) -> mx.array:
        assert fed.shape == (1, len(self.guesses))
        return mx.eye(self.size)[mx.array(self.guesses)][None]


def test_a_token_of_the_target_is_right_where_the_draft_guesses_all_of_its_bytes() -> None:
    rng = random.Random(SEED)
    draft, other = open_tokenizer(demo_path("draft")), open_tokenizer(demo_path("other") / "tokenizer.json")
    for target in (draft, other):
        for text in TEXTS:
            ids = draft.encode(text)
            wrong = {at for at in range(len(ids)) if rng.random() < 0.2}
            right = list(right_guesses(Oracle(ids, draft.size, set()), draft, target, [text]))
            assert all(right), f"seed {SEED}: {text}"
            right = list(right_guesses(Oracle(ids, draft.size, wrong), draft, target, [text]))
            assert len(right) == len(target.encode(text)) and (not wrong or not all(right)), f"seed {SEED}: {text}"
            if target is draft:
                assert all(right[at] for at in range(len(ids)) if at not in wrong), f"seed {SEED}: {text}"


def test_guesses_are_those_of_plain_passes() -> None:
    model, loaded = load_model(str(demo_path("draft")))
    tokenizer = open_tokenizer(loaded)
    ids = tokenizer.encode(TEXTS[0])[:40]
    alone = [int(mx.argmax(model(mx.array([[tokenizer.roles.bos, *ids[:at]]]))[0, -1])) for at in range(len(ids))]
    assert most_probable(model, tokenizer, ids) == alone
    right = list(right_guesses(model, tokenizer, tokenizer, [tokenizer.bytes_of(ids).decode()]))
    assert sum(right) >= sum(guess == token for guess, token in zip(alone, ids, strict=True)) > 0


@pytest.mark.nightly
def test_what_a_model_says_of_its_guesses_is_that_of_plain_passes(tmp_path: Path) -> None:
    model, loaded = load_model(str(demo_path("draft")))
    tokenizer = open_tokenizer(loaded)
    said, right = list[float](), 0
    for text in TEXTS[:1]:
        ids = tokenizer.encode(text)
        for at, token in enumerate(ids):
            row = mx.softmax(model(mx.array([[tokenizer.roles.bos, *ids[:at]]]))[0, -1].astype(mx.float32))
            said.append(float(row.max()))
            right += int(mx.argmax(row)) == token
    found = guesses(model, tokenizer, [TEXTS[0], ""])
    assert found["places"] == len(said) and found["said"] == pytest.approx(sum(said) / len(said), abs=1e-3)
    assert abs(found["right"] * len(said) - right) <= 1, "two equally probable tokens may change places"
    for say, expected in (
        ({"places": 900, "said": 0.5, "right": 0.4}, 0.8),
        ({"places": 900, "said": 0.4, "right": 0.5}, 1.0),
        *[(each, None) for each in (found, {}, None, [1], "x", {"places": 900, "said": float("nan"), "right": 0.4})],
        *[({"places": 900, "said": each, "right": 0.4}, None) for each in (0, -1, "0.5x", None, [], 1e400 * 0)],
    ):
        sides = {"whole": tokenizer.identity, "pruned": tokenizer.identity}
        (tmp_path / RECORD).write_text(Manifest(FORMAT, VERSION, {}, sides, {}, {"guesses": say}).to_json())
        assert honesty_of(tmp_path) == expected, say
    assert honesty_of(tmp_path / "none") is None


def test_look_ups_are_asked_at_every_token() -> None:
    text = Text([7, 1], [2, 3, 4, 1, 2, 3, 4, 1, 2, 9, 4])
    right = list(right_proposals(LookupDrafter(None, True), [text]))
    assert right == [False] * 4 + [True] * 5 + [False, False]
    assert share(right) == 5 / 11 and share([]) == 0


SLOWER = (1.0, 0.9, 0.96, 1.6)  # a pass of the weights as they are, and at 16, 8 and 4 bits
FASTER = (1.0, 0.9, 0.8, 0.6)


@pytest.mark.parametrize(
    ("times", "wrong", "kept"), [(FASTER, 0, 4), (FASTER, 1, 8), (FASTER, 3, None), (SLOWER, 0, 16), (SLOWER, 1, None)]
)
def test_the_fastest_form_that_guesses_the_same_is_kept(
    tmp_path: Path, times: tuple[float, ...], wrong: int, kept: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which the ``wrong`` fastest ones guess other tokens."""
    mx.random.seed(SEED)
    folder = make_model(tmp_path / "draft", True, False)
    shutil.copytree(folder, tmp_path / "copy")
    left, asked = iter(times), count()
    monkeypatch.setattr(forms, "Passes", lambda model, depth: Mock(run=Mock(return_value=next(left))))
    monkeypatch.setattr(forms, "most_probable", lambda *_: [int(0 < next(asked) <= wrong)] * 20)
    found = forms.keep_fastest(folder, TEXTS[:1], print)
    assert found.get("bits") == kept and not list(left)
    if bits := found.get("bits"):
        assert in_form(tmp_path / "copy", bits) == {"bits": bits, "bytes": found["bytes"]}
    mine, theirs = (dict(tree_flatten(load_model(str(each))[0].parameters())) for each in (folder, tmp_path / "copy"))
    assert all(mx.array_equal(mine[name], theirs[name]) for name in mine | theirs)
    if forms.quantised(load_model(str(folder))[0]):
        assert forms.keep_fastest(folder, TEXTS[:1], print) == {}
