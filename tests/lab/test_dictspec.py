"""DictSpec entries: the paper's example and small inputs whose answer is known."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from spectool.corpora import open_corpus
from spectool.lab.dictspec import (
    DictSpecDrafter,
    DictSpecOptions,
    Phrase,
    PhraseReading,
    PhraseTable,
    WordNgrams,
    dictspec_table,
    encoded_ngrams,
    predict,
    without_redundant,
)
from spectool.lab.token_strings import as_text, as_tokens
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

Phrases = dict[tuple[int, ...], Phrase]
Ngrams = list[tuple[Sequence[int], int]]
readings: tuple[PhraseReading, ...] = ("whole", "path")
ngrams = st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=6), st.integers(1, 20)), max_size=15)


def phrases(
    counts: Ngrams,
    floor: float,
    reading: PhraseReading,
    max_prefix: int = 8,
    max_continuation: int = 8,
    pruned: bool = False,
) -> Phrases:
    """All phrases by ascending context, or those that are kept."""
    options = DictSpecOptions(
        min_probability=floor, reading=reading, max_prefix=max_prefix, max_continuation=max_continuation
    )
    table = predict(counts, options)
    kept = without_redundant(table) if pruned else table
    return {as_tokens(context): phrase for context, phrase in sorted(kept.items())}


def by_prefix(found: Phrases) -> dict[tuple[int, ...], tuple[tuple[int, ...], float]]:
    return {context: (each.continuation, round(each.probability, 4)) for context, each in found.items()}


@pytest.mark.parametrize("reading", readings)
def test_the_papers_example(reading: PhraseReading) -> None:
    """Table 1: personal computer 12,400 times, personal committee 180: 98.6 percent."""
    computer, committee = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 9]
    found = by_prefix(phrases([(computer, 12_400), (committee, 180)], 0.2, reading))
    assert found[1, 2, 3, 4, 5] == ((6, 7, 8), 0.9857)
    assert found[1, 2, 3, 4, 5, 6] == ((7, 8), 1.0)
    assert len(found) == 7
    assert (1, 2, 3, 4, 5, 9) not in found, "nothing follows the end of an n-gram"
    whole = phrases([(computer, 12_400), (committee, 180)], 0.99, reading)
    # At 99 percent the whole does not reach; the path stops before the doubtful token.
    assert by_prefix(whole).get((1, 2, 3, 4)) == (None if reading == "whole" else ((5,), 1.0))


@pytest.mark.parametrize("reading", readings)
def test_long_prefixes_keep_their_last_tokens_and_continuations_their_first(reading: PhraseReading) -> None:
    found = by_prefix(phrases([(range(20), 3)], 0.2, reading))
    assert found[tuple(range(4, 12))] == (tuple(range(12, 20)), 1.0)
    assert found[tuple(range(3))] == (tuple(range(3, 11)), 1.0)
    assert found[tuple(range(11, 19))] == ((19,), 1.0)
    assert max(map(len, found)) == 8
    assert len(found) == 19
    short = by_prefix(phrases([(range(20), 3)], 0.2, reading, max_prefix=2, max_continuation=1))
    assert short[4, 5] == ((6,), 1.0)
    assert {len(prefix) for prefix in short} == {1, 2}


def test_truncated_prefixes_are_counted_together() -> None:
    counts: Ngrams = [([0, 1, 2, 7], 3), ([5, 1, 2, 8], 2)]
    assert phrases(counts, 0.5, "whole", max_prefix=2)[1, 2] == Phrase((7,), 0.6)


@pytest.mark.parametrize("reading", readings)
@pytest.mark.parametrize("percent", range(1, 100))
def test_a_probability_at_the_minimum_reaches_it(reading: PhraseReading, percent: int) -> None:
    """7 of 100 reach 0.07, although 0.07 * 100 is a little more than 7 in floating point."""
    counts: Ngrams = [([1, 2], percent), *(([1, 3 + other], 1) for other in range(100 - percent))]
    assert phrases(counts, percent / 100, reading) == {(1,): Phrase((2,), percent / 100)}


def share(tails: list[tuple[tuple[int, ...], int]], head: tuple[int, ...], whole: bool) -> float:
    """How much of all occurrences goes on with exactly ``head``, or begins with it."""
    return sum(n for tail, n in tails if (tail if whole else tail[: len(head)]) == head) / sum(n for _, n in tails)


def slow_entries(counts: Ngrams, floor: float, reading: PhraseReading) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The twin: one prefix after the other, by definition."""
    splits = [
        (tuple(tokens[max(0, cut - 8) : cut]), tuple(tokens[cut : cut + 8]), count)
        for tokens, count in counts
        for cut in range(1, len(tokens))
    ]
    result = {}
    for prefix in {prefix for prefix, _, _ in splits}:
        tails = [(tail, count) for before, tail, count in splits if before == prefix]
        if reading == "whole":
            ranked = sorted((-share(tails, tail, True), len(tail), tail) for tail in {tail for tail, _ in tails})
            if -ranked[0][0] >= floor:
                result[prefix] = ranked[0][2]
            continue
        path: tuple[int, ...] = ()
        while nexts := {
            (*path, tail[len(path)]) for tail, _ in tails if tail[: len(path)] == path and len(tail) > len(path)
        }:
            best = min((-share(tails, head, False), head) for head in nexts)
            if -best[0] < floor:
                break
            path = best[1]
        if path:
            result[prefix] = path
    return result


