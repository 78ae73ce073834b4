"""What the library writes passes; what it must not be shown does not."""

import random
from collections.abc import Callable
from pathlib import Path

import marisa_trie
import numpy as np
import pytest

from spectool.artifacts.marisa_check import check_trie
from spectool.tests.artifacts.marisa_file import HEADER, TrieFile, parse, serialise

LONGEST = 64


def check(data: bytes, longest: int = LONGEST) -> None:
    check_trie(np.frombuffer(data, np.uint8), longest)


def keys(number: int, longest: int, symbols: int, seed: int) -> set[str]:
    rng = random.Random(seed)
    return {
        "".join(chr(rng.choice([1, 40, symbols]) - rng.randrange(1)) for _ in range(rng.randint(1, longest)))
        if rng.random() < 0.3
        else "".join(chr(rng.randint(1, symbols)) for _ in range(rng.randint(1, longest)))
        for _ in range(number)
    }


def written(path: Path, content: set[str], tries: int = 3) -> bytes:
    marisa_trie.Trie(content, num_tries=tries).save(str(path / "x"))
    return (path / "x").read_bytes()


@pytest.mark.parametrize("tries", [1, 2, 3, 5])
@pytest.mark.parametrize("number", [0, 1, 2, 30, 511, 512, 513, 4000])
def test_what_the_library_writes_passes(tmp_path: Path, number: int, tries: int) -> None:
    for longest, symbols in ((1, 90), (3, 2000), (12, 30)):
        data = written(tmp_path, keys(number, longest, symbols, number), tries)
        check(data)
        assert serialise(parse(data)) == data


def edge(change: Callable[[TrieFile], object]) -> Callable[[TrieFile], object]:
    """A change of the first cached edge that is in use."""
    return lambda trie: change(next(edge for edge in trie.cache if edge[0] != 2**32 - 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.louds.__setitem__(slice(0, 2), [0, 1]), "a node comes before its parent"),
        (lambda t: t.louds.__setitem__(2, 0), "as many ones as nodes"),
        (lambda t: t.louds.extend([0]), "bits, expected"),
        (lambda t: t.terminals.__setitem__(0, 1), "a key is empty"),
        (lambda t: t.terminals.__setitem__(-1, 1), "do not fit each other"),
        (lambda t: t.terminals.append(0), "bits, expected"),
        (lambda t: t.links.__setitem__(0, 1), "do not fit each other"),
        (lambda t: t.links.__setitem__(t.links.index(1), 0), "links of .* bits, expected"),
        (lambda t: t.bases.append(0), "do not fit each other"),
        (lambda t: t.extras.__setitem__(0, 2**23), "a link leads nowhere"),
        (lambda t: t.extras.pop(), "links of .* bits, expected"),
        (lambda t: t.inner.inner.tail.__setitem__(-1, 1), "the last string does not end"),
        (lambda t: setattr(t, "inner", t.inner.inner), "."),
        (lambda t: setattr(t, "children", t.children + 1), "another number of children"),
        (lambda t: setattr(t.inner, "children", t.inner.children - 1), "another number of children"),
        (lambda t: setattr(t, "cache", t.cache[:-1]), "a cache of"),
        (lambda t: setattr(t, "cache", []), "a cache of 0 edges"),
        (edge(lambda e: e.__setitem__(0, e[0] + 1)), "a cached edge is not in the tree"),  # type: ignore[index]
        (edge(lambda e: e.__setitem__(1, 10**9)), "a cached edge is not in the tree"),  # type: ignore[index]
        (edge(lambda e: e.__setitem__(2, e[2] ^ 1)), "has another label than the tree"),  # type: ignore[index]
    ],
)
def test_each_broken_invariant_is_found(tmp_path: Path, change: Callable[[TrieFile], object], reason: str) -> None:
    trie = parse(written(tmp_path, keys(800, 9, 60, 3)))
    assert trie.inner and trie.inner.inner and trie.inner.inner.tail
    change(trie)
    with pytest.raises(ValueError, match=reason):
        check(serialise(trie))


def test_indexes_must_be_those_of_the_bits(tmp_path: Path) -> None:
    """Every byte of the tree's index is changed."""
    data = written(tmp_path, keys(300, 4, 60, 3))
    place = len(HEADER) + 8 + int.from_bytes(data[len(HEADER) : len(HEADER) + 8], "little") + 8
    for _ in range(3):  # ranks, zeros, ones
        size = int.from_bytes(data[place : place + 8], "little")
        for byte in range(place + 8, place + 8 + size):
            changed = data[:byte] + bytes([data[byte] ^ 0x10]) + data[byte + 1 :]
            with pytest.raises(ValueError, match="an index of bits does not fit them"):
                check(changed)
        place += 8 + size + -size % 8


def test_long_keys_and_wide_nodes(tmp_path: Path) -> None:
    check(written(tmp_path, {"a" * LONGEST}))
    with pytest.raises(ValueError, match="a key is longer than 64 bytes"):
        check(written(tmp_path, {"a" * (LONGEST + 1)}))
    with pytest.raises(ValueError, match="a key is longer than 64 bytes"):  # no node's label is long
        check(written(tmp_path, {"a" * n for n in range(1, LONGEST + 2)}))
    nodes = 400
    wide = parse(written(tmp_path, {"a"}))
    wide.louds = [1, 0, *[1] * nodes, *[0] * (nodes + 2)]
    wide.links, wide.terminals, wide.bases = [0] * (nodes + 1), [0] * (nodes + 2), bytearray(nodes + 1)
    wide.cache, wide.children = [[2**32 - 1, 2**32 - 1, 0]] * 256, nodes
    with pytest.raises(ValueError, match="a node has more than 256 children"):
        check(serialise(wide))


def test_keys_that_share_all_of_their_text_are_bounded(tmp_path: Path) -> None:
    """Files stay small where each of many keys is long: reading all of them would take longer than the file says."""
    stem = "abcdefghijklmnopqrstuvwxyz" * 200
    content = {stem + chr(65 + i) + chr(65 + j) for i in range(25) for j in range(60)}
    with pytest.raises(ValueError, match="more than 64 times as long as the file"):
        check(written(tmp_path, content), 10_000)


def test_nesting_is_bounded(tmp_path: Path) -> None:
    trie = parse(written(tmp_path, keys(800, 9, 60, 3)))
    for _ in range(20):
        trie = TrieFile(**{**vars(trie), "inner": trie})
    with pytest.raises(ValueError, match=r"."):
        check(serialise(trie))
