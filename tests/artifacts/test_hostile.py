"""Artifacts of strangers: whatever bytes they hold, and whatever hashes, the process lives, answers and stays small."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spectool.artifacts.dictionary import START, Dictionary
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tests.artifacts import hostile
from spectool.tests.running import TOKENIZER
from spectool.tokenization.opening import open_tokenizer

DRAFTED = 300  # tokens
TRIES = "spectool.tests.artifacts.marisa_file:CHANGES"


def dictionary(path: Path, scratch: Path) -> Iterator[Callable[[], object]]:
    """What users do with a dictionary."""
    yield lambda: draft(path)
    yield lambda: [list(map(each.entry, range(len(each)))) for each in (Dictionary(path), Dictionary(path))]
    yield lambda: hostile.command("inspect", path, "--lookup", "w tym roku", "--tokenizer", TOKENIZER)
    yield lambda: hostile.command("inspect", path, "--json", "--tokenizer", TOKENIZER)
    yield lambda: hostile.command(
        "predict", "--dict", path, "--dict", path, "--corpus", "sample:pl", "--max-tokens", 50
    )


def draft(path: Path) -> None:
    """Draft after contexts of the dictionary, after what it drafts itself, and after random tokens."""
    opened, rng = Dictionary(path), random.Random(1)
    drafter: Drafter = LookupDrafter(opened)
    size = int(min(2**31, opened.tokenizer["size"]))
    for round_ in range(DRAFTED // 10):
        entry = opened.entry(rng.randrange(len(opened))) if len(opened) else None
        context = [rng.randrange(size) for _ in range(3)] if entry is None or round_ % 3 == 0 else list(entry.context)
        opened.look_up(context)
        state = START
        for token in context:
            state = opened.advance(state, token)
        opened.step(state)
        drafter.start(context)
        proposal = drafter.propose(10)
        drafter.commit(proposal.tokens or (1,))


@pytest.fixture(scope="session")
def example_dictionary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small backoff dictionary of the demo's tokenizer."""
    out = tmp_path_factory.mktemp("hostile") / "small.dict"
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    options = BackoffOptions(max_bytes=18_000)
    count_and_build(tokenizer, open_corpus("sample:pl"), out, options, lambda step: None)
    return out


@pytest.mark.parametrize("number", [20, pytest.param(120, marks=pytest.mark.nightly)])
def test_dictionaries(example_dictionary: Path, tmp_path: Path, number: int) -> None:
    assert_harmless("dictionary", example_dictionary, number, tmp_path, TRIES)


@pytest.mark.slow
def test_many_dictionaries(example_dictionary: Path, tmp_path: Path) -> None:
    assert_harmless("dictionary", example_dictionary, 10_000, tmp_path, TRIES)


def assert_harmless(kind: str, example: Path, number: int, scratch: Path, mutators: str = "") -> None:
    seed = random.randrange(10**6)
    faults = hostile.fuzz(f"{__name__}:{kind}", example, range(number), seed, scratch, mutators)
    assert not faults, f"seed {seed}: {len(faults)} faults\n" + "\n".join(faults[:20])
