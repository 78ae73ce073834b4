"""The dictionary format against a dict of tuples, and one broken dictionary for each invariant."""

import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import marisa_trie
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectool import ArtifactError, FingerprintMismatch, IncompleteArtifact
from spectool.artifacts.arrays import save_array
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.dictionary import START, UNKNOWN_SYMBOL, Dictionary, Entry, Match, symbol, write_dictionary
from spectool.artifacts.formats import verify_artifact
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer

Entries = Mapping[tuple[int, ...], tuple[int, float]]
VOCABULARY = 100_000
FILES = ("alphabet.npy", "contexts.marisa", "next_token.npy", "probability.npy", "count.npy")
SMALL: Entries = {
    (1,): (2, 0.5),
    (1, 2): (3, 1.0),
    (9, 1, 2): (4, 0.25),
    (70_000, 5): (99_999, 0.01),
}


def write(out: Path, entries: Entries, size: int = VOCABULARY) -> Dictionary:
    with atomic_directory(out) as directory:
        shape = write_dictionary(directory, [Entry(context, *value, 100) for context, value in entries.items()])
        reseal(directory, shape, size)
    return Dictionary(out)


def reseal(directory: Path, statistics: Mapping[str, Any], size: int = VOCABULARY) -> None:
    """Write a manifest that fits the files, whatever they hold."""
    (directory / "manifest.json").unlink(missing_ok=True)
    tokenizers = {"target": {"name": "small", "fingerprint": "a" * 64, "size": size}}
    Dictionary.seal(directory, {}, tokenizers, {}, statistics)


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
        verify_artifact(dictionary.path)


def test_small(tmp_path: Path) -> None:
    dictionary = write(tmp_path / "x.dict", SMALL)
    assert dictionary.max_context == 3
    assert dictionary.look_up([]) is None
    assert dictionary.look_up([2]) is None
    assert dictionary.look_up([5]) is None
    assert dictionary.look_up([2, 1]) == Match(2, 0.5, 1)
    assert dictionary.look_up([8, 1, 2]) == Match(3, 1.0, 2)
    assert dictionary.look_up([9, 1, 2]) == Match(4, 0.25, 3)
    assert dictionary.look_up([70_000, 5]) == Match(99_999, 3 / 256, 2)
    assert dictionary.look_up([123_456_789, 1]) == Match(2, 0.5, 1)
    assert dictionary.look_up([1, 123_456_789]) is None
    assert dictionary.manifest.statistics == {"entries": 4, "symbols": 8, "max_context": 3}


def test_entries_gives_everything_back(tmp_path: Path) -> None:
    dictionary = write(tmp_path / "x.dict", SMALL)
    found = {tuple(entry.context): entry for entry in dictionary.entries()}
    assert found.keys() == SMALL.keys()
    for context, (token, probability) in SMALL.items():
        assert found[context].token == token
        assert found[context].probability == pytest.approx(probability, abs=1 / 256)
        assert found[context].count == pytest.approx(100, rel=0.05)


def test_equal_entries_in_any_order_give_equal_bytes(tmp_path: Path) -> None:
    rng = random.Random(5)
    entries = {tuple(rng.choices(range(50), k=rng.randint(1, 4))): (rng.randrange(50), 0.5) for _ in range(200)}
    shuffled = list(entries.items())
    rng.shuffle(shuffled)
    write(tmp_path / "a", entries)
    write(tmp_path / "b", dict(shuffled))
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_symbols_skip_nul_and_surrogates() -> None:
    assert symbol(0) == "\x01"
    assert [ord(symbol(rank)) for rank in (0xD7FE, 0xD7FF)] == [0xD7FF, 0xE000]
    ranks = [*range(0xE800), 262_144, 1_000_000]
    symbols = [symbol(rank) for rank in ranks]
    "".join(symbols).encode("utf-8")  # a surrogate would raise
    assert symbols == sorted(set(symbols))
    assert "\0" not in symbols
    assert UNKNOWN_SYMBOL.decode() not in symbols


