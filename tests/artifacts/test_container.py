"""The bytes of a file: what is written, and one literal file for each thing that may be wrong with it."""

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spectool import ArtifactError
from spectool.artifacts.container import MOST_HEADER, open_container, write_container
from spectool.artifacts.dictionary import Dictionary

from ..running import run
from .parts import ZEROS, whole

META = {"manifest": "{}", "sha256": ZEROS.decode()}
ENTRY = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def header(**arrays: Any) -> dict[str, Any]:
    return {"__metadata__": META, **arrays}


def test_the_bytes_of_a_small_file(tmp_path: Path) -> None:
    write_container(tmp_path / "x", {"b": np.array([1, 2], np.uint16), "a": np.array([3], np.uint8)}, '{"é": 1}')
    data = (tmp_path / "x").read_bytes()
    text = data[8:-5].decode()
    digest = json.loads(text)["__metadata__"]["sha256"]
    assert text.rstrip(" ") == (
        '{"__metadata__":{"manifest":"{\\"é\\": 1}","sha256":"' + digest + '"},'
        '"b":{"dtype":"U16","shape":[2],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}}'
    )
    assert len(text.encode()) % 8 == 0
    assert data == len(text.encode()).to_bytes(8, "little") + text.encode() + b"\x01\x00\x02\x00\x03"
    assert data == whole(text.replace(digest, ZEROS.decode()).encode(), b"\x01\x00\x02\x00\x03"), "the hash is right"


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    size, *header, content = page.split("188 bytes")[1].split("```")[1].strip().split("\n")
    write_container(tmp_path / "x", {"next_token": np.array([1, 2], np.uint16)}, "{}")
    data = bytes.fromhex(size) + "".join(header).encode() + b"    " + bytes.fromhex(content)
    assert (tmp_path / "x").read_bytes() == data
    assert len(data) == 188


def test_what_is_written_is_read_and_cannot_be_changed(tmp_path: Path) -> None:
    arrays = {
        "long": np.array([-1, 2**40], np.int64),
        "ids": np.array([-1, 5], np.int32),
        "half": np.array([0.5, np.nan], np.float16),
        "none": np.zeros(0, np.uint8),
    }
    write_container(tmp_path / "x", arrays, "{}")
    found = open_container(tmp_path / "x")
    found.verify()
    assert list(found.arrays) == list(arrays)
    for name, values in arrays.items():
        assert found.arrays[name].dtype == values.dtype
        assert np.array_equal(found.arrays[name], values, equal_nan=name == "half")
        with pytest.raises(ValueError, match="read-only"):
            found.arrays[name][:] = 0
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is no artifact of spectool"),
        (b"\0" * 8, "is no artifact of spectool"),
        (b'{"version": "1.0", "truncation": null}', "is no artifact of spectool"),
        ((MOST_HEADER + 8).to_bytes(8, "little") + b"{" + b" " * 99, "is no artifact of spectool"),
        (b"\x10\0\0\0\0\0\0\0{}", "header"),
        (whole(b"{"), "invalid JSON"),
        (whole(b"{" * 100_000), "invalid JSON"),
        (whole(b'{"\xff": 5}'), "invalid UTF-8"),
        (whole(b"{}"), "no manifest or SHA-256"),
        (whole({"__metadata__": {"manifest": "{}"}}), "no manifest or SHA-256"),
        (whole({"__metadata__": {"manifest": "{}", "sha256": ""}}), "no manifest or SHA-256"),
        (whole({"__metadata__": {**META, "manifest": {}}}), "invalid JSON"),
        (whole(header(a=ENTRY), b"123"), "not fully covered"),
        (whole(header(a=ENTRY, b={**ENTRY, "data_offsets": [5, 9]}), b"123456789"), "invalid offset"),
        (whole(header(a=ENTRY, b={**ENTRY, "data_offsets": [2, 6]}), b"123456"), "invalid offset"),
        (whole(header(a={**ENTRY, "shape": [5]}), b"1234"), "invalid shape"),
        (whole(header(a={**ENTRY, "shape": [2**40, 2**40]}), b"1234"), "overflow"),
        (whole(header(a={**ENTRY, "shape": [2, 2]}), b"1234"), "U8 of 2 axes"),
        (whole(header(a={**ENTRY, "dtype": "BF16", "shape": [2]}), b"1234"), "BF16 of 1 axes"),
        (
            whole(
                header(
                    a={**ENTRY, "shape": [2], "data_offsets": [0, 2]},
                    b={**ENTRY, "dtype": "U32", "shape": [1], "data_offsets": [2, 6]},
                ),
                b"123456",
            ),
            "U32 of 1 axes at byte",
        ),
    ],
)
def test_each_broken_invariant(tmp_path: Path, data: bytes, problem: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ArtifactError, match=problem) as caught:
        open_container(tmp_path / "x")
    assert str(caught.value).startswith(f"{tmp_path / 'x'}: ")


def test_a_long_header_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="expected at most 4,194,304"):
        write_container(tmp_path / "x", {}, "x" * MOST_HEADER)
    assert list(tmp_path.iterdir()) == []


def bind(path: Path) -> None:
    """Make a socket."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, bind, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file(tmp_path: Path, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody writes to would be waited for without an end."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    make(Path("x"))
    with pytest.raises(ArtifactError, match="x: is not a plain file"):
        open_container(Path("x"))


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """As in the cache of the hub."""
    write_container(tmp_path / "blob", {}, "{}")
    (tmp_path / "x").symlink_to(tmp_path / "blob")
    assert open_container(tmp_path / "x").manifest == "{}"
    (tmp_path / "y").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match="y: no such file"):
        open_container(tmp_path / "y")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write_container(tmp_path / "x", {}, "{}")
    (tmp_path / "x").chmod(0)
    with pytest.raises(PermissionError):
        open_container(tmp_path / "x")


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_container(path, {"a": np.arange(30, dtype=np.uint32)}, '{"name": "zażółć"}')
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(ArtifactError):
            open_container(path).verify()
    path.write_bytes(data)
    open_container(path).verify()


def test_hashing_a_large_file_can_be_interrupted(tmp_path: Path) -> None:
    parts = {name: {} for name in ("arguments", "tokenizers", "inputs", "statistics")}
    manifest = json.dumps({"format": "spectool-dictionary", "version": Dictionary.version, "tool": "t", **parts})
    entry = {"dtype": "U8", "shape": [64 << 30], "data_offsets": [0, 64 << 30]}
    (tmp_path / "x").write_bytes(whole({"__metadata__": {**META, "manifest": manifest}, "a": entry}))
    os.truncate(tmp_path / "x", (tmp_path / "x").stat().st_size + (64 << 30))  # minutes
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        result = run("inspect", tmp_path / "x")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert (result.exit_code, result.stdout) == (130, "")
