"""What a text costs grows with its length and with nothing else, whatever kind of text it is."""

import random
from collections.abc import Callable, Sequence
from time import thread_time

import pytest

from spectool.lab.ngram_model import DraftSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.tests.runtime.translation.worlds import World
from spectool.tests.tiers import slow

pytestmark = pytest.mark.nightly
MOST = 3.0  # times as long for twice as much
NOISE = 0.004  # seconds that count as nothing
PROSE = "Zażółć gęślą jaźń, powiedział 12 razy; а потім додав: «Гаразд, ходімо до міста». "


def drawn(low: int, high: int, count: int = 40_000) -> str:
    return "".join(map(chr, random.Random(7).choices(range(low, high), k=count)))


KINDS = {
    "prose": PROSE * 600,
    "digits": drawn(0x30, 0x3A),
    "one sign": "!" * 40_000,
    "JSON": '},{"":[],' * 5000,
    "a table": "|---" * 10_000,
    "emoji": "😀👨‍👩‍👧🇺🇦" * 3000,
    "spaces": " " * 40_000,
    "newlines": "\n" * 40_000,
    "Chinese": drawn(0x4E00, 0x5600),
    "Thai": drawn(0xE01, 0xE2F),
    "one word": drawn(0x61, 0x7B),
    "anything": "".join(map("".join, zip(drawn(0x21, 0x7F), drawn(0xA1, 0x500), drawn(0x3041, 0xD700), strict=True))),
}
SLOW = "bielik-11b-v2.5:qwen2.5 gemma-3:bielik-11b-v2.5 llama-3.2:gemma-3 xlm-roberta-base:bielik-11b-v2.5 "
SLOW += "qwen2.5:xlm-roberta-base"
PAIRS = ["target:other", "other:target", "qwen2.5:bielik-11b-v2.5"]
PAIRS += slow(*SLOW.split())


def too_slow(work: Callable[[Sequence[int]], None], ids: Sequence[int]) -> str:
    """Say how long half of ``ids`` and all of them take, where that is out of proportion."""
    half = whole = float("inf")
    for _ in range(15):  # a busy machine only adds time, so the least of several runs is what the work takes
        half, whole = min(half, seconds(work, ids[: len(ids) // 2])), min(whole, seconds(work, ids))
        if whole < MOST * max(half, NOISE):
            return ""
    return f"{1000 * half:.1f} ms, {1000 * whole:.1f} ms for twice as many"


def seconds(work: Callable[[Sequence[int]], None], ids: Sequence[int]) -> float:
    begun = thread_time()
    work(ids)
    return thread_time() - begun


def ids_of(here: World, kind: str, count: int) -> list[int]:
    ids: list[int] = here.target.plain_backend.encode(KINDS[kind], add_special_tokens=False).ids
    return (ids * (count // max(1, len(ids)) + 1))[:count]  # XLM-R has none for spaces


@pytest.mark.parametrize("pair", PAIRS)
def test_a_prompt(pair: str, world: Callable[[str], World]) -> None:
    """One of 20 kB takes some hundredths of a second, and half a second at the most."""
    here = world(pair)
    drafter = TranslatedDrafter(DraftSource(), here.translator())
    found = {}
    for kind, text in KINDS.items():
        text = text.encode()[:20_000].decode("utf-8", "ignore")
        ids = here.target.plain_backend.encode(text, add_special_tokens=False).ids
        assert seconds(drafter.start, ids) < 0.5, kind
        found[kind] = too_slow(drafter.start, ids)
    assert not any(found.values()), found


@pytest.mark.parametrize("pair", PAIRS)
def test_token_by_token(pair: str, world: Callable[[str], World]) -> None:
    """A generation: every token is committed by itself, a draft is asked about and translated."""
    here, translator = world(pair), world(pair).translator()

    def generate(ids: Sequence[int]) -> None:
        translator.start()
        for place, token in enumerate(ids):
            translator.commit([token])
            if place % 8 == 0:
                for last in translator.draft_context()[-1:]:
                    translator.translate([last, last])
                    translator.constraint().allows(last, False)

    count = 1600  # up to 640 bytes may be encoded again and again, so half of them has to be more
    # Runs of line ends cost nothing up to 512 bytes, where they are remembered, so both halves have to be longer. A run
    # of digits costs most from there on, so that half of 1,600 is hardly more than 640: 800 to 1,600 takes 3.0 times as
    # long, 1,600 to 3,200 takes 2.4, 3,200 to 6,400 takes 2.2.
    longer = {"newlines": 2, "digits": 2}
    found = {kind: too_slow(generate, ids_of(here, kind, count * longer.get(kind, 1))) for kind in KINDS}
    assert not any(found.values()), found
