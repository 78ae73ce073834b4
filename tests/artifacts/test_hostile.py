"""Artifacts of strangers: whatever bytes they hold, and whatever hashes, the process lives, answers and stays small."""

import random
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from spectool.artifacts.alignment import Alignment
from spectool.artifacts.dictionary import START, Dictionary
from spectool.artifacts.numbers import from_digits, to_digits
from spectool.artifacts.pack import Pack
from spectool.build.alignment.stage import build_alignment
from spectool.build.corpus_reading import quiet
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs import PackOptions
from spectool.build.packs.stage import build_pack, count_and_build
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.tests.artifacts import hostile
from spectool.tests.artifacts.test_pack import packed, unpacked
from spectool.tests.running import TOKENIZER
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

DRAFTED = 300  # tokens


def dictionary(path: Path, scratch: Path) -> Iterator[Callable[[], object]]:
    """What users do with a dictionary."""
    yield lambda: draft(path)
    yield lambda: hostile.command("inspect", path, "--lookup", "w tym roku", "--tokenizer", TOKENIZER)
    yield lambda: hostile.command("inspect", path, "--json", "--tokenizer", TOKENIZER)
    yield lambda: hostile.command(
        "predict", "--dict", path, "--dict", path, "--corpus", "sample:pl", "--max-tokens", 50
    )


def draft(path: Path) -> None:
    """Draft after text like what it was built from, after what it drafts itself, and after random tokens."""
    opened, rng = Dictionary(path), random.Random(1)
    drafter: Drafter = LookupDrafter(opened)
    size = int(min(2**31, opened.tokenizer["size"]))
    text = open_tokenizer(TOKENIZER).encode("\n".join(open_corpus("sample:pl")))
    for round_ in range(DRAFTED // 10):
        at = rng.randrange(len(text))
        context = [rng.randrange(size) for _ in range(3)] if round_ % 3 == 0 else text[at : at + 6]
        state = START
        for token in context:
            state = opened.advance(state, token)
        assert opened.look_up(state) == opened.look_up(opened.state_after(context))
        drafter.start(context)
        proposal = drafter.propose(10)
        drafter.commit(proposal.tokens or (1,))


def changed_numbers(data: bytes, rng: random.Random, kind: str) -> bytes:
    """Change the numbers of an array, or their digits, where it is compressed."""
    try:
        digits = zlib.decompress(data)
    except zlib.error:
        return numbers(data, rng, kind)
    whole = digits and digits[-1] < 0x80 and b"\x80" * 5 not in bytes(digit & 0x80 for digit in digits)
    if not whole or rng.random() < 0.3:  # no numbers any more, where they have been changed before
        return zlib.compress(rng.choice(hostile.MUTATORS)(digits, rng) if digits else digits)
    count = sum(digit < 0x80 for digit in digits)
    values = _wild(from_digits(np.frombuffer(digits, np.uint8), count), rng)
    return zlib.compress(to_digits(values.clip(0, 2**35 - 1)))


@pytest.fixture(scope="session")
def example_dictionary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small backoff dictionary of the demo's tokenizer."""
    out = tmp_path_factory.mktemp("hostile") / "small.dict"
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    options = BackoffOptions(max_bytes=18_000)
    count_and_build(tokenizer, open_corpus("sample:pl"), out, options, lambda step: None)
    return out


@hostile.numbers(5, 50)
def test_dictionaries(example_dictionary: Path, tmp_path: Path, number: int) -> None:
    hostile.assert_harmless(dictionary, example_dictionary, number, tmp_path, (changed_numbers,))


# Alignments from strangers: the process survives any content, even with valid hashes, answers and stays small.


TEXTS = ("Kot śpi na płocie, a 2024 psy — „O'Neill” — szczekają.\n\n", "Другий документ 🙂 ====  })")
AT_ONCE = 4  # draft tokens
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
            wild = [rng.randrange(draft.size) for _ in range(AT_ONCE)]
            for proposed in (drafts[place : place + AT_ONCE], wild):
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


@pytest.fixture(scope="session")
def example_alignment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's pair."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "text.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    build_alignment(*tokenizers(), open_corpus(str(folder / "text.txt")), folder / "x.align", lambda step: None)
    return folder / "x.align"


@hostile.numbers(5, 200)
def test_alignments(example_alignment: Path, tmp_path: Path, number: int) -> None:
    hostile.assert_harmless(alignment, example_alignment, number, tmp_path, (numbers,))


# Packs from strangers: the process survives any content, even with valid hashes, answers and stays small.


def pack(path: Path, scratch: Path) -> Iterator[Callable[[], object]]:
    """What users do with a pack."""
    yield lambda: Pack(path)
    yield lambda: hostile.command("inspect", path)
    named = scratch / "y.pack"
    named.write_bytes(path.read_bytes())
    for out in ("y.dict", "z.pack"):
        (scratch / out).unlink(missing_ok=True)
    yield lambda: hostile.command("build-dict", "--tokenizer", TOKENIZER, "--pack", named, "-o", scratch / "y.dict")
    yield lambda: hostile.command("pack", named, "--language", "pl", "-o", scratch / "z.pack")


def decompressed(data: bytes, rng: random.Random, kind: str) -> bytes:
    """Change what a reader sees after decompression."""
    raw = bytearray(unpacked(data))
    for _ in range(rng.choice([1, 1, 3, 30])):
        if raw:
            raw[rng.randrange(len(raw))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return packed(rng.choice(hostile.MUTATORS)(bytes(raw), rng) if raw and rng.random() < 0.3 else bytes(raw))


@cache
def example(folder: Path) -> Path:
    options = PackOptions(max_bytes=12_000, min_names=0)
    about = {"language": "pl", "credits": ["a sample"]}
    build_pack([], [open_corpus("sample:pl")], about, folder / "x.pack", options, quiet)
    return folder / "x.pack"


@hostile.numbers(5, 400)
def test_packs(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, number: int) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    hostile.assert_harmless(pack, example(folder), number, tmp_path, (decompressed,))
