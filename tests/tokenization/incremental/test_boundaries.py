"""Pre-tokenizers asked through representatives: the classes and the table keep their word on real tokenizers."""

import random
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.tokenization.incremental.boundaries import JOIN, LOOK, SPLIT, Boundaries, BoundaryTable, boundary_table
from spectool.tokenization.incremental.patterns import UNKNOWN, CharacterClasses, unfollowed
from spectool.tokenization.roles import Roles
from spectool.tokenization.running_text import RunningText
from spectool.tokenization.tokenizer import Tokenizer

QUICK = "nanochat-pl-ours6-nfkc"
SPLITTING = (
    "claude-legacy",
    "gpt2",
    "gpt4o-o200k",
    "llama-3.2",
    "mistral-nemo",
    "nanochat-pl-ours6-nfkc",
    "qwen2.5",
)
RUNS = ("Ж", "ж", "s", "re", "ll", "'", "'s", "\u02bc", "א", "\u0301", "0", "²", " ", "\t", "\u00a0", "\n", "\r", ".")
RUNS += (
    "/",
    "€",
    "ſ",
    "ǅ",
    "_",
    "\x1c",
    "\x00",
    "\u200b",
    "\U0001f600",
    "\u0378",
    "Ⅷ",
    "ʰ",
    "\x85",
    "\u2028",
    "ﬆ",
    "ß",
)


def run_text(rng: random.Random) -> str:
    """Draw a text of runs, which are what pre-tokenizers count and look past."""
    return "".join(rng.choice(RUNS) * rng.choice((1, 1, 1, 2, 3, 5)) for _ in range(rng.randrange(1, 8)))


def check_table(tokenizer: Tokenizer, table: BoundaryTable, rng: random.Random, count: int) -> int:
    """Hold what the table says of drawn texts against the pre-tokenizer; return the boundaries it decided."""
    asked = Asked(tokenizer, table)
    return sum(check_text(asked, table, run_text(rng)) for _ in range(count))


class Asked:
    """The pre-tokenizer itself, and what stands for it."""

    def __init__(self, tokenizer: Tokenizer, table: BoundaryTable) -> None:
        self.boundaries = Boundaries(tokenizer, tokenizer.token_bytes, table)
        self.classes = CharacterClasses(tokenizer, table.characters).of
        self._splits, self._space = tokenizer.text_splits, tokenizer.normalized_space

    def ask(self, text: str) -> list[int]:
        if self._splits is None:
            return [0]
        return [start for _, (start, _) in self._splits.pre_tokenize_str(text.replace(" ", self._space))]


def check_text(asked: Asked, table: BoundaryTable, text: str) -> int:
    """Hold what the table says of real characters against the pre-tokenizer; return the boundaries it decided."""
    starts, decided, found = set(asked.ask(text)), 0, asked.classes(text)
    assert UNKNOWN in found or starts == set(asked.boundaries.starts(found)), repr(text)
    classes = [len(table.characters), *found]
    for at in range(1, len(text)):
        kind = LOOK if UNKNOWN in classes else table.verdicts[classes[at - 1], classes[at], classes[at + 1]]
        if kind == LOOK:
            continue
        decided += 1
        assert (at in starts) == (kind == SPLIT), (text, at)
        # Neither side's splits depend on the other side.
        assert {i for i in starts if i < at} == set(asked.ask(text[:at])), (text, at)
        assert {i - at for i in starts if i > at} == set(asked.ask(text[at:])) - {0}, (text, at)
    return decided


@pytest.mark.system
def test_the_table_keeps_its_word(
    real: Callable[[str], Tokenizer], boundaries: Callable[[str], BoundaryTable], rng: random.Random
) -> None:
    assert check_table(real(QUICK), boundaries(QUICK), rng, 1500) > 3000


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLITTING)
def test_every_table_keeps_its_word(
    name: str, real: Callable[[str], Tokenizer], boundaries: Callable[[str], BoundaryTable], rng: random.Random
) -> None:
    decided = check_table(real(name), boundaries(name), rng, 20_000)
    print(f"{name}: {decided:,} boundaries decided by the table, no mismatch")


