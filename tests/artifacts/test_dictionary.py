"""The dictionary format against a dict of tuples, and one broken dictionary for each invariant."""

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import marisa_trie
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool import ArtifactError, FingerprintMismatch, SpectoolError
from spectool.artifacts.artifact import open_artifact
from spectool.artifacts.dictionary import START, Dictionary, Entry, Match, dictionary_arrays
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer

from .parts import Parts, edit, edit_manifest

Entries = Mapping[tuple[int, ...], tuple[int, float]]
VOCABULARY = 100_000
ARRAYS = ("alphabet", "contexts", "next_token", "probability")
SMALL: Entries = {(1,): (2, 0.5), (1, 2): (3, 1.0), (9, 1, 2): (4, 0.25), (70_000, 5): (99_999, 0.01)}


def write(out: Path, entries: Entries, size: int = VOCABULARY) -> Dictionary:
    arrays, shape = dictionary_arrays([Entry(context, *value) for context, value in entries.items()])
    tokenizers = {"target": {"name": "small", "fingerprint": "a" * 64, "size": size}}
    Dictionary.write(out, arrays, arguments={}, tokenizers=tokenizers, inputs={}, statistics=shape)
    return Dictionary(out)


def slow_look_up(entries: Entries, tokens: Sequence[int]) -> tuple[int, int] | None:
    """The twin: try every suffix, the longest first."""
    for start in range(len(tokens)):
        found = entries.get(tuple(tokens[start:]))
        if found is not None:
            return found[0], len(tokens) - start
    return None


def agree(dictionary: Dictionary, entries: Entries, tokens: Sequence[int]) -> None:
    match, expected = dictionary.look_up(tokens), slow_look_up(entries, tokens)
    assert (None if match is None else (match.token, match.length)) == expected, tokens
    if match is not None:
        probability = entries[tuple(tokens[len(tokens) - match.length :])][1]
        assert abs(match.probability - probability) <= 1 / 256
    state = START
    for token in tokens:
        state = dictionary.advance(state, token)
    step = dictionary.step(state)
    assert (None if step is None else step[:2]) == (None if match is None else (match.token, match.probability))


ids = st.one_of(st.integers(0, 5), st.integers(0, VOCABULARY - 1))
contexts = st.lists(ids, min_size=1, max_size=5).map(tuple)
values = st.tuples(ids, st.floats(0.001, 1))


@settings(max_examples=60, deadline=None)
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


def test_ranks_around_the_surrogates(tmp_path: Path) -> None:
    """More symbols than there are code points below U+D800, each the context of another token."""
    size = 0xD800 + 300
    entries = {(token,): ((token + 1) % size, 1.0) for token in range(size)}
    dictionary = write(tmp_path / "x.dict", entries)
    open_artifact(dictionary.path)
    assert dictionary.manifest.statistics["symbols"] == size
    for token in (*range(0xD7F0, 0xD810), 0, size - 1):
        assert dictionary.look_up([3, token]) == Match((token + 1) % size, 1.0, 1)


def test_another_tokenizer_is_named_with_the_command(tmp_path: Path, byte_level: Any) -> None:
    from spectool.runtime.loading import open_dictionary

    path = tmp_path / "x.dict"
    write(path, SMALL)
    tokenizer = open_tokenizer(byte_level)
    with pytest.raises(FingerprintMismatch) as caught:
        open_dictionary(path, tokenizer)
    message = str(caught.value)
    assert message.startswith(
        f"{path}: built for tokenizer aaaaaaaa…, (loaded tokenizer) is {tokenizer.fingerprint[:8]}…"
    )
    # Not over this one.
    assert "Rebuild it: spectool build-dict --tokenizer '(loaded tokenizer)' -o NEW.dict --corpus" in message


# Broken dictionaries. Their headers fit them, so that only the named check can notice.


def trie(parts: Parts, keys: list[str]) -> None:
    parts.arrays["contexts"] = "uint8", marisa_trie.Trie(keys).tobytes()


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (lambda p: p.set("alphabet", [1] * 8), "alphabet: token ids repeat"),
        (lambda p: p.set("alphabet", [*range(7), VOCABULARY]), "alphabet: token ids outside the vocabulary"),
        (lambda p: p.set("next_token", [0, 1, 2, 8]), "next_token: numbers outside the alphabet"),
    ],
)
def test_opening_finds_each_broken_invariant(tmp_path: Path, breaking: Callable[[Parts], object], reason: str) -> None:
    path = write(tmp_path / "x.dict", SMALL).path
    edit(path, breaking)
    with pytest.raises(ArtifactError) as caught:
        open_artifact(path)
    assert str(caught.value) == f"{path}: {reason}. Build the dictionary again"


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (lambda p: trie(p, ["\x01"]), "next_token: uint16 4, expected uint16 1"),
        (lambda p: p.arrays.update(contexts=("uint8", b"no trie at all")), "contexts: not a readable marisa trie"),
        (lambda p: p.arrays.update(contexts=("uint8", b"")), "contexts: not a readable marisa trie"),
        (lambda p: p.set("next_token", [1] * 4, "uint32"), "next_token: uint32 4, expected uint16 4"),
        (lambda p: p.set("alphabet", [1], "int64"), "alphabet: int64 1, expected uint32 any"),
        (lambda p: p.set("probability", [1] * 5), "probability: uint8 5, expected uint8 4"),
        (lambda p: p.arrays.pop("probability"), "probability: missing"),
        (lambda p: trie(p, ["\x01", "\x02", "\x03", ""]), "not a readable marisa trie (a key is empty)"),
        (lambda p: trie(p, ["\x01", "\x02", "\x03", "\x03" * 300]), "(a key is longer than 256 bytes)"),
    ],
)
def test_opening_finds_what_cannot_be_read(tmp_path: Path, breaking: Callable[[Parts], object], reason: str) -> None:
    path = write(tmp_path / "x.dict", SMALL).path
    edit(path, breaking)
    with pytest.raises(ArtifactError) as caught:
        Dictionary(path)
    assert reason in str(caught.value)
    assert "again" in str(caught.value)


