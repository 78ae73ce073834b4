"""Alignments of strangers: whatever bytes they hold, and hashes, the process lives, answers and stays small."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.tests.artifacts import hostile
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

TEXTS = ("Kot śpi na płocie, a 2024 psy — „O'Neill” — szczekają.\n\n", "Другий документ 🙂 ====  })")
DRAFTED = 4  # tokens
VALUES = (-(2**31), -3, -2, -1, 0, 1, 2, 255, 256, 511, 512, 1535, 1536, 2**16, 2**31 - 2, 2**31 - 1)


def alignment(path: Path, scratch: Path) -> Iterator[Callable[[], object]]:
    """What users do with an alignment."""
    yield lambda: translate(path)
    yield lambda: hostile.command("inspect", path)


def translate(path: Path) -> None:
    """Commit text in target ids; translate right drafts, healed ones and random ones after it."""
    draft, target = tokenizers()
    opened, rng = Alignment(path), random.Random(1)
    translator = ByteAlignedTranslator(opened, draft, target)
    for text in TEXTS:
        translator.start()
        ids, drafts = target.encode(text), draft.encode(text)
        for place in range(0, len(ids), 3):
            translator.commit(ids[place : place + 3])
            context, constraint = translator.draft_context(), translator.constraint()
            wild = [rng.randrange(draft.size) for _ in range(DRAFTED)]
            for proposed in (drafts[place : place + DRAFTED], wild):
                if proposed:
                    constraint.allows(proposed[0], False)
                    translator.translate(proposed)
            if len(constraint.extensions) and context:
                healed = int(rng.choice(constraint.extensions))
                constraint.allows(healed, True)
                translator.translate([healed, *drafts[:2]], healed=True)
        risks = opened.target.risks
        assert ((risks >= 0) | np.isnan(risks)).all()


@cache
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    draft, target = (open_tokenizer(demo_path(name) / "tokenizer.json") for name in ("other", "target"))
    return draft, target


def _wild(values: np.ndarray, rng: random.Random) -> np.ndarray:
    """Change some numbers of an array: wildly, by one, or to those of a neighbour."""
    changed = values.copy()
    if not changed.size:
        return changed
    information = np.iinfo(changed.dtype) if changed.dtype.kind in "iu" else None
    for _ in range(rng.choice([1, 1, 3, 50, changed.size])):
        place = rng.randrange(changed.size)
        value = [
            rng.choice(VALUES),
            int(changed[place]) + rng.choice([-1, 1]),
            int(changed[rng.randrange(changed.size)]),
        ]
        found = rng.choice(value)
        if information is not None:
            found = min(max(found, int(information.min)), int(information.max))
        if rng.random() < 0.1 and changed.dtype == np.int64:
            found = rng.getrandbits(63)
        changed[place] = found
    return changed


def numbers(data: bytes, rng: random.Random, kind: str) -> bytes:
    """Change the numbers of an array."""
    with np.errstate(all="ignore"):
        return _wild(np.frombuffer(data, "uint16" if kind == "float16" else kind), rng).tobytes()


MUTATORS = (numbers,)


@pytest.fixture(scope="session")
def example_alignment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's pair."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "text.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    build_alignment(*tokenizers(), open_corpus(str(folder / "text.txt")), folder / "x.align", lambda step: None)
    return folder / "x.align"


@pytest.mark.parametrize("number", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_alignments(example_alignment: Path, tmp_path: Path, number: int) -> None:
    assert_harmless(example_alignment, number, tmp_path)


@pytest.mark.slow
def test_many_alignments(example_alignment: Path, tmp_path: Path) -> None:
    assert_harmless(example_alignment, 10_000, tmp_path)


def assert_harmless(example: Path, number: int, scratch: Path) -> None:
    seed = random.randrange(10**6)
    faults = hostile.fuzz(f"{__name__}:alignment", example, range(number), seed, scratch, f"{__name__}:MUTATORS")
    assert not faults, f"seed {seed}: {len(faults)} faults\n" + "\n".join(faults[:20])
