"""Factors on stated probabilities: what they are, and that held-out text comes true after them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spectool.build.dictionary.backoff import CandidateEntries
from spectool.build.dictionary.held_out import Calibration, Guesses, HeldOutText
from spectool.build.dictionary.smoothing import open_windows
from spectool.corpora import open_corpus
from spectool.tests.build.counting_twin import counted as count_corpus
from spectool.tokenization.tokenizer import Tokenizer


def predicted(right: list[bool], stated: list[float], length: list[int], count: list[int]) -> Guesses:
    proposed = np.ones(len(right), dtype=bool)
    return Guesses(
        proposed, np.array(right), np.array(stated, np.float32), np.array(length, np.int8), np.array(count, np.int64)
    )


def test_a_factor_is_right_over_stated_with_five_of_each_added() -> None:
    calibration = Calibration(predicted([True] * 30 + [False] * 10, [0.5] * 40, [2] * 40, [20] * 40))
    corrected = calibration(2, np.array([16, 31, 32, 1]), np.array([0.5, 0.1, 0.5, 0.5]))
    assert corrected == pytest.approx([0.5 * 35 / 25, 0.1 * 35 / 25, 0.5, 0.5])
    assert calibration(2, np.array([20]), np.array([0.9]))[0] == 1.0
    assert calibration(1, np.array([20]), np.array([0.5]))[0] == 0.5
    assert calibration(7, np.array([20]), np.array([0.5]))[0] == 0.5, "longer than any that was seen"


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
    calibration = Calibration(learnt)
    corrected = np.zeros(len(checked.stated))
    for length in range(1, 5):
        rows = checked.proposed & (checked.length == length)
        corrected[rows] = calibration(length, checked.count[rows], checked.stated[rows])
    right, stated = checked.right.sum(), checked.stated[checked.proposed].sum()
    print(f"{right} of {checked.proposed.sum()} right; stated {stated:.0f}, calibrated {corrected.sum():.0f}")
    assert abs(corrected.sum() - right) < 0.5 * abs(stated - right)
    assert corrected.sum() == pytest.approx(right, rel=0.1)
