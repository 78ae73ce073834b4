"""The byte-aligned translator against its slow twin: right, wrong and broken drafts at every frontier.

Where the frontier is a boundary of the whole text, ids must be the twin's; elsewhere the bytes
must agree. Texts with special tokens are cut there: the twin sees what stands after the last one.
"""

import random
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile

import pytest

from spectool.tests.runtime.translation.translation_twin import text_bytes, whole
from spectool.tests.runtime.translation.worlds import (
    PAIRS,
    SENTENCES,
    World,
    endings,
    judge,
    proposals,
    sample,
    spelled,
)
from spectool.tokenization.incremental.ids_or_text import reasons_for_text


@pytest.mark.nightly
@pytest.mark.parametrize("pair", PAIRS)
def test_every_frontier(pair: str, world: Callable[[str], World], rng: random.Random) -> None:
    here = world(pair)
    translator = here.translator()
    wrong: list[str] = []
    frontiers = translations = 0
    texts = 14 if reasons_for_text(here.target) else 7  # some of these leave out what they cannot spell
    for text in sample(rng, texts, 50):
        ids = here.committed(text)
        translator.start()
        for place in range(len(ids) + 1):
            committed = ids[:place]
            translator.commit(committed[-1:])
            now, expected = list(translator.draft_context()), here.twin.context(committed)
            frontiers += 1
            if text_bytes(here.draft, expected) == whole(text_bytes(here.target, committed)) or reasons_for_text(
                here.draft
            ):
                assert now == expected, (text, place)
            else:  # the draft's tokenizer would normalize: bytes are kept, characters stay whole
                assert text_bytes(here.draft, now) == whole(text_bytes(here.target, committed))
            for drafts in proposals(here, translator, committed, text, rng):
                if drafts:
                    translations += 1
                    wrong += judge(here, translator, committed, drafts)
    assert not wrong, f"{len(wrong)} of {translations}: " + "\n".join(wrong[:5])
    assert frontiers > 100


@pytest.mark.parametrize("pair", PAIRS)
def test_special_tokens_divide_texts(pair: str, world: Callable[[str], World], rng: random.Random) -> None:
    here = world(pair)
    translator = here.translator()
    wrong: list[str] = []
    turns = [here.committed(text) for text in (" кот", "user\nДень добрий!", "  two", "Ja też.\n", "")]
    specials = [*([] if here.target.roles.bos is None else [here.target.roles.bos]), *endings(here.target)]
    committed: list[int] = []
    for turn in turns:
        for token in [rng.choice(specials), *turn]:
            committed.append(token)
            translator.commit([token])
            if text_bytes(here.draft, here.twin.context(here.present(committed))) == whole(
                text_bytes(here.target, here.present(committed))
            ):
                for drafts in proposals(here, translator, here.present(committed), "so was da", rng):
                    if drafts:
                        wrong += judge(here, translator, here.present(committed), drafts)
        if not reasons_for_text(here.draft):
            assert spelled(here.draft, translator.draft_context()) == spelled(here.draft, here.view(committed))
        else:
            assert list(translator.draft_context()) == here.view(committed)
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.parametrize("pair", PAIRS)
def test_tokens_split_at_random_stay_as_they_are(pair: str, world: Callable[[str], World], rng: random.Random) -> None:
    """What the target committed in another way than it would encode is kept; the view is canonical all the same."""
    here = world(pair)
    translator = here.translator()
    by_bytes = {raw: i for i, raw in reversed(list(enumerate(here.target.token_bytes))) if raw}
    checked = 0
    for text in sample(rng, 10, 60):
        ids = here.committed(text)
        split: list[int] = []
        for token in ids:
            raw = here.target.token_bytes[token]
            cut = rng.randrange(1, len(raw)) if len(raw) > 1 and rng.random() < 0.4 else 0
            halves = [by_bytes.get(raw[:cut], -1), by_bytes.get(raw[cut:], -1)] if cut else [token]
            split += [token] if -1 in halves else halves
        translator.start()
        for place in range(len(split)):
            translator.commit(split[place : place + 1])
            known = whole(text_bytes(here.target, split[: place + 1]))
            view = list(translator.draft_context())
            expected = here.twin.context(split[: place + 1])
            if text_bytes(here.draft, expected) != known:
                continue
            assert view == expected
            assert spelled(here.draft, view).count("\ufffd".encode()) == known.count("\ufffd".encode())
            checked += 1
            if known != text_bytes(here.target, split[: place + 1]) or reasons_for_text(here.target):
                continue
            said = here.twin.draft.encode(rng.choice(SENTENCES))[:4]
            drafts = list(takewhile(here.draft.token_bytes.__getitem__, said))  # up to what it cannot spell
            raw = text_bytes(here.draft, [*view, *drafts])
            if raw.startswith(known) and whole(raw) == raw:
                found = translator.translate(drafts)
                assert known + spelled(here.target, found) == raw
    assert checked > 100 or reasons_for_text(here.draft)


def holds_before_a_letter(here: World, committed: Sequence[int], space: bytes) -> bool:
    """Whether ``space`` is white space that the target keeps apart where a letter follows it."""
    if not space.isspace():
        return False
    before, target = text_bytes(here.target, committed), here.twin.target
    ids = target.encode((before + space + b"a").decode())
    cuts = list(accumulate((len(target.token_bytes[token]) for token in ids), initial=0))
    return cuts[-1] - len(space) - 1 in cuts


@pytest.mark.parametrize("pair", PAIRS)
def test_the_constraint_is_what_a_scan_finds(pair: str, world: Callable[[str], World], rng: random.Random) -> None:
    here = world(pair)
    translator = here.translator()
    token_bytes = here.draft.token_bytes
    refused = asked = 0
    for text in sample(rng, 8, 50):
        committed = here.committed(text)
        translator.start()
        for place in range(len(committed)):
            translator.commit(committed[place : place + 1])
            ids, constraint = translator.draft_context(), translator.constraint()
            data = text_bytes(here.target, committed[: place + 1])
            pending = data[len(whole(data)) :]
            if rng.random() < 0.2 and ids:
                prefix = token_bytes[ids[-1]] + pending
                scan = [i for i, raw in enumerate(token_bytes) if raw.startswith(prefix) and raw != prefix]
                # What stands for characters without a token has no bytes, and no other token goes on from it.
                assert sorted(constraint.extensions.tolist()) == (scan if token_bytes[ids[-1]] else [])
                if pending:
                    scan = [i for i, s in enumerate(token_bytes) if s.startswith(pending) and s != pending]
                    assert constraint.first is not None
                    assert sorted(constraint.first.tolist()) == scan
            if not pending:
                assert constraint.first is None
            if pending or not data or reasons_for_text(here.target) or text_bytes(here.draft, ids) != data:
                continue
            plain = [rng.randrange(here.draft.size), *here.draft.encode(rng.choice(SENTENCES))[1:3]]
            extensions = constraint.extensions.tolist()
            for token, healed in [(t, False) for t in plain] + [(t, True) for t in extensions[:2] + extensions[-2:]]:
                expected = here.twin.translate(committed[: place + 1], [token], healed)
                if expected.spelled and whole(token_bytes[token]) == token_bytes[token]:
                    asked += 1
                    refused += not expected.boundary
                    allowed = expected.boundary or holds_before_a_letter(here, committed[: place + 1], expected.spelled)
                    assert constraint.allows(token, healed) == allowed, (text, place, token, healed)
    if not reasons_for_text(here.target) and not reasons_for_text(here.draft):
        assert asked > 100
        assert refused > 5
