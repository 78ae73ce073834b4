"""A reader of llama.cpp's lookup caches, apart from the writer."""

import struct
from collections.abc import Iterator
from pathlib import Path


def read_cache(path: Path) -> Iterator[tuple[tuple[int, ...], dict[int, int]]]:
    """Each n-gram and its followers; the file must end after the last one."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        *tokens, followers = struct.unpack_from("<5i", data, at)
        values = struct.unpack_from(f"<{2 * followers}i", data, at + 20)
        yield tuple(token for token in tokens if token != -1), dict(zip(values[::2], values[1::2], strict=True))
        at += 20 + 8 * followers