def test_ranks_around_the_surrogates(tmp_path: Path) -> None:
    """More symbols than there are code points below U+D800, each the context of another token."""
    size = 0xD800 + 300
    entries = {(token,): ((token + 1) % size, 1.0) for token in range(size)}
    dictionary = write(tmp_path / "x.dict", entries)
    verify_artifact(dictionary.path)
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


# Broken dictionaries. Each has a manifest that fits its files, so that only the named check can notice.


def trie(path: Path, keys: list[str]) -> None:
    marisa_trie.Trie(keys).save(str(path / "contexts.marisa"))


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (
            lambda p: save_array(p / "alphabet.npy", [1] * 8, "uint32"),
            "alphabet.npy: token ids repeat",
        ),
        (
            lambda p: save_array(p / "alphabet.npy", [*range(7), VOCABULARY], "uint32"),
            "alphabet.npy: token ids outside the vocabulary",
        ),
        (
            lambda p: save_array(p / "next_token.npy", [0, 1, 2, 8], "uint16"),
            "next_token.npy: numbers outside alphabet.npy",
        ),
        (
            lambda p: trie(p, ["\x01", "\x02", "\x03", "\x01\x02\x01\x02"]),
            "contexts.marisa: a context is too long",
        ),
        (lambda p: trie(p, ["\x01", "\x02", "\x03", "\x09"]), "contexts.marisa: a symbol is not in alphabet.npy"),
    ],
)
def test_verify_finds_each_broken_invariant(tmp_path: Path, breaking: Callable[[Path], None], reason: str) -> None:
    path = tmp_path / "x.dict"
    statistics = write(path, SMALL).manifest.statistics
    breaking(path)
    reseal(path, statistics)
    with pytest.raises(ArtifactError) as caught:
        verify_artifact(path)
    assert str(caught.value) == f"{path}/{reason}. Build the dictionary again"


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (lambda p: trie(p, ["\x01"]), "next_token.npy: uint16 4, expected uint16 1"),
        (
            lambda p: (p / "contexts.marisa").write_bytes(b"no trie at all"),
            "contexts.marisa: not a readable marisa-trie",
        ),
        (lambda p: (p / "contexts.marisa").write_bytes(b""), "contexts.marisa: not a readable marisa-trie"),
        (lambda p: (p / "count.npy").write_bytes(b"no array"), "count.npy: not a readable .npy file"),
        (lambda p: (p / "alphabet.npy").write_bytes(b""), "alphabet.npy: not a readable .npy file"),
        (lambda p: save_array(p / "next_token.npy", [1] * 4, "uint32"), "next_token.npy: uint32 4, expected"),
        (lambda p: save_array(p / "alphabet.npy", [1], "uint64"), "alphabet.npy: uint64 1, expected uint32 any"),
        (lambda p: save_array(p / "alphabet.npy", [[1]], "uint32"), "alphabet.npy: uint32 1x1, expected uint32 any"),
        (lambda p: save_array(p / "probability.npy", [1] * 5, "uint8"), "probability.npy: uint8 5, expected uint8 4"),
        (lambda p: (p / "count.npy").unlink(), "the manifest does not name count.npy"),
        (lambda p: trie(p, ["\x01", "\x02", "\x03", ""]), "not a readable marisa-trie file (a key is empty)"),
        (lambda p: trie(p, ["\x01", "\x02", "\x03", "\x03" * 300]), "(a key is longer than 256 bytes)"),
    ],
)
def test_opening_finds_what_cannot_be_read(tmp_path: Path, breaking: Callable[[Path], object], reason: str) -> None:
    path = tmp_path / "x.dict"
    statistics = write(path, SMALL).manifest.statistics
    breaking(path)
    reseal(path, statistics)
    with pytest.raises(ArtifactError) as caught:
        Dictionary(path)
    assert reason in str(caught.value)
    assert "again" in str(caught.value)


