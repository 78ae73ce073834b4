"""The automaton against its slow twin: trying every suffix of the whole sequence."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts import Dictionary, open_tokenizer
from spectool.artifacts.formats.context_automaton import NO_CONTEXTS, START, ContextAutomaton
from spectool.build.counting.stage import CountOptions
from spectool.build.dictionary.backoff_stage import BackoffOptions, count_and_build
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path


def automaton(contexts: Sequence[tuple[int, ...]]) -> ContextAutomaton:
    """One whose steps propose the number of the context."""
    rows = np.full((len(contexts), max(map(len, contexts))), -1, dtype=np.int64)
    for row, context in enumerate(contexts):
        rows[row, : len(context)] = context[::-1]
    return ContextAutomaton(rows, lambda row: ((row,), 0.5))


def longest(contexts: Sequence[tuple[int, ...]], sequence: Sequence[int]) -> int | None:
    """The twin."""
    suffixes = (tuple(sequence[start:]) for start in range(len(sequence)))
    return next((contexts.index(suffix) for suffix in suffixes if suffix in contexts), None)


def test_equal_to_trying_every_suffix() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    checked = 0
    for _ in range(150):
        alphabet = [rng.randrange(200_000) for _ in range(rng.randint(1, 6))]
        contexts = list({tuple(rng.choices(alphabet, k=rng.randint(1, 6))) for _ in range(rng.randint(1, 60))})
        states = automaton(contexts)
        sequence: list[int] = []
        state = START
        for _ in range(60):
            sequence.append(rng.choice([*alphabet, 7_777_777, 0]))
            state = states.advance(state, sequence[-1])
            found = states.step(state)
            expected = longest(contexts, sequence[-6:])
            assert (None if found is None else found.tokens[0]) == expected, (contexts, sequence)
            if found is not None:
                assert found.state == states.advance(state, found.tokens[0])
            checked += 1
    assert checked == 9000


def test_shortened_contexts_are_found_at_their_suffixes() -> None:
    states = automaton([(1, 2), (2,), (2, 3, 4)])
    assert len(states) == 6, "the start; 1, 1 2; 2, 2 3, 2 3 4"
    state = states.advance(states.advance(START, 1), 2)
    assert states.step(state) is not None
    state = states.advance(state, 3)
    assert states.step(state) is None, "2 3 is no context, nor is 3"
    found = states.step(states.advance(state, 4))
    assert found is not None
    assert found.tokens == (2,)


def test_without_contexts_nothing_is_known() -> None:
    assert NO_CONTEXTS.advance(START, 5) == START
    assert NO_CONTEXTS.step(START) is None


def test_equal_to_looking_up_in_the_trie_on_real_text(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    out = tmp_path / "uk.dict"
    corpus = open_corpus("sample:uk")
    count_and_build(tokenizer, corpus, out, BackoffOptions(), CountOptions(), lambda step: None)
    dictionary = Dictionary(out)
    checked = 0
    for language in ("uk", "pl"):
        for document in open_corpus(f"sample:{language}"):
            ids, state = tokenizer.encode(document.text), START
            for place, token in enumerate(ids, 1):
                state = dictionary.automaton.advance(state, token)
                found, match = dictionary.automaton.step(state), dictionary.look_up(ids[:place])
                assert (found and found[:2]) == (match and match[:2]), (document.text, place)
                checked += match is not None
    assert checked > 10_000


def test_a_context_outside_the_alphabet_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    out = tmp_path / "uk.dict"
    corpus = open_corpus("sample:uk")
    count_and_build(tokenizer, corpus, out, BackoffOptions(entries=200), CountOptions(), lambda step: None)
    dictionary = Dictionary(out)
    monkeypatch.setattr(dictionary, "_tokens", dict(list(dictionary._tokens.items())[:5]))
    with pytest.raises(ArtifactError, match=r"contexts\.marisa: a context is too long or has a symbol that is not in"):
        _ = dictionary.automaton
