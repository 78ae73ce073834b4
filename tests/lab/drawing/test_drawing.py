"""Target tokens drawn from a draft with another tokenizer: what is stated is what whole strings say.

Six pairs of toy tokenizers (`toy_pairs`) are compared with a twin that encodes strings (`drawing_twin`).
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spectool.artifacts.alignment import NONE
from spectool.lab.drawing.drafter import DrawingTranslator
from spectool.lab.drawing.token_rows import END, LONGEST_SPELLING, UNKNOWN, TokenRows, spelling_table
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.lab.drawing.drawing_twin import DrawingTwin
from spectool.tests.lab.drawing.drawn import LENGTH, first, following
from spectool.tests.lab.drawing.toy_pairs import PAIRS


@pytest.mark.parametrize("name", first(PAIRS, "byte-level to SentencePiece", "byte fallback", slow="head filter"))
def test_what_is_stated_is_what_whole_strings_say(name: str, translator: Callable[[str], DrawingTranslator]) -> None:
    pair, byte_aligned = PAIRS[name], translator(name)
    compared = merged = 0
    for heat, prompt in itertools.product((0.4, 0.9), pair.prompt_ids):
        twin = DrawingTwin(pair, heat)
        byte_aligned.start()
        byte_aligned.commit(prompt)
        reached: list[tuple[int, ...]] = [()]
        while reached:
            drawn = reached.pop()
            ahead = following(pair, byte_aligned, sampling=Sampling(temp=heat))
            for token in drawn:
                ahead.stated()
                ahead.follow(token)
            known = ahead.stated()
            found = {} if known is None else dict(zip(known[0].tolist(), known[1].tolist(), strict=True))
            expected = twin.stated(prompt, drawn)
            assert found == pytest.approx(expected, abs=1e-6), (heat, prompt, drawn)
            compared += 1
            if len(drawn) < LENGTH - 1:
                reached += [(*drawn, token) for token in expected]
        merged += twin.merged
    print(f"{name}: {compared} distributions, {merged} merges of a held id with what follows it")
    assert compared > 100 and merged > 20


NO_ENCODER: Any = None


@pytest.mark.parametrize("count", [0, 1, LONGEST_SPELLING, LONGEST_SPELLING + 1, LONGEST_SPELLING + 5])
def test_a_spelling_longer_than_a_row_has_no_end(count: int) -> None:
    """A draft token of a text's start is written with care, not by the table."""
    ids = tuple(range(10, 10 + count))
    table = np.full((1, LONGEST_SPELLING + 1), UNKNOWN, np.int32)
    frontier = TokenRows(table, (b"x",), NO_ENCODER, {}, [], (b"", b""), lambda token: ids, False, bool)
    rows, pending = frontier.first(np.array([0]), np.array([True]), False)
    more = END if 0 < count <= LONGEST_SPELLING else UNKNOWN
    assert rows.tolist() == [[*ids[:LONGEST_SPELLING], *[more] * (LONGEST_SPELLING + 1 - min(count, LONGEST_SPELLING))]]
    assert not pending


def test_the_table_has_what_is_written_token_by_token() -> None:
    rng = np.random.default_rng(seed := 53)
    inside = [rng.integers(1000, size=length).tolist() for length in rng.integers(LONGEST_SPELLING + 4, size=2000)]
    counterparts = rng.integers(NONE, 1000, size=2000).astype(np.int32)
    token_bytes = [bytes(size) for size in rng.integers(3, size=2000)]
    rows = spelling_table(inside, counterparts, token_bytes)
    for token, (ids, raw) in enumerate(zip(inside, token_bytes, strict=True)):
        row = [*ids, *(END,) * (LONGEST_SPELLING + 1)][: LONGEST_SPELLING + 1]
        row[LONGEST_SPELLING] = END if len(ids) <= LONGEST_SPELLING else UNKNOWN
        if not ids:
            row[0] = UNKNOWN
        if not raw:
            row[:2] = [UNKNOWN if counterparts[token] == NONE else int(counterparts[token]), UNKNOWN]
        assert rows[token].tolist() == row, (seed, token)
