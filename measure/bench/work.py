"""The folder of a run that is under way: what is finished stays, one process writes, nothing half-written counts.

.RUN.work/key.json         what is measured: a run goes on only with the same
.RUN.work/sizes.json       bytes of weights of the models loaded so far
.RUN.work/block-00012/     the rows of one prompt in every way
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.formats.benchmark import Block, Row, read_block, write_block
from spectool.artifacts.work import read_json, working, write_json

_KEY, _SIZES, _UNFINISHED = "key.json", "sizes.json", "unfinished"
_BLOCKS = "block-*"
ADVICE = "Name another -o, or remove it"


class Work:
    """The folder.

    Attributes:
        path: Where it lies.
    """

    def __init__(self, path: Path) -> None:
        """Work in ``path``; see `open_work`."""
        self.path = path

    @property
    def began(self) -> str:
        """When the run began, ISO 8601."""
        moment = datetime.fromtimestamp((self.path / _KEY).stat().st_mtime, UTC)
        return moment.isoformat(timespec="seconds")

    def folder(self, number: int) -> Path:
        """Return where a block lies."""
        return self.path / f"block-{number:05}"

    def missing(self, blocks: int, say: Callable[[str], object]) -> list[int]:
        """Return the blocks that are to be measured; those that cannot be read are removed, and ``say`` is told."""
        found = []
        for number in range(blocks):
            folder = self.folder(number)
            if folder.exists():
                try:
                    read_block(folder)
                    continue
                except ArtifactError as error:
                    say(f"measuring again: {error}")
                    shutil.rmtree(folder)
            found.append(number)
        return found

    def put(self, number: int, block: Block) -> None:
        """Put a block in its place, all of it or nothing."""
        unfinished = self.path / _UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        write_block(unfinished, block.generations, block.cycles)
        unfinished.rename(self.folder(number))

    def note_sizes(self, sizes: Mapping[str, Mapping[str, Any]]) -> None:
        """Add sizes to those that are known: a resumed run may load no model."""
        known = self.sizes()
        write_json(self.path / _SIZES, {part: {**known[part], **sizes[part]} for part in known})

    def sizes(self) -> dict[str, dict[str, Any]]:
        """Return the sizes that are known: ``sizes`` by model, ``draft_sizes`` by model and drafter."""
        found: dict[str, dict[str, Any]] = read_json(self.path / _SIZES) or {"sizes": {}, "draft_sizes": {}}
        return found


@contextmanager
def open_work(out: Path, identity: Row) -> Iterator[Work]:
    """Give the folder of the run ``out``; removed when the block ends well, and where nothing was measured.

    Raises:
        ArtifactError: Another process measures there, or it holds the beginning of another run.
    """
    with working(out, identity, what="run", worth=(_BLOCKS,), begin_anew=False) as path:
        yield Work(path)
