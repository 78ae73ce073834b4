"""Changes of JSON Lines that keep to the format, or leave it in one place: values, fields, lines."""

import json
import random
from typing import Any

from spectool.tests.artifacts import hostile

_VALUES = (
    0,
    1,
    2,
    -1,
    63,
    65,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    0.5,
    5e-324,
    1e-9,
    1e15,
    1e300,
    True,
    None,
    "",
    "plain",
)


def _parsed(data: bytes) -> list[Any]:
    """Parse what may have been changed before; nothing where that is no longer possible."""
    try:
        return [json.loads(line) for line in data.splitlines()]
    except (ValueError, RecursionError):
        return []


def _joined(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def change_value(data: bytes, rng: random.Random) -> bytes:
    """Change a field in one row, or in all of them."""
    rows = [row for row in _parsed(data) if isinstance(row, dict) and row]
    if not rows:
        return data
    field = rng.choice(sorted(rows[0]))
    value = rng.choice([*_VALUES, *(row.get(field) for row in rng.choices(rows, k=9))])
    for row in rows if rng.random() < 0.3 else [rng.choice(rows)]:
        row[field] = value
    return _joined(rows)


def change_line(data: bytes, rng: random.Random) -> bytes:
    """Drop, rename or replace a field of one row by something wild."""
    lines = data.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    if any(isinstance(row, dict) and row for row in _parsed(lines[place])):
        lines[place] = hostile.change_manifest(lines[place].decode(), rng).encode() + b"\n"
    return b"".join(lines)


def move_lines(data: bytes, rng: random.Random) -> bytes:
    """Repeat, drop or swap lines, or leave out the end of one."""
    lines = data.splitlines(keepends=True)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            lines.insert(other, lines[one])
        case 1:
            del lines[one]
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case 3:
            lines[one] = lines[one].rstrip(b"\n")
        case _ if len(data) < 1 << 24:  # other changes may have made it large
            lines = lines[: one + 1] * rng.choice([1, 2, 30])
    return b"".join(lines)


def lengthen(data: bytes, rng: random.Random) -> bytes:
    """Put a very long line, or a run of empty ones, between two others."""
    place = data.find(b"\n", rng.randrange(len(data))) + 1
    long = rng.choice([b" ", b"[", b"9", b'"', b"{}", b"\n"]) * rng.choice([1 << 10, 1 << 20, 1 << 21])
    return data[:place] + long + data[place:]


CHANGES = (change_value, change_value, change_value, change_line, move_lines, lengthen)
