"""What the target goes on with: its own tokens, kept, and respelled for another tokenizer."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from spectool.corpora import open_corpus
from spectool.lab.tuning.examples import prompts_of, respelled_example, row_of, same_ids_example
from spectool.lab.tuning.options import TuneOptions
from spectool.lab.tuning.tasks import continued
from spectool.lab.tuning.tuned_model import Opened
from spectool.tests.lab.training.tiny_pair import random_model, tokenizer_of

DRAFT, TARGET = tokenizer_of("other"), tokenizer_of("target")
TEXTS = [document.text for document in open_corpus("sample:uk")][:30]


def going_on(
    work: Path, model: Any, prompts: np.ndarray, most: int, temperature: float, rows: int, seed: int = 1
) -> np.ndarray:
    options = TuneOptions(steps=1, max_tokens=most, temperature=temperature, batch=rows, seed=seed)
    return continued(work, "a", Opened("target", Path(), model, TARGET), prompts, options)


def test_prompts_are_beginnings() -> None:
    prompts = prompts_of(TARGET, TEXTS, 6, 8)
    assert prompts.shape == (8, 6)
    assert all(any(text.encode().startswith(TARGET.bytes_of(ids)) for text in TEXTS) for ids in prompts.tolist())
    assert prompts_of(TARGET, ["a"], 6, 8).shape == (0, 6)


def test_greedy_is_token_by_token(tmp_path: Path) -> None:
    model = random_model("target", scale=1.0)
    prompts = prompts_of(TARGET, TEXTS, 6, 5)
    found = going_on(tmp_path, model, prompts, 7, 0.0, 2)
    for prompt, tokens in zip(prompts.tolist(), found.tolist(), strict=True):
        ids = row_of(TARGET, prompt).tolist()
        for token in tokens:
            if token == -1:
                break
            assert token == int(mx.argmax(model(mx.array([ids]))[0, -1, : TARGET.size]).item())
            ids.append(token)


def test_batches_are_made_once_and_depend_on_the_seed(tmp_path: Path) -> None:
    model, prompts = random_model("target", scale=0.3), prompts_of(TARGET, TEXTS, 6, 5)
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    whole = going_on(tmp_path / "one", model, prompts, 7, 1.0, 2)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [f"continued-a-{n}.npy" for n in (0, 2, 4)]
    (tmp_path / "one" / "continued-a-2.npy").unlink()
    np.testing.assert_array_equal(going_on(tmp_path / "one", model, prompts, 7, 1.0, 2), whole)
    np.testing.assert_array_equal(going_on(tmp_path / "one", None, prompts, 7, 1.0, 2), whole)
    assert (going_on(tmp_path / "two", model, prompts, 7, 1.0, 2, seed=3) != whole).any()
    assert len(set(whole[whole >= 0].tolist())) > 20


def test_after_the_end_there_is_nothing(tmp_path: Path) -> None:
    model = random_model("target", scale=0.3)
    prompts = prompts_of(TARGET, TEXTS, 4, 6)
    whole = going_on(tmp_path, model, prompts, 40, 3.0, 6)
    eos = TARGET.roles.eos[0]
    whole[0, 3] = eos
    whole[0, 4:] = -1
    example = same_ids_example(TARGET, prompts[0], whole[0])
    begin = len(row_of(TARGET, prompts[0].tolist()))
    assert example.draft.tolist() == [*row_of(TARGET, prompts[0].tolist()).tolist(), *whole[0, :4].tolist()]
    assert example.counted.tolist() == [place >= begin for place in range(1, len(example.draft))]


def test_respelled() -> None:
    checked = 0
    for text in TEXTS:
        ids = np.array(TARGET.encode(text), dtype=np.int32)
        if len(ids) < 12:
            continue
        prompt, made = ids[:5], ids[5:12]
        for tokens in (np.append(made, -1), np.append(made, TARGET.roles.eos[0])):
            ended = tokens[-1] != -1
            example = respelled_example(DRAFT, TARGET, prompt, tokens)
            if example is None:  # nothing but a part of a word
                continue
            data = TARGET.bytes_of([*prompt.tolist(), *made.tolist()])
            begin = len(row_of(DRAFT, []))
            row = example.draft[begin:].tolist()
            if ended and DRAFT.roles.eos:
                assert row[-1] == DRAFT.roles.eos[0]
                assert example.counted[-1]
            spelled = row[:-1] if ended and DRAFT.roles.eos else row
            said = data.decode(errors="ignore")
            assert spelled == DRAFT.encode(said)
            assert DRAFT.bytes_of(spelled) == said.encode()
            cut = len(TARGET.bytes_of(prompt.tolist()))
            for place in range(len(spelled)):
                if begin + place == 0:
                    continue
                inside = len(DRAFT.bytes_of(spelled[:place])) >= cut
                last = place == len(spelled) - 1 and not ended
                assert example.counted[begin + place - 1] == (inside and not last)
            checked += 1
    assert checked > 10
