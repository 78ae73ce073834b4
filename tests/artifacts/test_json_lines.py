"""Rows as JSON Lines: what was written comes back, and every other line is named with what was expected of it."""

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spectool import ArtifactError
from spectool.artifacts.json_lines import LARGEST, LONGEST_ROW, read_rows, write_rows

AGAIN = "Measure again"
SCHEMA = pa.schema(
    [
        pa.field("block", pa.int32(), nullable=False),
        pa.field("memory", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("joules", pa.float64()),
        pa.field("name", pa.string(), nullable=False),
        pa.field("output", pa.list_(pa.int32()), nullable=False),
    ]
)
ROW: dict[str, Any] = {"block": 1, "memory": 2**40, "seconds": 0.1, "joules": None, "name": "żółć 🙂", "output": [3, 4]}
LINE = json.dumps(ROW, ensure_ascii=False)
DEEP = "[" * 100_000 + "]" * 100_000


def with_value(name: str, text: str) -> bytes:
    """A line with other JSON in the place of one value."""
    return json.dumps({**ROW, name: "@@"}).replace('"@@"', text).encode()


def refusal(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    with pytest.raises(ArtifactError) as caught:
        read_rows(file, SCHEMA, AGAIN)
    message = str(caught.value)
    assert message.endswith(f". {AGAIN}") and "\n" not in message and message.isprintable() and len(message) < 600
    return message.removeprefix(f"{file}, ").removesuffix(f". {AGAIN}")


def random_row(rng: random.Random) -> dict[str, Any]:
    return {
        "block": rng.choice([0, 1, 2**31 - 1]),
        "memory": rng.choice([0, 2**63 - 1]),
        "seconds": rng.choice([0.0, 5e-324, rng.random(), LARGEST, rng.uniform(0, LARGEST)]),
        "joules": rng.choice([None, rng.random()]),
        "name": "".join(rng.choice('ał"\\\n\x00\u2028{}🙂 ') for _ in range(rng.randrange(9))),
        "output": [rng.randrange(2**31) for _ in range(rng.randrange(9))],
    }


@pytest.mark.parametrize("number", [0, 1, 5_000])
def test_rows_come_back(tmp_path: Path, number: int) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    rows = [random_row(rng) for _ in range(number)]
    write_rows(tmp_path / "x.jsonl", SCHEMA, rows)
    found = read_rows(tmp_path / "x.jsonl", SCHEMA, AGAIN)
    assert found.to_pylist() == rows and found.schema.equals(SCHEMA)
    assert (tmp_path / "x.jsonl").read_bytes().count(b"\n") == number


def test_any_tool_may_write_a_file(tmp_path: Path) -> None:
    """In any order of fields, with white space, escapes, whole numbers for others, and no end of the last line."""
    turned = json.dumps(dict(reversed(ROW.items())), ensure_ascii=True)
    whole = with_value("seconds", "1").decode().replace(", ", " ,\t")
    (tmp_path / "x.jsonl").write_text(f"{LINE}\r\n{turned}\n{whole}", encoding="utf-8")
    assert read_rows(tmp_path / "x.jsonl", SCHEMA, AGAIN).to_pylist() == [ROW, ROW, {**ROW, "seconds": 1.0}]


@pytest.mark.parametrize(
    ("name", "text", "got"),
    [
        ("block", "-1", "-1"),
        ("block", "2147483648", "2147483648"),
        ("block", "true", "True"),
        ("block", "1.0", "1.0"),
        ("block", '"1"', "'1'"),
        ("block", "null", "None"),
        ("block", '{"a": 1}', "{'a': 1}"),
        ("memory", "9223372036854775808", "9223372036854775808"),
        ("memory", "9" * 4000, f"{'9' * 60}…"),
        ("seconds", "NaN", "nan"),
        ("seconds", "-Infinity", "-inf"),
        ("seconds", "1e999", "inf"),
        ("seconds", "-1e-9", "-1e-09"),
        ("seconds", "1e16", "1e+16"),
        ("seconds", "9" * 400, f"{'9' * 60}…"),
        ("seconds", "false", "False"),
        ("joules", '""', "''"),
        ("name", "7", "7"),
        ("name", '["a"]', "['a']"),
        ("name", json.dumps("x" * 1001), f"'{'x' * 59}…"),
        ("output", "[1, -1]", "-1"),
        ("output", "[[1]]", "[1]"),
        ("output", "{}", "{}"),
    ],
)
def test_values_of_another_kind(tmp_path: Path, name: str, text: str, got: str) -> None:
    message = refusal(tmp_path / "x.jsonl", f"{LINE}\n".encode() + with_value(name, text))
    assert message.startswith(f"line 2: {name}: ") and message.endswith(f", got {got}")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"{}}",
        LINE.encode() * 2,
        b"7",
        b'[["block", 1]]',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"a": "\x01"}',
        with_value("name", r'"a\ud800"'),
        with_value("block", "1" * 5000),
        with_value("output", DEEP),
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    ],
)
def test_lines_that_are_no_objects(tmp_path: Path, line: bytes) -> None:
    assert refusal(tmp_path / "x.jsonl", line + b"\n" + LINE.encode()).startswith(
        "line 1: expected a JSON object, got "
    )


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("{}", "no block"),
        (json.dumps({**ROW, "blok": 1}), "also 'blok'"),
        (json.dumps({name: value for name, value in ROW.items() if name != "name"}), "no name"),
        (LINE.replace('"memory"', '"seconds"'), "no memory"),
        (LINE[:-1] + ', "\\u001b": 1}', "also '\\x1b'"),
    ],
)
def test_other_fields(tmp_path: Path, line: str, got: str) -> None:
    message = refusal(tmp_path / "x.jsonl", f"{LINE}\n{LINE}\n{line}\n".encode())
    assert message == f"line 3: expected the fields {', '.join(SCHEMA.names)}, got {got}"