def test_without_a_pre_tokenizer_nothing_splits(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real("bielik-11b-v2.5")
    table = boundary_table(tokenizer)
    assert (table.verdicts == JOIN).all()
    asked = Asked(tokenizer, table)
    assert not asked.boundaries.splits
    assert asked.boundaries.starts(asked.classes("ж ж")) == (0,)


def test_digits_are_counted_from_where_a_number_begins(
    real: Callable[[str], Tokenizer], boundaries: Callable[[str], BoundaryTable]
) -> None:
    """``.0`` + ``12``: the group is ``01``, so the boundary has to be looked at."""
    table = boundaries(QUICK)
    sign, number, letter = CharacterClasses(real(QUICK), table.characters).of(".0ж")
    assert table.verdicts[sign, number, number] == LOOK
    assert table.verdicts[number, number, number] == LOOK
    assert table.verdicts[number, letter, number] == SPLIT


def test_added_tokens_that_text_can_spell(real: Callable[[str], Tokenizer]) -> None:
    added = RunningText(real("phi-3-mini")).added
    assert "</s>" in added.values()
    assert "<|user|>" not in added.values(), "special tokens are never read out of text"


@pytest.mark.slow
def test_added_tokens_that_text_cannot_spell(real: Callable[[str], Tokenizer]) -> None:
    added = RunningText(real("gemma-3")).added
    assert "<unused5>" in added.values()
    assert not any("▁" in content for content in added.values())


def test_a_backend_that_spells_what_it_is_given(real: Callable[[str], Tokenizer]) -> None:
    for name, text in (("bielik-11b-v2.5", "kot </s>  ﬁ"), (QUICK, "<|bos|> kot")):
        tokenizer = real(name)
        ids = RunningText(tokenizer).backend.encode(text, add_special_tokens=False).ids
        assert b"".join(tokenizer.token_bytes[token] for token in ids) == text.encode()
        assert not tokenizer.specials & set(ids)


def test_nothing_is_put_before_a_text_inside_another(sentence_piece: Backend) -> None:
    """A Metaspace step that prepends, as transformers builds it, and an added token that takes spaces away."""
    sentence_piece.normalizer = None
    sentence_piece.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    sentence_piece.add_tokens([AddedToken("<t>", rstrip=True, normalized=False)])
    tokenizer = Tokenizer("made", sentence_piece, Roles())
    assert tokenizer.edges.leading_space and tokenizer.space_sign == "▁"
    for text in ("kot", " kot", "<t> kot"):
        ids = RunningText(tokenizer).backend.encode(text, add_special_tokens=False).ids
        assert b"".join(tokenizer.token_bytes[token] for token in ids) == text.encode()


def test_a_space_that_nobody_writes_is_not_taken_away(sentence_piece: Backend) -> None:
    """InternLM 2's decoder strips a space that its normalizer does not put there."""
    sentence_piece.normalizer = normalizers.Replace(" ", "▁")
    assert not Tokenizer("made", sentence_piece, Roles()).edges.leading_space


@pytest.mark.system
def test_a_class_like_others_beside_a_word_of_the_pattern() -> None:
    """``l`` is like any other letter in short strings, and the apostrophe begins a word, but not before ``re``."""
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    pattern += r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    table, asked = table_of(pattern)
    assert asked.ask("l're\u02b0") == [0, 1, 4]
    assert asked.ask("re\u02b0") == [0], "so what follows the apostrophe depends on it"
    letter, sign, first = asked.classes("l'r")
    assert table.verdicts[letter, sign, first] == LOOK


def test_a_word_that_ends_in_a_group() -> None:
    """Letters go on as one only where ``'ve`` or ``'nt`` follows."""
    table, asked = table_of(r"[a-z]+'(?:nt|ve)|.")
    assert asked.ask("ss've") == [0]
    assert asked.ask("ss'v") == [0, 1, 2, 3]
    letter, sign, first = asked.classes("s'v")
    assert table.verdicts[letter, sign, first] == LOOK


def test_a_pattern_that_names_too_many_characters_is_refused() -> None:
    """A class is a byte in the table, and every string of three classes is tried."""
    backend, named = Backend(models.BPE()), map(chr, range(0x4E00, 0x4E00 + 101))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(named)), "isolated")
    with pytest.raises(TokenizerError, match=r"made: its pre-tokenizer tells 10\d classes .* at most 100"):
        boundary_table(Tokenizer("made", backend, Roles()))


def test_classes_of_characters() -> None:
    """What the parts of a pattern match tells characters apart, as does case where it is not ignored."""
    table, asked = table_of(r"(?i:'s|'t)|[!-/][A-Za-z]+|[一-龥]+|\p{L}+|\p{N}{1,3}")
    groups: dict[int, str] = {}
    text = "!/:AzéЖ一龥龦0²sSſ"
    for char, number in zip(text, asked.classes(text), strict=True):
        groups[number] = groups.get(number, "") + char
    assert {"!/", "Az", "éЖ龦", "一龥", "0²"} < set(groups.values())
    assert len(table.characters) == len(set(asked.classes(table.characters)))


@pytest.mark.parametrize(
    ("pattern", "followed"),
    [
        (r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+", True),
        (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+""", True),
        (r"\p{Lu}+(?i:'s|'t)?", True),
        (r"\d{1,3}(?=(\d{3})*\b)", False),
        (r"(?: ?\p{L}+){1,3}", False),
        (r"(?<=a)b", False),
        (r"(a)\1", False),
        (r"[a-z&&[^x]]+", False),
        (r"\p{N}{1,20}", False),
        (r"(a|b)*", False),
        (r"a.c", False),
    ],
)
def test_patterns_that_are_followed(pattern: str, followed: bool) -> None:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    assert (unfollowed(step) == "") == followed


@pytest.mark.slow
def test_two_alternatives_that_share_letters() -> None:
    """Kimi's pattern: Han is a letter as well, and how far a word goes back depends on what follows it."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    begin, end = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = rf"[\p{{Han}}]+|{begin}{upper}*{lower}+{end}|{begin}{upper}+{lower}*{end}|\p{{N}}{{1,3}}"
    table, asked = table_of(pattern + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    for text in ("〇ftp'LL\u0300ßllªª\u0300Ab", "A1234ﬆ\u0300\u0300\u0300\u0345Ab", "〇é⺀⺀⺀ſかSSvvv"):
        check_text(asked, table, text)


def table_of(pattern: str) -> tuple[BoundaryTable, Asked]:
    """Return the table of a tokenizer that splits by a pattern, and its pre-tokenizer to ask."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer = Tokenizer("made", backend, Roles())
    table = boundary_table(tokenizer)
    return table, Asked(tokenizer, table)
