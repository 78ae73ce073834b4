"""The byte-aligned translator's state: in steps and at once, text after text, roles, broken characters, switches."""

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import FingerprintMismatch
from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.corpora import open_corpus
from spectool.lab.ngram_model import DraftSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator, FirstTokenRule
from spectool.tests.runtime.translation.translation_twin import text_bytes
from spectool.tests.runtime.translation.worlds import QUICK, SENTENCES, World, endings, sample, state
from spectool.tests.tiers import nightly, slow
from spectool.tokenization.incremental.common_prefix import common_prefix
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer


def streams(target: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Committed ids of all kinds: text, ids from anywhere, single bytes, special ones, and beyond the tokenizer."""
    byte_tokens = [i for i, raw in enumerate(target.token_bytes) if len(raw) == 1]
    texts = [target.encode(text) for text in SENTENCES]
    pieces = st.builds(
        lambda ids, start, length: ids[start % len(ids) :][:length],
        st.sampled_from(texts),
        st.integers(0, 200),
        st.integers(1, 8),
    )
    odd = st.lists(st.integers(0, target.size - 1), min_size=1, max_size=2)
    halves = st.lists(st.sampled_from(byte_tokens), min_size=1, max_size=4)
    specials = st.sampled_from(endings(target)).map(lambda token: [token])
    return st.lists(st.one_of(pieces, odd, halves, specials), max_size=5).map(lambda parts: list(chain(*parts)))


@pytest.mark.parametrize("pair", [*QUICK, *slow("bielik-11b-v2.5:qwen2.5")])
def test_commits_in_steps_equal_one_commit(pair: str, world: Callable[[str], World]) -> None:
    """Whatever is committed: a translator that was asked in between stands where a fresh one does."""
    here = world(pair)
    translator, fresh = here.translator(), here.translator()

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(st.lists(streams(here.target), min_size=1, max_size=4))
    def check(steps: list[list[int]]) -> None:
        translator.start()
        committed: list[int] = []
        for tokens in steps:
            translator.commit(tokens)
            committed += tokens
            fresh.start()
            fresh.commit(committed)
            assert state(here, translator) == state(here, fresh)

    check()


@pytest.mark.nightly
def test_names_and_roles_are_mapped_and_the_rest_is_left_out(world: Callable[[str], World]) -> None:
    here = world("qwen2.5:bielik-11b-v2.5")
    translator = here.translator()
    end, other_end = (each.vocabulary["<|im_end|>"] for each in (here.target, here.draft))
    begin, instruct = here.target.vocabulary["<|im_start|>"], here.target.vocabulary["<|function_list|>"]
    assert "<|function_list|>" not in here.draft.vocabulary
    chat = [instruct, begin, *here.target.encode("user\nco"), end, here.target.size + 3]
    translator.commit(chat)
    opened = [here.draft.vocabulary["<|im_start|>"], *here.draft.encode("user\nco"), other_end]
    assert list(translator.draft_context()) == opened
    # A new text begins: the target writes its artificial space again, and nothing of the old one is healed.
    assert translator.constraint().extensions.size == 0
    translator.commit(here.target.encode("tak"))
    assert list(translator.draft_context()) == [*opened, *here.draft.encode("tak")]
    words = here.draft.encode("tak to jest")[1:]
    assert translator.translate([*words, other_end, *words]) == [*translator.translate(words), end]
    assert translator.translate([other_end]) == [end]
    assert translator.translate([here.draft.size + 1]) == []
    assert translator.constraint().allows(here.draft.size + 1, False)


@pytest.mark.parametrize(("swapped", "unigram"), [(False, True), *nightly((True, False), (False, False), (True, True))])
def test_a_space_at_the_very_beginning_and_after_no_special_token(
    swapped: bool, unigram: bool, sentence_piece: Backend, byte_level: Backend, tmp_path: Path
) -> None:
    """Many Llamas are rebuilt so by transformers 5."""
    if unigram:
        names = sorted(vocabulary := sentence_piece.get_vocab(), key=vocabulary.__getitem__)
        sentence_piece.model = models.Unigram([(name, -1.0) for name in names], 0, byte_fallback=True)
    sentence_piece.normalizer = None
    sentence_piece.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    for backend in (sentence_piece, byte_level):
        backend.add_special_tokens(["<|im_start|>"])
    first, other = open_tokenizer(sentence_piece), open_tokenizer(byte_level)
    assert first.leading_space and not first.space_after_specials
    draft, target = (other, first) if swapped else (first, other)
    build_alignment(draft, target, open_corpus("sample:pl"), tmp_path / "x", quiet, sample=60)
    translator = ByteAlignedTranslator(Alignment(tmp_path / "x"), draft, target)
    text = "<|im_start|>kot\n kot<|im_start|> kot<|im_start|>"
    for token in target.encode(text):
        translator.commit([token])
    assert list(translator.draft_context()) == draft.encode(text)
    for said in ("kot", " kot"):
        theirs, ours = (each.encode(text + said)[len(each.encode(text)) :] for each in (draft, target))
        assert translator.translate(theirs) == ours


@pytest.mark.parametrize("pair", QUICK)
def test_broken_characters_neither_crash_nor_stall(
    pair: str, world: Callable[[str], World], rng: random.Random
) -> None:
    here = world(pair)
    translator = here.translator()
    byte_tokens = [i for i, raw in enumerate(here.target.token_bytes) if len(raw) == 1]
    high = [i for i in byte_tokens if here.target.token_bytes[i] >= b"\x80"]
    for _ in range(8):
        translator.start()
        broken = rng.choices(high, k=rng.randint(1, 12))
        committed = [*here.target.encode("Ala"), *broken, *here.target.encode("kot 12")]
        for token in committed:
            translator.commit([token])
            state(here, translator)
        # Every byte is in the view: none waits for a character for ever, none has become U+FFFD.
        assert text_bytes(here.draft, translator.draft_context()) == text_bytes(here.target, committed)


def test_for_other_tokenizers(world: Callable[[str], World]) -> None:
    here = world("other:target")
    command = rf"spectool align --draft {here.target.name} --target {here.draft.name}"
    with pytest.raises(FingerprintMismatch, match=r"its draft side: built for .*" + command) as caught:
        ByteAlignedTranslator(here.alignment, here.target, here.draft)
    assert here.draft.name in str(caught.value)
    assert here.target.name in str(caught.value)
    with pytest.raises(FingerprintMismatch, match="spectool align"):
        ByteAlignedTranslator(here.alignment, here.draft, here.draft)


@pytest.mark.parametrize("pair", QUICK)
def test_nothing_at_all(pair: str, world: Callable[[str], World]) -> None:
    here = world(pair)
    translator = here.translator()
    for _ in range(2):
        translator.commit([])
        assert not translator.draft_context()
        assert translator.constraint().extensions.size == 0
        assert translator.constraint().first is None
        assert translator.translate([]) == []
        for text in SENTENCES:
            if text_bytes(here.draft, drafts := here.twin.draft.encode(text)) == text.encode():
                assert translator.translate(drafts) == here.twin.target.encode(text)
        translator.commit(here.target.encode("Ала 12\n\n"))
        translator.commit([])
        assert translator.translate([]) == []
        translator.start()


@pytest.mark.parametrize("pair", QUICK)
def test_a_target_id_is_as_probable_as_its_bytes(pair: str, world: Callable[[str], World], rng: random.Random) -> None:
    """Where draft and target ids end at the same byte, the draft is as probable up to there in both."""
    here, text = world(pair), "Zażółć gęślą jaźń, powiedział Grzegorz Brzęczyszczykiewicz w Łękołodach. " * 3
    translator, target, drafts = here.translator(), here.target.encode(text), here.draft.encode(text)
    reached, said = (list(_ends(side, ids)) for side, ids in ((here.target, target), (here.draft, drafts)))
    begin = next(place for place, end in enumerate(reached, 1) if place >= 5 and end in said)
    translator.commit(target[:begin])
    drafts = drafts[said.index(reached[begin - 1]) + 1 :]
    tokens = translator.translate(drafts)
    likely = list(accumulate(rng.uniform(-3.0, 0.0) for _ in drafts))
    found = translator.probabilities(drafts, False, likely, tokens)
    assert len(found) == len(tokens) > 20 and all(0.0 < each <= 1.0 for each in found)
    by_byte = dict(zip(_ends(here.draft, drafts), likely, strict=True))
    both = [
        (by_byte[end], sofar)
        for end, sofar in zip(_ends(here.target, tokens), accumulate(map(math.log, found)), strict=True)
        if end in by_byte
    ]
    assert len(both) > 10 and all(sofar == pytest.approx(expected, abs=1e-6) for expected, sofar in both)


def _ends(side: Tokenizer, ids: Sequence[int]) -> Iterator[int]:
    """The byte at which each id ends."""
    return accumulate(len(side.token_bytes[token]) for token in ids)


class Perfect(DraftSource):
    """A draft that knows the text in its own ids, and goes on with them where the context is a part of it."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids, self._end = ids, 0

    def draft(self, context: Sequence[int], constraint: FirstTokenRule, limit: int) -> tuple[list[int], bool]:
        ids = list(context)
        begin = common_prefix(ids, self._ids)
        healed = begin == len(ids) - 1 and self._ids[begin] in constraint.extensions
        if begin < len(ids) - healed or not constraint.allows(self._ids[begin], healed):
            return [], False
        self._end = begin + limit
        return list(self._ids[begin : self._end]), healed

    def more(self) -> list[int]:
        self._end += 1
        return list(self._ids[self._end - 1 : self._end])


CODE = "".join(
    f"def f{i}(a, b):\n    for i in a:\n        if b.size > {i}:\n            print(i)\n\n" for i in range(9)
)
DATA = json.dumps([{"name": name, "sizes": [1, None, {"a": "b"}]} for name in ("kot", "pies", "lis", "sowa")], indent=2)


@pytest.mark.nightly
@pytest.mark.parametrize("text", [CODE, DATA], ids=["code", "JSON"])
def test_the_first_id_of_a_short_proposal_is_that_of_a_long_one(text: str, world: Callable[[str], World]) -> None:
    """Line ends belong to the token before them, spaces to the one after, and the draft cuts elsewhere."""
    here = world("gemma-3:qwen2.5")
    target = here.target.encode(text)
    drafter = TranslatedDrafter(Perfect(here.draft.encode(text)), here.translator())
    drafter.start(target[:20])
    right = dict.fromkeys((1, 2, 4, 8), 0)
    places = range(20, len(target) - 12)
    for place in places:
        for count in right:
            right[count] += list(drafter.propose(count).tokens[:1]) == [target[place]]
        drafter.commit([target[place]])
    assert right[8] > 0.97 * len(places)
    # What follows an id for the first time cannot be foreseen.
    assert min(right.values()) > 0.97 * right[8], right


@pytest.mark.nightly
def test_what_a_line_end_would_absorb_is_settled_once_the_text_has_shown_it_to_stand(
    world: Callable[[str], World],
) -> None:
    """The sample is prose, in which a comma is never followed by a line end."""
    here = world("gemma-3:qwen2.5")
    comma, word = here.target.encode(","), here.target.encode(" kot")
    assert len(here.target.encode(",\n")) == 1
    translator = here.translator()
    translator.commit(word)
    assert not translator.is_settled(comma) and translator.is_settled(word)
    translator.commit([*comma, *word] * 3)
    assert translator.is_settled(comma)
    translator.commit(here.target.encode(",\n"))
    assert not translator.is_settled(comma)


@pytest.mark.parametrize("pair", QUICK)
def test_a_prompt_is_what_its_tokens_are_one_by_one(
    pair: str, world: Callable[[str], World], rng: random.Random
) -> None:
    here = world(pair)
    together, each = here.translator(), here.translator()
    texts = [
        *(" ".join(sample(rng, 8, 120)) for _ in range(4)),
        "!" * 900,
        '},{"":[],' * 60,
        "|---" * 90,
        " " * 900,
        "🙂" * 90,
    ]
    for text in texts:
        ids = here.committed(text)
        for translator in (together, each):
            translator.start()
        together.commit(ids)
        for token in ids:
            each.commit([token])
        assert state(here, together) == state(here, each), text
        half = len(ids) // 2
        together.start()
        together.commit(ids[:half])
        together.draft_context()
        together.commit(ids[half:])
        assert list(together.draft_context()) == list(each.draft_context()), text


def test_a_draft_that_begins_without_the_artificial_space(
    bundled: Tokenizer, other_bundled: Tokenizer, tmp_path: Path
) -> None:
    """A text that begins with an added token has none, and the target may have committed its own already."""
    backend = Backend.from_str(bundled.backend.to_str())
    backend.add_tokens([AddedToken("<think>", normalized=False)])
    draft = Tokenizer("with an added token", backend, bundled.roles)
    build_alignment(draft, bundled, open_corpus("sample:pl"), tmp_path / "pair", lambda step: None, sample=0)
    translator = ByteAlignedTranslator(Alignment(tmp_path / "pair"), draft, bundled)
    ids = bundled.encode("<think>")
    assert bundled.token_bytes[ids[0]] == b" ", "the artificial space is a token of its own"
    for committed in (0, 1):
        translator.start()
        translator.commit(ids[:committed])
        proposed = translator.translate([draft.vocabulary["<think>"]])
        assert b"".join(map(bundled.token_bytes.__getitem__, proposed)).lstrip() == b"<think>"


@pytest.mark.nightly
def test_a_target_through_text_repeats_no_space_and_skips_no_bytes(world: Callable[[str], World]) -> None:
    here = world("qwen2.5:t5-small")
    draft, target, translator = here.draft, here.target, here.translator()
    space, house = target.vocabulary["▁"], target.encode("house")
    assert house[0] != space, "a text begins with its space and more in one id"
    translator.commit([space])
    for said in ("house", " house", "ża house"):
        found = translator.translate(draft.encode(said))
        assert [space, *found] in ([space], target.encode(said.strip())), said

    translator.start()
    translator.commit(target.encode("This is"))
    right = draft.encode(" a house")
    byte = draft.token_bytes.index(b"\xff") if b"\xff" in draft.token_bytes else draft.token_bytes.index(b"\x80")
    assert translator.translate(right) == target.encode("This is a house")[2:]
    assert translator.translate([*right, byte, *draft.encode(" is")]) == translator.translate(right)
