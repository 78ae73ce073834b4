"""The latest items of responses, which clients may name instead of sending them again."""

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any


class KeptItems:
    """Items that this server has given out, by their ids, which nobody can guess; the latest used last."""

    def __init__(self, most: int = 10_000, most_bytes: int = 64 << 20) -> None:
        """Keep at most ``most`` items, and at most ``most_bytes`` of JSON."""
        self._most, self._most_bytes, self._nbytes = most, most_bytes, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def keep(self, items: Iterable[dict[str, Any]]) -> None:
        """Keep items, and let go of the oldest ones."""
        for item in items:  # which are written on one thread, and read on several
            self._nbytes -= len(self._kept.pop(item["id"], b""))
            self._kept[item["id"]] = written = json.dumps(item).encode()
            self._nbytes += len(written)
        while self._kept and (len(self._kept) > self._most or self._nbytes > self._most_bytes):
            self._nbytes -= len(self._kept.popitem(last=False)[1])

    def get(self, item_id: Any) -> dict[str, Any] | None:
        """The item with this id; None if it is not here, or not any more."""
        try:
            self._kept.move_to_end(item_id)
            item: dict[str, Any] = json.loads(self._kept[item_id])
        except (KeyError, TypeError):  # no text
            return None
        return item
