"""Factors on stated probabilities: what they are, and that held-out text comes true after them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spectool.build.dictionary.backoff import POWERS, CandidateEntries
from spectool.build.dictionary.held_out import Guesses, HeldOutText, corrections
from spectool.build.dictionary.smoothing import open_windows
from spectool.corpora import open_corpus
from spectool.tests.build.counting_twin import counted as count_corpus
from spectool.tokenization.tokenizer import Tokenizer


def test_a_factor_is_right_over_stated_with_five_of_each_added() -> None:
    group = 2 * POWERS + 4  # after two tokens that occurred 16 to 31 times
    right, stated = np.repeat([True, False], [30, 10]), np.full(40, 0.5, np.float32)
    factors = corrections(Guesses(np.ones(40, bool), right, stated, np.full(40, group)))
    assert factors[group] == pytest.approx(35 / 25)
    assert (np.delete(factors, group) == 1).all()


def test_calibrated_probabilities_come_true(tmp_path: Path, real: Callable[[str], Tokenizer]) -> None:
    """Learnt on one half of what was not counted, checked on the other."""
    tokenizer = real("bielik-11b-v2.5")
    texts = [document.text for document in open_corpus("sample:pl")]
    counted, learnt_on, checked_on = (
        texts[: len(texts) // 2],
        texts[len(texts) // 2 :: 2],
        texts[len(texts) // 2 + 1 :: 2],
    )
    (tmp_path / "counted.txt").write_text("\n".join(counted), encoding="utf-8")
    counts = count_corpus(open_corpus(str(tmp_path / "counted.txt")), tokenizer, 5, 1)
    windows = open_windows(counts)
    chosen = CandidateEntries(windows, 0.9, counts.symbols).entries_gaining(0.0)
    learnt, checked = (
        HeldOutText(tokenizer.encode_batch(part), windows, counts.symbols).predicted(chosen)
        for part in (learnt_on, checked_on)
    )
    rows = checked.proposed
    corrected = np.minimum(1, checked.stated[rows] * corrections(learnt)[checked.group[rows]])
    right, stated = checked.right.sum(), checked.stated[checked.proposed].sum()
    print(f"{right} of {checked.proposed.sum()} right; stated {stated:.0f}, calibrated {corrected.sum():.0f}")
    assert abs(corrected.sum() - right) < 0.5 * abs(stated - right)
    assert corrected.sum() == pytest.approx(right, rel=0.1)
