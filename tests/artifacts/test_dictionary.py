"""The dictionary format against a dict of tuples, and one broken dictionary for each invariant."""

import random
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool import ArtifactError
from spectool.artifacts.artifact import open_artifact
from spectool.artifacts.dictionary import START, Dictionary, Match
from spectool.artifacts.numbers import to_digits
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs.stage import count_and_build
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.build.dictionaries import SMALL as SMALLEST
from spectool.tests.build.dictionaries import entries_of, written
from spectool.tokenization.opening import open_tokenizer

from .parts import Parts, edit, edit_manifest

Entries = Mapping[tuple[int, ...], tuple[int, float]]
VOCABULARY = 100_000
SMALL: Entries = {(1,): (2, 0.5), (1, 2): (3, 1.0), (9, 1, 2): (4, 0.25), (70_000, 5): (99_999, 0.01)}


def write(out: Path, entries: Entries, size: int = VOCABULARY) -> Dictionary:
    return written(out, [(context, *value) for context, value in entries.items()], SMALLEST | {"size": size})


def slow_look_up(entries: Entries, tokens: Sequence[int]) -> tuple[int, int] | None:
    """The twin: try every suffix, the longest first."""
    for start in range(len(tokens)):
        found = entries.get(tuple(tokens[start:]))
        if found is not None:
            return found[0], len(tokens) - start
    return None


def agree(dictionary: Dictionary, entries: Entries, tokens: Sequence[int]) -> None:
    match, expected = dictionary.look_up(dictionary.state_after(tokens)), slow_look_up(entries, tokens)
    assert (None if match is None else (match.token, match.length)) == expected, tokens
    if match is not None:
        probability = entries[tuple(tokens[len(tokens) - match.length :])][1]
        assert abs(match.probability - probability) <= 1 / 256
    state = START
    for token in tokens:
        state = dictionary.advance(state, token)
    assert dictionary.look_up(state) == match


