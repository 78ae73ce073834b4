"""Sure borders: a text that is cut at one is encoded as its two parts."""

import random
from collections.abc import Callable

import pytest
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool.tests.tokenization.incremental.oracle import Reference, counted
from spectool.tests.tokenization.incremental.test_joining import draw
from spectool.tokenization.incremental.borders import Borders
from spectool.tokenization.roles import Roles
from spectool.tokenization.tokenizer import Tokenizer


def borders(tokenizer: Tokenizer) -> Borders:
    return Borders(tokenizer)


@pytest.mark.parametrize(("name", "count"), counted(60, 600))
def test_a_text_cut_at_sure_borders_is_its_parts(
    name: str, count: int, real: Callable[[str], Tokenizer], lines: list[str], rng: random.Random
) -> None:
    tokenizer = real(name)
    found, oracle, cuts, places = borders(tokenizer), Reference(tokenizer), 0, 0
    for _ in range(count):
        text = draw(rng, lines, list(tokenizer.running_added.values()))
        whole = oracle.encode(text)
        if oracle.bytes_of(whole) != text.encode():
            continue
        for at in range(1, len(text)):
            places += 1
            if found.are_sure(text[at - 1], text[at]):
                cuts += 1
                assert oracle.encode(text[:at]) + oracle.encode(text[at:]) == whole, (text, at)
    print(f"{name}: {cuts:,} of {places:,} places are sure borders")
    assert cuts > places / 20


@pytest.mark.parametrize(
    ("before", "after", "sure"),
    [
        ("t", " ", True),
        ("t", ",", True),
        ("1", " ", True),
        ("k", "o", False),  # one word
        ("l", "o", False),  # "'llo" is split there
        ("'", "t", False),
        ("1", "2", False),  # digits go together
        (" ", "k", False),
        (" ", " ", False),  # the last space goes with the word
        ("\n", "k", False),  # a space before the line end is split off
        ("<", "t", False),  # an added token
        ("k", "<", True),
    ],
)
def test_borders_of_a_pattern(before: str, after: str, sure: bool, byte_level: Backend) -> None:
    assert borders(Tokenizer("made", byte_level, Roles())).are_sure(before, after) is sure


@pytest.mark.parametrize(("before", "after", "sure"), [("t", " ", True), ("t", "k", True), ("k", "o", False)])
def test_borders_without_a_pattern(before: str, after: str, sure: bool, sentence_piece: Backend) -> None:
    """Nothing is split, so what counts is whether a token has both."""
    assert borders(Tokenizer("made", sentence_piece, Roles())).are_sure(before, after) is sure


_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {  # of models whose tokenizers look further around than most
    "DeepSeek LLM": [r"[\r\n]", r"\s?[A-Za-zżŻ]+", r"\s?[!-/:-~]+", r"\s+$", "[一-龥]+", r"\p{N}+"],
    "EXAONE MoE": [_ENDINGS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}" + _REST],
    "Laguna": [r"[^\n]+|[\n]+", _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST],
    "SuperBPE": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "Tekken": [r"[^\r\n\p{L}\p{N}]?" + _CASED + r"|\p{L}+|\p{N}" + _REST],
    "Tiny Aya": [r"\d{1,3}(?=(?:\d{3})*\b)", r"[^\r\n\p{L}\p{N}]?" + _CASED + rf"{_ENDINGS}?|\p{{N}}{{1,3}}" + _REST],
}


@pytest.mark.parametrize("name", PATTERNS)
def test_no_context_moves_a_sure_border(name: str, rng: random.Random) -> None:
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({symbol: place for place, symbol in enumerate(symbols)}, []))
    split: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[name]
    ]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*split, last])
    backend.decoder = decoders.ByteLevel()
    found = borders(Tokenizer("made", backend, Roles()))

    def starts(text: str) -> set[int]:
        return {place for _, (place, _) in backend.pre_tokenizer.pre_tokenize_str(text)}

    characters = "aAżŻseé1²'’. \n\r\t/_-(日Жʰ\u0301\u094d\u00a0😀\ufffd"
    sure = [(before, after) for before in characters for after in characters if found.are_sure(before, after)]
    for _ in range(1500):
        (before, after), some = rng.choice(sure), rng.choices(characters, k=4)
        left = "".join(rng.choices(some, k=rng.randrange(4))) + before
        right = after + "".join(rng.choices(some, k=rng.randrange(4)))
        assert starts(left + right) == starts(left) | {len(left) + place for place in starts(right)}, (left, right)