def test_long_lines_are_not_parsed(tmp_path: Path) -> None:
    """The longest line is read, a byte more is refused, and of a huge one no more than that is in memory."""
    file, padding = tmp_path / "x.jsonl", b" " * (LONGEST_ROW - len(LINE.encode()) - 1)
    file.write_bytes(LINE.encode() + padding + b"\n")
    assert file.stat().st_size == LONGEST_ROW and len(read_rows(file, SCHEMA, AGAIN)) == 1
    expected = "line 1: expected a line of at most 1,048,576 bytes, got a longer one"
    assert refusal(file, LINE.encode() + padding + b" \n") == expected
    with file.open("wb") as stream:
        stream.truncate(1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(ArtifactError, match="got a longer one"):
            read_rows(file, SCHEMA, AGAIN)
        assert tracemalloc.get_traced_memory()[1] < 8 * LONGEST_ROW
    finally:
        tracemalloc.stop()


def test_many_rows_take_little_memory(tmp_path: Path) -> None:
    file, number = tmp_path / "x.jsonl", 20_000
    file.write_text(f"{LINE}\n" * number, encoding="utf-8")
    read_rows(file, SCHEMA, AGAIN)  # imports what Arrow needs
    tracemalloc.start()
    try:
        table = read_rows(file, SCHEMA, AGAIN)
        objects = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table) == number and objects < 2 * file.stat().st_size and table.nbytes < file.stat().st_size


@pytest.mark.parametrize("row", [{**ROW, "seconds": float("nan")}, {**ROW, "name": "\ud800"}, {**ROW, "block": None}])
def test_nothing_is_written_that_cannot_be_read(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match=r"x\.jsonl, line 2, cannot be written: .*expected .*, got "):
        write_rows(tmp_path / "x.jsonl", SCHEMA, [ROW, row])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"x\.jsonl: cannot be read \(No such file or directory\)\. Measure again"):
        read_rows(tmp_path / "x.jsonl", SCHEMA, AGAIN)