ids = st.one_of(st.integers(0, 5), st.integers(0, VOCABULARY - 1))
contexts = st.lists(ids, min_size=1, max_size=5).map(tuple)
values = st.tuples(ids, st.floats(0.001, 1))


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(contexts, values, min_size=1, max_size=30),
    st.lists(st.lists(st.one_of(ids, st.integers(VOCABULARY, 2**31)), max_size=8), max_size=20),
)
def test_looks_up_what_a_dict_of_tuples_does(entries: Entries, histories: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        dictionary = write(Path(scratch) / "x.dict", entries)
        assert len(dictionary) == len(entries)
        for context in entries:
            agree(dictionary, entries, context)
            agree(dictionary, entries, (7, 7, *context))
        for history in histories:
            agree(dictionary, entries, history)
        open_artifact(dictionary.path)


def test_equal_entries_in_any_order_give_equal_bytes(tmp_path: Path) -> None:
    rng = random.Random(5)
    entries = {tuple(rng.choices(range(50), k=rng.randint(1, 4))): (rng.randrange(50), 0.5) for _ in range(200)}
    shuffled = list(entries.items())
    rng.shuffle(shuffled)
    write(tmp_path / "a", entries)
    write(tmp_path / "b", dict(shuffled))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_more_tokens_than_two_bytes_count(tmp_path: Path) -> None:
    """Each is the context of another one."""
    size = 0x10000 + 300
    dictionary = write(tmp_path / "x.dict", {(token,): ((token + 1) % size, 1.0) for token in range(size)})
    for token in (*range(0xFFF0, 0x10010), 0, size - 1):
        assert dictionary.look_up(dictionary.state_after([3, token])) == Match((token + 1) % size, 1.0, 1)


# Broken dictionaries. Their headers fit them, so that only the named check can notice.


def packed(digits: bytes) -> tuple[str, bytes]:
    return "uint8", zlib.compress(digits)


def numbers(parts: Parts, name: str, values: Sequence[int]) -> None:
    parts.arrays[name] = packed(to_digits(values))


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (lambda p: p.set("alphabet", [1] * 8), "alphabet: token ids repeat"),
        (lambda p: p.set("alphabet", [*range(7), VOCABULARY]), "alphabet: token ids outside the vocabulary"),
        (lambda p: p.set("alphabet", [1], "int64"), "alphabet: int64 1, expected uint32 any"),
        (lambda p: p.arrays.pop("probability"), "probability: missing"),
        (lambda p: p.set("probability", [1] * 5), "probability: 5 for 4"),
        (lambda p: numbers(p, "next_token", [0, 1, 2, 8]), "next_token: numbers outside the alphabet"),
        (lambda p: numbers(p, "next_token", [0, 1, 2]), "next_token: 3 numbers, expected 4"),
        (lambda p: numbers(p, "ranks", [0, 0, 8, 1, 1, 1]), "ranks: numbers outside the alphabet"),
        (lambda p: numbers(p, "ranks", [2**35 - 1] * 6), "ranks: numbers outside the alphabet"),
        (lambda p: p.arrays.update(ranks=packed(b"\x80" * 5 + bytes(6))), "ranks: a number is too large"),
        (lambda p: p.arrays.update(ranks=packed(bytes(31))), "ranks: more than there can be"),
        (lambda p: p.arrays.update(nodes=("uint8", b"no numbers")), "nodes: Error -3"),
        (lambda p: numbers(p, "nodes", [6, 3, 3, 1, 1, 0, 2]), "nodes: not a tree"),  # the last is its own child
        (lambda p: numbers(p, "nodes", [0, 7, 3, 3, 0, 3, 0]), "nodes: not a tree"),  # the root has none
        (lambda p: numbers(p, "nodes", [2, 3, 3, 3, 3, 2, 0]), "nodes: not a tree"),  # six levels
        (lambda p: numbers(p, "nodes", [6, 1, 2, 2, 3, 3, 1]), "nodes: not a tree"),  # children that are not there
        (lambda p: p.manifest["statistics"].update(nodes=-1), "-1 nodes"),
        (lambda p: p.manifest["statistics"].update(nodes=10**6), "1000000 nodes"),
        (lambda p: p.manifest["statistics"].update(max_context=65), "max_context is 65"),
    ],
)
def test_opening_finds_each_broken_invariant(tmp_path: Path, breaking: Callable[[Parts], object], reason: str) -> None:
    path = write(tmp_path / "x.dict", SMALL).path
    edit(path, breaking)
    with pytest.raises(ArtifactError) as caught:
        open_artifact(path)
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_long_contexts_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="max_context is 65, expected 1 to 64 tokens"):
        write(tmp_path / "x.dict", {(1,) * 65: (2, 0.5)})
    open_artifact(write(tmp_path / "x.dict", {(1,) * 64: (2, 0.5)}).path)


def test_another_version_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.dict", SMALL).path
    edit_manifest(path, lambda manifest: manifest.update(version=Dictionary.version + 1))
    with pytest.raises(ArtifactError, match=rf"version {Dictionary.version + 1} .*: spectool build-dict$"):
        Dictionary(path)


def test_states_find_what_look_ups_do_on_real_text(tmp_path: Path) -> None:
    """As a text grows, and in the chains that are proposed; the twin tries every suffix."""
    tokenizer, out = open_tokenizer(demo_path("target") / "tokenizer.json"), tmp_path / "uk.dict"
    count_and_build(tokenizer, open_corpus("sample:uk"), out, BackoffOptions(), lambda step: None)
    dictionary = Dictionary(out)
    entries, checked = entries_of(dictionary), 0
    for language in ("uk", "pl"):
        for document in open_corpus(f"sample:{language}"):
            ids, state = tokenizer.encode(document), START
            for place, token in enumerate(ids, 1):
                state = dictionary.advance(state, token)
                said, ahead = ids[max(0, place - 8) : place], state
                for _ in range(3):
                    match, expected = dictionary.look_up(ahead), slow_look_up(entries, said)
                    assert (match and (match.token, match.length)) == expected, (document, place)
                    if match is None:
                        break
                    said, ahead, checked = [*said, match.token], dictionary.advance(ahead, match.token), checked + 1
    assert checked > 10_000
