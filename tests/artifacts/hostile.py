"""Artifacts with changed bytes and hashes to match, opened and used.

A kind of artifact is one whole example and an *exercise*. That is a function of a path and a scratch folder. It yields
what users do with such an artifact, as functions without arguments. An exercise may raise `SpectoolError`. All else is
a fault: other exceptions, more than two seconds of processor time, much more memory than the example itself needs.

Change ``n`` depends on the seed and on ``n`` alone.
"""

import contextlib
import json
import random
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spectool import SpectoolError
from spectool.tests.artifacts.parts import ZEROS, Parts, whole

Exercise = Callable[[Path, Path], Iterator[Callable[[], object]]]
Mutator = Callable[[bytes, random.Random], bytes]
KnowingMutator = Callable[[bytes, random.Random, str], bytes]  # which also gets the type of the numbers
SECONDS = 2.0  # of processor time, for all that is done with one artifact
GROWTH = 10  # times the size of the artifact
SPARE = 64 << 20  # bytes that caches of Python and of libraries may take besides
ROOM = 3 << 30  # bytes of address space for one change
WORDS = (0, 1, 2, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def command(*arguments: object) -> None:
    """Run a command as users do; it may end with 0, 1 for a foreseen error, or 2 for options that do not fit."""
    from spectool.cli import main

    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exit_code not in (0, 1, 2) or "Error: unexpected" in result.output:
        raise AssertionError(f"{arguments[0]}: {result.exit_code}, {result.output[-200:]}") from result.exception


# Changes of bytes.


def _flip(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def _near_an_end(data: bytes, rng: random.Random) -> bytes:
    """Flip a bit of what is likely a header or a footer."""
    near = min(len(data), 200)
    place = rng.choice([rng.randrange(near), len(data) - 1 - rng.randrange(near)])
    return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]


def _word(data: bytes, rng: random.Random) -> bytes:
    """Replace an aligned number by a wild one, or by one that is a little off."""
    width = rng.choice([1, 2, 4, 4, 8, 8])
    if len(data) < width:
        return data
    place = rng.randrange(len(data) // width) * width
    value = int.from_bytes(data[place : place + width], "little")
    found = rng.choice([rng.choice(WORDS), value + rng.choice([-8, -1, 1, 8, 64]), rng.getrandbits(64), len(data)])
    return data[:place] + (found % (1 << 8 * width)).to_bytes(width, "little") + data[place + width :]


def _random_block(data: bytes, rng: random.Random) -> bytes:
    begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    end = min(end, begin + 64)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice([rng.randrange(len(data)), max(0, len(data) - rng.randint(1, 16))])]


def _extend(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice([rng.randbytes(rng.randint(1, 64)), bytes(rng.randint(1, 4096)), data[-64:]])


def _remove(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + data[place + rng.choice([1, 4, 8, 64]) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.randbytes(rng.choice([1, 4, 8, 64])) + data[place:]


def _move(data: bytes, rng: random.Random) -> bytes:
    """Write one part of the file over another."""
    length = rng.choice([4, 8, 32, 256])
    source, place = (rng.randrange(max(1, len(data) - length)) for _ in range(2))
    return data[:place] + data[source : source + length] + data[place + length :]


MUTATORS: tuple[Mutator, ...] = (
    _flip,
    _near_an_end,
    *[_word] * 3,
    _random_block,
    _cut,
    _extend,
    _remove,
    _insert,
    _move,
)


# Changes of the manifest.


def _wild_value(rng: random.Random) -> str:
    """A JSON value that no reader hopes for."""
    return rng.choice(
        [
            *("null", "true", '""', "[]", "{}", "-1", "0", "0.5", "NaN", "Infinity", "1e999", '"x"', '"\\ud800"'),
            *(str(number) for number in WORDS),
            *("1" + "0" * 400, "-" + "9" * 5000, "[" * 5000 + "]" * 5000, '{"a":' * 3000 + "1" + "}" * 3000),
            *('"' + "x" * 100_000 + '"', "[" + "0," * 10_000 + "0]", '"\\u001b[2J\\u0000"', '"../../../etc/passwd"'),
        ]
    )


def change_manifest(text: str, rng: random.Random) -> str:
    """Replace, drop or repeat a value somewhere in the manifest."""
    value = json.loads(text)
    places: list[tuple[dict, str]] = []  # type: ignore[type-arg]

    def collect(part: object) -> None:
        if isinstance(part, dict):
            for key, inner in part.items():
                places.append((part, key))
                collect(inner)
        elif isinstance(part, list):
            for inner in part:
                collect(inner)

    collect(value)
    parent, key = rng.choice(places)
    change = rng.randrange(4)
    if change == 0:
        del parent[key]
    elif change == 1:
        parent[rng.choice(["../x", "x" * 300, "", "NaN", "size"])] = parent.pop(key)
    else:
        parent[key] = "@@"
    return json.dumps(value).replace('"@@"', _wild_value(rng))


def mutate(file: Path, rng: random.Random, mutators: Sequence[KnowingMutator] = ()) -> str:
    """Change an artifact in place, sizes and hash to match where that is possible, and say how."""
    parts = Parts.of(file)
    kind = rng.randrange(20)
    if kind == 0 and len(parts.arrays) > 1:
        one, other = rng.sample(sorted(parts.arrays), 2)
        (dtype, data), (other_dtype, other_data) = parts.arrays[one], parts.arrays[other]
        parts.arrays |= {one: (dtype, other_data), other: (other_dtype, data)}
        file.write_bytes(parts.to_bytes())
        return f"{one} and {other} swapped"
    if kind in (1, 2):
        file.write_bytes(parts.to_bytes(change_manifest(json.dumps(parts.manifest), rng)))
        return "a value in the manifest"
    if kind == 3:
        mutator = rng.choice(MUTATORS)
        text = mutator(json.dumps(parts.manifest).encode(), rng).decode(errors="replace")
        file.write_bytes(parts.to_bytes(text))
        return f"manifest: {mutator.__name__}"
    if kind in (4, 5):
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        header["__metadata__"]["sha256"] = ZEROS.decode()
        changed = change_manifest(json.dumps(header), rng).encode(errors="surrogatepass")
        file.write_bytes(whole(changed, data[begin:]))
        return "a value in the header"
    if kind == 6:
        mutator, data = rng.choice(MUTATORS), file.read_bytes()
        file.write_bytes(mutator(data, rng))
        return f"the file: {mutator.__name__}"
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        name = rng.choice(sorted(parts.arrays))
        dtype, data = parts.arrays[name]
        if data and mutators:
            knowing = rng.choice(mutators)
            data = knowing(data, rng, dtype)
            done.append(f"{name}: {knowing.__name__}")
        elif data:
            mutator = rng.choice(MUTATORS)
            data = mutator(data, rng)
            done.append(f"{name}: {mutator.__name__}")
        parts.arrays[name] = dtype, data
    file.write_bytes(parts.to_bytes())
    return ", ".join(done)


def numbers(few: int, nightly: int) -> Any:
    """How many changes are tried in each tier."""
    tiers = [few, pytest.param(nightly, marks=pytest.mark.nightly), pytest.param(10_000, marks=pytest.mark.slow)]
    return pytest.mark.parametrize("number", tiers)


def assert_harmless(
    exercise: Exercise, example: Path, number: int, scratch: Path, mutators: Sequence[KnowingMutator]
) -> None:
    """Exercise ``number`` changed copies of an example; ``mutators`` are used half of the time."""
    seed = random.randrange(10**6)
    faults = fuzz(exercise, example, range(number), seed, scratch, mutators)
    assert not faults, f"seed {seed}: {len(faults)} faults\n" + "\n".join(faults[:20])


def fuzz(
    exercise: Exercise, example: Path, numbers: range, seed: int, scratch: Path, mutators: Sequence[KnowingMutator] = ()
) -> list[str]:
    """A line for each fault of changed copies: the number of the change, what was changed, what happened."""
    size, faults = example.stat().st_size, list[str]()
    allowed = [_use(exercise, example, scratch)[1] for _ in range(2)][-1] + GROWTH * size + SPARE
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        for number in numbers:
            # Again for each: the tokenizers library keeps memory of every tokenizer that has encoded.
            resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + ROOM, before[1]))
            rng = random.Random(f"{seed} {number}")
            file = scratch / "x"
            shutil.copyfile(example, file)
            what = mutate(file, rng, mutators if rng.random() < 0.5 else ())
            began = time.process_time()
            problems, grown = _use(exercise, file, scratch)
            if (seconds := time.process_time() - began) > SECONDS:
                problems.append(f"takes {seconds:.1f} s")
            if grown > allowed:
                problems.append(f"takes {grown >> 20} MiB, expected at most {allowed >> 20}")
            faults += (f"{number}: {what}: {problem}" for problem in problems)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    return faults


def _use(exercise: Exercise, path: Path, scratch: Path) -> tuple[list[str], int]:
    """Return what went wrong, and by how many bytes the process was larger than at the beginning."""
    before = _memory("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    problems, actions = list[str](), exercise(path, scratch)
    while True:
        try:
            next(actions)()
        except StopIteration:
            return problems, _memory("VmHWM") - before
        except SpectoolError:
            pass
        except Exception as error:
            problems.append(" ".join(f"{type(error).__name__}: {error}".split())[:600])


def _memory(key: str) -> int:
    """Bytes by a line of Linux' process status."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    return 0
