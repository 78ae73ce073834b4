"""The benchmark format: generations that were timed, and every cycle of theirs. Tables need nothing else.

    generations.parquet   a row for each generation, in the order in which they ran; columns as in `GENERATIONS`
    cycles.parquet        a row for each cycle of each drafted generation; columns as in `CYCLES`
    manifest.json         arguments: the experiment; inputs: prompts; statistics: the machine, times, counts

A *block* is one prompt, once in every way: plain decoding, which is the host's own loop, and every combination of
drafter, strategy and draft length of a model, in an order that changes from block to block. Ways of one block are
compared with each other, so that a busy machine slows all alike.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spectool import ArtifactError
from spectool.artifacts.manifest import Manifest, expect_format, read_manifest, verify_files

FORMAT = "spectool-benchmark"
VERSION = 1
PLAIN = "plain"  # the drafter of plain decoding
Row: TypeAlias = dict[str, Any]

WAY = {
    "model": pa.string(),  # as the experiment names it
    "drafter": pa.string(),  # likewise; `PLAIN` for plain decoding
    "strategy": pa.string(),  # of translating drafts; null where nothing is translated
    "num_draft_tokens": pa.int32(),  # k; 0 for plain decoding, null for as many as pay
}
GENERATIONS = pa.schema(
    {
        "block": pa.int32(),
        "order": pa.int32(),  # place in the block
        "language": pa.string(),  # of the prompt
        "kind": pa.string(),  # of the prompt: encyclopaedic, instruction, question, list, or as a file names it
        "prompt": pa.string(),  # name of the prompt
        "repetition": pa.int32(),
        **WAY,
        "prompt_tokens": pa.int32(),
        "tokens": pa.int32(),  # committed after the prompt
        "passes": pa.int32(),  # of the target, after the prompt
        "drafted_passes": pa.int32(),  # that verified at least one draft token
        "proposed": pa.int32(),
        "accepted": pa.int32(),
        "prompt_seconds": pa.float64(),  # before the first cycle: drafter and target read the prompt
        "seconds": pa.float64(),  # from the first cycle to the last token
        "draft_seconds": pa.float64(),  # of those, in the drafter
        "pass_seconds": pa.float64(),  # of those, in the target's passes
        "joules": pa.float64(),  # over `seconds`; null where nothing tells
        "peak_memory": pa.int64(),  # bytes that MLX held at most
        "first_difference": pa.int32(),  # tokens that are plain decoding's before one that is not; null if all are
        "gap": pa.float64(),  # there, between the two best log-probabilities of a single step; null likewise
        "output": pa.list_(pa.field("element", pa.int32())),  # token ids
    },
    {"spectool-benchmark": str(VERSION)},
)
CYCLES = pa.schema(
    {
        "block": pa.int32(),
        "order": pa.int32(),
        "cycle": pa.int32(),  # from 0
        "position": pa.int32(),  # tokens committed before it
        "source": pa.string(),  # of the drafts; empty for a pass without
        "proposed": pa.int32(),
        "accepted": pa.int32(),
        "committed": pa.int32(),
        "draft_seconds": pa.float64(),
        "pass_seconds": pa.float64(),
        "seconds": pa.float64(),  # from the end of the cycle before
    },
    {"spectool-benchmark": str(VERSION)},
)
_FILES = {"generations.parquet": GENERATIONS, "cycles.parquet": CYCLES}


@dataclass(frozen=True, slots=True)
class Block:
    """What was measured together."""

    generations: list[Row]
    cycles: list[Row]


class Benchmark:
    """An open run, read when asked for.

    Attributes:
        path: Its directory.
        manifest: Its manifest.
    """

    def __init__(self, path: Path) -> None:
        """Open the run at ``path``.

        Raises:
            ArtifactError: Not a whole run of this version.
        """
        self.path = path
        self.manifest: Manifest = read_manifest(path)
        expect_format(path, self.manifest, FORMAT, VERSION, ())

    @cached_property
    def generations(self) -> pa.Table:
        """All generations, columns as in `GENERATIONS`."""
        return read_rows(self.path / "generations.parquet", GENERATIONS)

    @cached_property
    def cycles(self) -> pa.Table:
        """All cycles, columns as in `CYCLES`."""
        return read_rows(self.path / "cycles.parquet", CYCLES)

    def verify(self) -> None:
        """Compare all hashes, and the sums of cycles with their generations.

        Raises:
            ArtifactError: Something differs.
        """
        verify_files(self.path, self.manifest)
        sums: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        for cycle in self.cycles.to_pylist():
            counted = ("proposed", "accepted", "committed")
            sums[cycle["block"], cycle["order"]].update({"passes": 1, **{name: cycle[name] for name in counted}})
        for row in self.generations.to_pylist():
            if row["drafter"] == PLAIN:
                continue
            found = sums.pop((row["block"], row["order"]), Counter())
            expected = {name: row[name] for name in ("passes", "proposed", "accepted")} | {"committed": row["tokens"]}
            if found != Counter(expected):
                place = f"block {row['block']}, generation {row['order']}"
                raise ArtifactError(
                    f"{self.path}: {place}: its cycles have {dict(found)}, expected {expected}. Measure the run again"
                )
        if sums:
            raise ArtifactError(
                f"{self.path}: cycles of {len(sums)} generations that are not there. Measure the run again"
            )


def write_block(directory: Path, generations: Iterable[Mapping[str, Any]], cycles: Iterable[Mapping[str, Any]]) -> None:
    """Write the two files of some generations into ``directory``, which must exist."""
    for (name, schema), rows in zip(_FILES.items(), (generations, cycles), strict=True):
        pq.write_table(pa.Table.from_pylist(list(rows), schema), directory / name, compression="zstd")


def read_block(directory: Path) -> Block:
    """Read what `write_block` wrote.

    Raises:
        ArtifactError: A file is missing, damaged, or has other columns.
    """
    return Block(*(read_rows(directory / name, schema).to_pylist() for name, schema in _FILES.items()))


def read_rows(file: Path, schema: pa.Schema) -> pa.Table:
    """Read one of the files.

    Raises:
        ArtifactError: It is missing, damaged, or has other columns.
    """
    try:
        table = pq.read_table(file, memory_map=False, partitioning=None)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ArtifactError(f"{file}: not a readable Parquet file ({reason}). Copy or measure the run again") from error
    if not table.schema.equals(schema, check_metadata=True):
        raise ArtifactError(f"{file}: columns {table.schema.names}, expected {schema.names}. Measure the run again")
    return table
