"""Drafting within the intersection: tables by hand, and real ones."""

from collections.abc import Callable

import numpy as np
import pytest

from spectool.build.alignment.intersection import intersect
from spectool.lab.strategies import IntersectionTranslator
from spectool.tokenization.tokenizer import Tokenizer

# Draft 0 and 3 are target 1 and 0; target 2 is spelled by draft 1 2, target 3 is a special token.
FORTH = np.array([1, -1, -1, 0], dtype=np.int32)
BACK = np.array([3, 0, -1, -1], dtype=np.int32)


def by_hand() -> IntersectionTranslator:
    return IntersectionTranslator(FORTH, BACK, {2: [1, 2], 3: []}.__getitem__)


def test_counterparts_and_spellings() -> None:
    translator = by_hand()
    assert translator.within.tolist() == [True, False, False, True]
    assert translator.constraint().first is None
    translator.commit([1, 2, 3, 0])
    assert list(translator.draft_context()) == [0, 1, 2, 3]
    assert translator.translate([0, 3, 3]) == [1, 0, 0]
    assert translator.translate([]) == []
    assert translator.string_calls == 0


def test_a_draft_ends_where_it_leaves_the_intersection() -> None:
    assert by_hand().translate([0, 2, 3]) == [1]
    with pytest.raises(ValueError, match="healed"):
        by_hand().translate([0], healed=True)


@pytest.mark.parametrize(("draft", "target"), [("qwen2.5", "bielik-11b-v2.5"), ("bielik-11b-v2.5", "llama-3.2")])
def test_bytes_are_kept_on_real_tokenizers(draft: str, target: str, real: Callable[[str], Tokenizer]) -> None:
    mine, theirs = real(draft), real(target)
    byte_ids = {raw: index for index, raw in enumerate(mine.token_bytes) if len(raw) == 1}

    def spell(token: int) -> list[int]:
        return [
            byte_ids[theirs.token_bytes[token][place : place + 1]] for place in range(len(theirs.token_bytes[token]))
        ]

    translator = IntersectionTranslator(intersect(mine, theirs), intersect(theirs, mine), spell)
    within = translator.within
    assert within.shape == (mine.size,)
    for text in ("Зажурилась Україна, 2024 рік.", "Zażółć gęślą jaźń\n\n🙂 ok"):
        committed = theirs.encode(text)
        translator.start()
        for start in range(0, len(committed), 3):
            translator.commit(committed[start : start + 3])
        context = translator.draft_context()
        assert b"".join(mine.token_bytes[i] for i in context) == b"".join(theirs.token_bytes[i] for i in committed)
        drafts = [token for token in mine.encode(text) if within[token]]
        assert drafts
        translated = translator.translate(drafts)
        assert [theirs.token_bytes[i] for i in translated] == [mine.token_bytes[i] for i in drafts]