def test_a_trie_begins_where_its_numbers_can_be_read(tmp_path: Path) -> None:
    """The library reads words of eight bytes in place."""
    arrays, shape = dictionary_arrays([Entry((1,), 2, 0.5)])
    tokenizers = {"target": {"name": "small", "fingerprint": "a" * 64, "size": 9}}
    trie_last = {name: arrays[name] for name in ("alphabet", "next_token", "probability", "contexts")}
    path = tmp_path / "x.dict"
    Dictionary.write(path, trie_last, arguments={}, tokenizers=tokenizers, inputs={}, statistics=shape)
    with pytest.raises(ArtifactError, match="does not begin at a multiple of 8"):
        Dictionary(path)


@pytest.mark.parametrize("key", [b"\xff", b"\xc3", b"\x09", b"\x00"])
def test_keys_that_stand_for_no_tokens(tmp_path: Path, key: bytes) -> None:
    """The array is named wherever such a key is met; nothing else is raised."""
    path, name = write(tmp_path / "x.dict", SMALL).path, r"x\.dict: contexts: "
    keys = marisa_trie.BinaryTrie([b"\x01", b"\x02", b"\x03", key], binary=key == b"\0")
    edit(path, lambda parts: parts.arrays.update(contexts=("uint8", keys.tobytes())))
    with pytest.raises(ArtifactError, match=name):
        list(map(Dictionary(path).entry, range(len(keys))))
    if key != b"\0":  # which needs another kind of tail, and is not opened
        dictionary = Dictionary(path)
        for token in dictionary.alphabet.tolist():
            dictionary.look_up([token])
            dictionary.step(dictionary.advance(START, token))


def test_long_contexts_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(SpectoolError, match="a context of 65 tokens, expected at most 64"):
        write(tmp_path / "x.dict", {(1,) * 65: (2, 0.5)})
    open_artifact(write(tmp_path / "x.dict", {(1,) * 64: (2, 0.5)}).path)


@pytest.mark.parametrize(
    ("inputs", "sources"),
    [
        ({}, "--corpus CORPUS"),
        ({"corpus": "my texts"}, "--corpus 'my texts'"),
        ({"packs": [{"name": "pl.pack"}, {"name": "a b.pack"}]}, "--pack pl.pack --pack 'a b.pack'"),
        ({"packs": [{"name": "pl.pack"}, 7], "corpus": "t"}, "--pack pl.pack --corpus t"),
    ],
)
def test_another_version_is_not_read(tmp_path: Path, inputs: dict[str, Any], sources: str) -> None:
    path = tmp_path / "x.dict"
    write(path, SMALL)
    edit_manifest(path, lambda manifest: manifest.update(version=Dictionary.version + 1, inputs=inputs))
    with pytest.raises(
        ArtifactError, match=f"version {Dictionary.version + 1} .*reads version {Dictionary.version}"
    ) as caught:
        Dictionary(path)
    assert str(caught.value).endswith(f"this version: spectool build-dict --tokenizer small {sources} -o {path}")


def test_a_flipped_byte_anywhere_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "x.dict", SMALL).path
    data = path.read_bytes()
    for place in range(0, len(data), 1 + len(data) // 500):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        with pytest.raises(ArtifactError, match=r"x\.dict"):
            Dictionary(path)
    path.write_bytes(data)
    open_artifact(path)


def test_states_find_what_look_ups_do_on_real_text(tmp_path: Path) -> None:
    """As a text grows, and in the chains that are proposed; the twin tries every suffix."""
    tokenizer, out = open_tokenizer(demo_path("target") / "tokenizer.json"), tmp_path / "uk.dict"
    count_and_build(tokenizer, open_corpus("sample:uk"), out, BackoffOptions(), lambda step: None)
    dictionary = Dictionary(out)
    entries = {
        tuple(entry.context): (entry.token, entry.probability)
        for entry in map(dictionary.entry, range(len(dictionary)))
    }
    checked = 0
    for language in ("uk", "pl"):
        for document in open_corpus(f"sample:{language}"):
            ids, state = tokenizer.encode(document.text), START
            for place, token in enumerate(ids, 1):
                state = dictionary.advance(state, token)
                said, step = ids[max(0, place - 8) : place], dictionary.step(state)
                for _ in range(3):
                    expected = slow_look_up(entries, said)
                    assert (step and step[0]) == (expected and expected[0]), (document.text, place)
                    if step is None:
                        break
                    said, step, checked = [*said, step[0]], dictionary.step(step[2]), checked + 1
    assert checked > 10_000