@settings(deadline=None)
@given(ngrams, st.sampled_from([0.0, 0.2, 0.5, 0.75, 1.0]), st.sampled_from(readings))
def test_equal_to_the_slow_twin(counts: Ngrams, floor: float, reading: PhraseReading) -> None:
    found = phrases(counts, floor, reading)
    assert {context: each.continuation for context, each in found.items()} == slow_entries(counts, floor, reading)
    assert all(floor <= each.probability <= 1 for each in found.values())


def look_up(entries: Mapping[tuple[int, ...], tuple[int, ...]], history: tuple[int, ...]) -> tuple[int, ...] | None:
    return next((entries[history[at:]] for at in range(len(history)) if history[at:] in entries), None)


@settings(deadline=None)
@given(ngrams, st.sampled_from([0.0, 0.3, 0.6]), st.sampled_from(readings))
def test_pruning_changes_no_proposal(counts: Ngrams, floor: float, reading: PhraseReading) -> None:
    found = phrases(counts, floor, reading)
    kept = phrases(counts, floor, reading, pruned=True)
    assert kept.items() <= found.items()
    before, after = ({context: each.continuation for context, each in some.items()} for some in (found, kept))
    for history in {*before, *product(range(4), repeat=3), *product(range(4), repeat=4)}:
        assert look_up(before, history) == look_up(after, history)


def test_pruning_by_hand() -> None:
    table = {
        (4, 3, 2, 1): 5,  # not redundant: (3, 2, 1) says otherwise
        (1,): 5,
        (2, 1): 5,  # redundant
        (3, 2, 1): 6,
        (2,): 5,
    }
    table_of = {as_text(context): Phrase((token,), 0.8) for context, token in table.items()}
    kept = [as_tokens(context) for context in without_redundant(table_of)]
    assert sorted(kept) == [(1,), (2,), (3, 2, 1), (4, 3, 2, 1)]


def test_special_tokens_cut_ngrams() -> None:
    cut = predict([([1, 2, 9, 3], 4), ([9, 1], 7)], DictSpecOptions(), specials=frozenset({9}))
    assert cut == {as_text([1]): Phrase((2,), 1.0)}


# DictSpec dictionaries of texts: the paper's example through all steps, and what they may hold.


DEFAULT = DictSpecOptions()


def table_of(tokenizer: Tokenizer, spec: object, options: DictSpecOptions = DEFAULT) -> PhraseTable:
    return dictspec_table(tokenizer, WordNgrams(open_corpus(str(spec))), options)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("personal computer. " * 62 + "personal committee. " * 9 + "a personal matter.", encoding="utf-8")
    return path


def test_the_papers_example_through_all_stages(corpus: Path, bundled: Tokenizer) -> None:
    drafter = DictSpecDrafter(table_of(bundled, corpus))
    drafter.start(bundled.encode("we know a personal"))
    drafter.commit(bundled.encode("com"))
    proposed = drafter.propose(8).tokens
    assert bundled.bytes_of([*bundled.encode("com"), *proposed]).startswith((b"computer", b"comput"))
    assert drafter.propose(1).tokens == proposed[:1]
    drafter.commit(bundled.encode("—"))
    assert drafter.propose(8).tokens == ()


def test_every_entry_is_a_piece_of_an_ngram(bundled: Tokenizer) -> None:
    table = table_of(bundled, "sample:uk", DictSpecOptions(entries=500, min_probability=0.5))
    counted = WordNgrams(open_corpus("sample:uk"))
    texts = [text for text, _ in counted.most_frequent(500)]
    spelled = {tuple(ids) for ids, _ in encoded_ngrams(bundled, [(text, 1) for text in texts])}
    pieces = {ids[a:b] for ids in spelled for a in range(len(ids)) for b in range(a + 1, len(ids) + 1)}
    assert len(table) > 100
    for context, phrase in table.items():
        assert (*as_tokens(context), *phrase.continuation) in pieces
        assert len(context) <= 8
        assert len(phrase.continuation) <= 8
        assert phrase.probability >= 0.5


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gpt2", "t5-small"])
def test_real_tokenizers_propose_text_that_follows(name: str, corpus: Path, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    drafter = DictSpecDrafter(table_of(tokenizer, corpus))
    drafter.start(tokenizer.encode("their personal"))
    proposed = b"".join(tokenizer.token_bytes[token] for token in drafter.propose(8).tokens)
    assert b" computer".startswith(proposed)
    assert len(proposed) > 3


def test_special_tokens_are_never_proposed(tmp_path: Path) -> None:
    """A word of the text is a special token of the tokenizer, and another cannot be spelled."""
    names = ["[UNK]", "eos", "red", "cat", "dog"]
    backend = Backend(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[UNK]", "eos"])
    text = tmp_path / "text.txt"
    text.write_text("red cat eos dog. " * 20 + "red cat dog elephant. " * 3, encoding="utf-8")
    table = table_of(open_tokenizer(backend), text, DictSpecOptions(min_probability=0.0))
    used = {token for context, phrase in table.items() for token in (*as_tokens(context), *phrase.continuation)}
    assert used == {2, 3, 4}


def test_lower_orders_give_other_dictionaries(bundled: Tokenizer) -> None:
    one, two, three = (
        table_of(bundled, "sample:pl", DictSpecOptions(orders=orders, entries=3000)) for orders in ("n1", "n12", "n123")
    )
    assert one != two != three != one