@pytest.mark.parametrize("max_context", [None, "3", 0, -1, True, 65, 10**12])
def test_opening_finds_a_wrong_figure(tmp_path: Path, max_context: object) -> None:
    path = tmp_path / "x.dict"
    statistics = write(path, SMALL).manifest.statistics
    reseal(path, {**statistics, "max_context": max_context})
    with pytest.raises(ArtifactError, match=r"x\.dict/manifest\.json: max_context is .*expected 1 to 64 tokens"):
        Dictionary(path)


@pytest.mark.parametrize("key", [b"\xff", b"\xc3", b"\x09", b"\x00"])
def test_keys_that_stand_for_no_tokens(tmp_path: Path, key: bytes) -> None:
    """The file is named wherever such a key is met; nothing else is raised."""
    path, name = tmp_path / "x.dict", "contexts.marisa"
    statistics = write(path, SMALL).manifest.statistics
    marisa_trie.BinaryTrie([b"\x01", b"\x02", b"\x03", key], binary=key == b"\0").save(str(path / name))
    reseal(path, statistics)
    with pytest.raises(ArtifactError, match=name):
        list(Dictionary(path).entries())
    with pytest.raises(ArtifactError, match=name):
        verify_artifact(path)
    if key != b"\0":  # which needs another kind of tail, and is not opened
        dictionary = Dictionary(path)
        for token in dictionary.alphabet.tolist():
            dictionary.look_up([token])
            dictionary.step(dictionary.advance(START, token))


def test_long_contexts_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="a context of 65 tokens, expected at most 64"):
        write(tmp_path / "x.dict", {(1,) * 65: (2, 0.5)})
    verify_artifact(write(tmp_path / "x.dict", {(1,) * 64: (2, 0.5)}).path)


def test_another_version_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.dict"
    write(path, SMALL)
    value = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(value | {"version": Dictionary.version + 1}))
    with pytest.raises(
        ArtifactError, match=f"version {Dictionary.version + 1} .*reads version {Dictionary.version}"
    ) as caught:
        Dictionary(path)
    assert str(caught.value).endswith(f"this version: spectool build-dict --tokenizer small --corpus CORPUS -o {path}")
    (path / "manifest.json").unlink()
    with pytest.raises(IncompleteArtifact):
        Dictionary(path)


def test_a_flipped_byte_anywhere_is_found(tmp_path: Path) -> None:
    """Opening finds it in the trie, whose walks could end the process; `verify` finds it everywhere."""
    path = tmp_path / "x.dict"
    write(path, SMALL)
    for file in FILES:
        data = (path / file).read_bytes()
        for place in range(0, len(data), 1 + len(data) // 120):
            (path / file).write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
            with pytest.raises(ArtifactError) as caught:
                verify_artifact(path)
            assert str(path / file) in str(caught.value)
            if file.endswith(".marisa"):
                with pytest.raises(ArtifactError, match="SHA-256"):
                    Dictionary(path)
        (path / file).write_bytes(data)
    verify_artifact(path)


@pytest.mark.parametrize("file", FILES)
def test_random_bytes_and_cut_files_are_errors(tmp_path: Path, file: str) -> None:
    """Under a manifest that fits them, as a hostile artifact would have."""
    path = tmp_path / "x.dict"
    statistics = write(path, SMALL).manifest.statistics
    data = (path / file).read_bytes()
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    damaged = [rng.randbytes(rng.randint(1, 2000)) for _ in range(10)]
    damaged += [data[: rng.randrange(len(data))] for _ in range(10)]
    for content in damaged:
        (path / file).write_bytes(content)
        reseal(path, statistics)
        with pytest.raises(ArtifactError, match=file):
            Dictionary(path)


def test_states_find_what_look_ups_do_on_real_text(tmp_path: Path) -> None:
    """As a text grows, and in the chains that are proposed; the twin tries every suffix."""
    tokenizer, out = open_tokenizer(demo_path("target") / "tokenizer.json"), tmp_path / "uk.dict"
    count_and_build(tokenizer, open_corpus("sample:uk"), out, BackoffOptions(), lambda step: None)
    dictionary = Dictionary(out)
    entries = {tuple(entry.context): (entry.token, entry.probability) for entry in dictionary.entries()}
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
