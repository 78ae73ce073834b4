"""Joining ids: whatever is put together, the result is what the tokenizer writes for the whole text."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from spectool.tests.tiers import slow
from spectool.tests.tokenization.incremental.oracle import QUICK, Reference, counted, joined
from spectool.tokenization.incremental import by_ids
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.tokenizer import Tokenizer

PIECES = (
    *("a", "A", "s", "S", "t", "re", "ve", "ll", "m", "d", "'s", "'re", "'LL", "'", "’", "ʼ", "`", "ſ", "'ſ", "don't"),
    *("ж", "Ж", "ка", "є", "ї", "é", "e\u0301", "\u0301", "ß", "İ", "ﬁ", "ǅ", "ª"),
    *("漢字", "かな", "ไทย", "한국", "א", "क्ष", "𝒳", "0", "1", "12", "123", "2024", "٣", "²", "½", "Ⅷ", "1️⃣"),
    *(" ", "  ", "   ", " " * 17, "\n", "\n\n", "\r\n", "\r", "\t"),
    *("\t\t\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b", "\x1c", "\x00", "\x7f", "\u200b", "\ufeff"),
    *(*".,!-—«»/_()$€#", "...", "//", "==", "\\n", "&amp;", "http://"),
    *("😀", "👨‍👩‍👧", "🇺🇦", "\ufe0f", "\u200d", "\ufffd", "\U000f0000", "\u0378"),
    *("<", "</", ">", "<un", "used5>", "<unused5>"),
    *("<table>", "<tool_call>", "[multimodal]", "</s>", "<s>", "<|im_end|>", "<0x0A>", "▁", "Ġ"),
)


def draw(rng: random.Random, lines: list[str], added: list[str]) -> str:
    """Draw a text: a real line, one with strange insertions, runs, near-tokens, or anything at all."""
    kind, line = rng.randrange(7), rng.choice(lines)[:150]
    if kind == 0:
        return line
    if kind == 1:
        characters = list(line)
        for _ in range(5):
            characters.insert(rng.randrange(len(characters) + 1), rng.choice(PIECES))
        return "".join(characters)
    if kind == 2:
        return rng.choice(PIECES) * rng.randrange(1, 40)
    if kind == 3:
        pair = rng.sample(PIECES, 2)
        return "".join(rng.choices(pair, k=rng.randrange(1, 25)))
    if kind == 4 and added:
        one, other = rng.choice(added), rng.choice(added)
        parts = (one, other, one[: len(one) // 2], one[len(one) // 2 :], rng.choice(PIECES))
        return "".join(rng.choices(parts, k=rng.randrange(1, 8)))
    return "".join(rng.choices(PIECES, k=rng.randrange(1, 14)))


def check_text(encoder: IncrementalBPE, oracle: Reference, text: str, rng: random.Random) -> bool:
    """Take one text apart in many ways; False where the tokenizer does not keep its bytes."""
    whole, data = oracle.encode(text), text.encode()
    if oracle.bytes_of(whole) != data:
        return False
    cuts = sorted({0, len(text), *rng.choices(range(len(text) + 1), k=1 + len(text) // 3)})
    boundaries = oracle.ends(whole)
    ids: list[int] = []
    for begin, end in pairwise(cuts):
        piece = text[begin:end]
        ids = joined(encoder.join(ids, piece.encode()), ids)
    assert ids == whole, (text, cuts)
    assert list(encoder.encode(data)) == whole, text

    at = rng.choice(cuts)
    left, right = oracle.encode(text[:at]), oracle.encode(text[at:])
    edge = len(text[:at].encode())
    assert encoder.boundary_holds(left, data[edge:]) == (not left or not right or edge in boundaries), (
        text,
        at,
    )

    # A floor inside the canonical ids, and one behind ids that are not canonical.
    loose = loosened(encoder, left, rng)
    for before, floor in ((left, rng.randrange(len(left) + 1)), (loose, len(loose))):
        found = joined(encoder.join(before, text[at:].encode(), floor), before)
        assert found[:floor] == before[:floor], (data, floor)
        assert oracle.bytes_of(found) == data, (data, floor)
        if (edge := oracle.ends(before[:floor])[-1]) in boundaries:
            assert found[floor:] == whole[boundaries.index(edge) :], (data, before, floor)
    half = rng.randrange(len(data) + 1)
    broken = list(encoder.encode(data[:half]))
    found = joined(encoder.join(broken, data[half:], len(broken)), broken)
    assert found[: len(broken)] == broken, (text, half)
    assert oracle.bytes_of(found) == data, (text, half)

    # An earlier text before this one changes nothing.
    earlier = oracle.encode(rng.choice(PIECES) + rng.choice(PIECES))
    after = [*earlier, *left]
    assert joined(encoder.join(after, text[at:].encode(), begin=len(earlier)), after) == earlier + whole, (text, at)
    return True


def loosened(encoder: IncrementalBPE, ids: list[int], rng: random.Random) -> list[int]:
    """Return ids of the same bytes with one of them taken apart."""
    if not ids:
        return ids
    at = rng.randrange(len(ids))
    data = encoder.token_bytes[ids[at]]
    cut = rng.randrange(len(data))
    return [*ids[:at], *encoder.encode(data[:cut]), *encoder.encode(data[cut:]), *ids[at + 1 :]]


@pytest.mark.parametrize(("name", "count"), counted(150, 1000))
def test_joined_pieces_are_the_whole_text(
    name: str,
    count: int,
    real: Callable[[str], Tokenizer],
    encoder: Callable[[str], IncrementalBPE],
    lines: list[str],
    rng: random.Random,
) -> None:
    oracle, added = Reference(real(name)), list(real(name).running_added.values())
    kept = sum(check_text(encoder(name), oracle, draw(rng, lines, added), rng) for _ in range(count))
    print(f"{name}: {kept:,} texts, no mismatch; {count - kept:,} left out, whose bytes the tokenizer does not keep")
    assert kept > 0.6 * count


@pytest.mark.parametrize("spaced", [False, True])
def test_a_space_before_an_added_token(
    spaced: bool, real: Callable[[str], Tokenizer], encoder: Callable[[str], IncrementalBPE]
) -> None:
    """One that the text has stays; the tokenizer's own is not put before an added token."""
    name, text = "phi-3-mini", " </s> kot"
    whole = Reference(real(name)).encode(text)[spaced:]
    for at in range(len(text) + 1):
        ids = joined(encoder(name).join([], text[:at].encode(), spaced=spaced), [])
        assert joined(encoder(name).join(ids, text[at:].encode(), spaced=spaced), ids) == whole, at


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are encoded."""
    texts, call = list[str](), by_ids.call_backend
    monkeypatch.setattr(by_ids, "call_backend", lambda *given, **how: texts.append(given[1]) or call(*given, **how))
    return texts


@pytest.mark.parametrize("name", QUICK)
def test_corpus_pairs_that_split_elsewhere(
    name: str,
    encoder: Callable[[str], IncrementalBPE],
    real: Callable[[str], Tokenizer],
    lines: list[str],
    encoded: list[str],
) -> None:
    """Real text cut at every character of a word: whether the boundary holds, for which little is encoded."""
    oracle, prepared = Reference(real(name)), encoder(name)
    merged, asked = 0, 0
    for line in lines[:40]:
        text = line[:60]
        boundaries = oracle.ends(oracle.encode(text))
        for at in range(1, len(text)):
            left, right = oracle.encode(text[:at]), oracle.encode(text[at:])
            expected = len(text[:at].encode()) in boundaries
            assert prepared.boundary_holds(left, oracle.bytes_of(right)) == expected, (text, at)
            merged, asked = merged + (not expected), asked + 1
    assert merged > asked / 5
    assert len(encoded) <= asked


# What once went wrong, as short as it can be: pieces of a text.
@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("nanochat-pl-ours6-nfkc", ("%\x1c", "[m", "ulti")),  # Python takes U+001C for a space
        ("nanochat-pl-ours6-nfkc", ("&0", "12", "3ж")),  # digits in groups, counted after a sign
        ("nanochat-pl-ours6-nfkc", ("do?m", "'r", "e\t")),
        ("phi-3-mini", ("a</", "s>½")),  # an added token spelled in text
        ("phi-3-mini", ("</s>", "</s>")),
        *slow(
            ("qwen2.5", ("“<tool", "_call>.", ".. ")),
            ("qwen2.5", ("uffix|", "><|fim_suffix|>")),
            ("qwen2.5", ("<|fim_middle|", ">_", "name")),  # a new text begins after an added token
            ("qwen2.5", ("<tool_call><", "{2024")),
            ("gemma-3", ("<unused5>ं\n",)),
            ("gemma-3", (", \n\n\n", *"!" * 18)),  # newlines are an added token
            ("llama-3.2", ("&amp;0", "123ǅ")),
            ("gpt4o-o200k", ("'s't" * 60, *["'t"] * 40)),  # repeats itself
        ),
    ],
)
def test_what_once_went_wrong(
    name: str, pieces: tuple[str, ...], real: Callable[[str], Tokenizer], encoder: Callable[[str], IncrementalBPE]
) -> None:
    oracle, whole = Reference(real(name)), "".join(pieces)
    ids: list[int] = []
    for piece in pieces:
        ids = joined(encoder(name).join(ids, piece.encode()), ids)
    assert ids == list(encoder(name).encode(whole.encode())) == oracle.encode(whole)


def test_bytes_that_stay_bytes(encoder: Callable[[str], IncrementalBPE], real: Callable[[str], Tokenizer]) -> None:
    """Two tabs are two byte tokens; the halves of a character with a symbol become one."""
    oracle, prepared = Reference(real("bielik-11b-v2.5")), encoder("bielik-11b-v2.5")
    assert prepared.boundary_holds(oracle.encode("٣\t"), b"\t")
    first, second = "Ж".encode()[:1], "Ж".encode()[1:]
    assert not prepared.boundary_holds(prepared.encode(first), second)


def test_committed_halves_of_a_character_stay(
    encoder: Callable[[str], IncrementalBPE], real: Callable[[str], Tokenizer]
) -> None:
    """The rest of the character follows as bytes, and never as U+FFFD."""
    for name in QUICK:
        prepared, data = encoder(name), "한</s>s> ж".encode()
        committed = list(prepared.encode(data[:1]))
        found = joined(prepared.join(committed, data[1:], floor=len(committed)), committed)
        assert found[: len(committed)] == committed
        assert Reference(real(name)).bytes_of(found) == data


RUNS = (
    *("aeioukrtwszl", "ABCdeFGhi", "0123456789", ".,;:!?-()[]{}/*+=#%&'", " \n\t", "żółćęąśźń", "😀👍🏽🙂", "a'st re"),
    *("北京是中华人民共和国的首都位于华北", "กรุงเทพมหานครเป็นเมืองหลวงและนคร", "საქართველო მდ"),
)


@pytest.mark.parametrize(("name", "count"), counted(3, 40))
def test_long_texts_without_borders(
    name: str, count: int, real: Callable[[str], Tokenizer], encoder: Callable[[str], IncrementalBPE]
) -> None:
    """Whatever end of the text is encoded again, and whether ids are committed or not, the whole text comes out."""
    oracle, prepared, rng = Reference(real(name)), encoder(name), random.Random(2)
    compared = 0
    for number, signs in ((number, signs) for signs in RUNS for number in range(count)):
        kinds = (signs,) if number % 3 else (signs, rng.choice(RUNS))
        text = "".join("".join(rng.choices(rng.choice(kinds), k=rng.randint(20, 400))) for _ in range(3))
        place = max(0, len(text) - rng.randint(40, 200))
        ids = oracle.encode(text[:place])
        while place < len(text):
            end = min(len(text), place + rng.randint(1, 9))
            floor, whole = rng.choice((0, len(ids))), oracle.encode(text[:end])
            if whole[:floor] == ids[:floor]:
                assert joined(prepared.join(ids, text[place:end].encode(), floor), ids) == whole, text[:end]
                compared += 1
            ids, place = whole, end
    assert compared > 100 * count


@pytest.mark.parametrize("signs", ["aeioukrtwszl", ".,;:!?-()[]{}/*+=#%&"])
def test_a_join_far_from_any_border_encodes_text_once(
    signs: str, encoder: Callable[[str], IncrementalBPE], encoded: list[str]
) -> None:
    prepared, rng = encoder("nanochat-pl-ours6-nfkc"), random.Random(3)
    ids: list[int] = []
    for _ in range(600):
        ids = joined(prepared.join(ids, "".join(rng.choices(signs, k=2)).encode()), ids)
    assert len(encoded) < 1.1 * 600
    assert sum(map(len, encoded)) < 180 * 600
