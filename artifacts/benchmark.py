"""The benchmark format: generations that were timed, and every cycle of theirs. Tables need nothing else.

    generations.parquet   a row for each generation, in the order in which they ran; columns as in `GENERATIONS`
    cycles.parquet        a row for each cycle of each drafted generation; columns as in `CYCLES`
    manifest.json         arguments: the experiment; inputs: prompts; statistics: the machine, times, counts

A *block* is one prompt at one temperature, once in every configuration. These are plain decoding, which is the host's
own loop, and every combination of drafter, strategy and draft length of a model. Their order changes from block to
block. Configurations of one block are compared with each other, so that a busy machine slows all alike.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spectool.artifacts import parquet_rows
from spectool.artifacts.manifest import Artifact

FORMAT = "spectool-benchmark"
VERSION = 3  # 1 had no temperatures: they are read from its manifest; 1 and 2 read prompts before the clock
PLAIN = "plain"  # the drafter of plain decoding
Row: TypeAlias = dict[str, Any]

_CONFIGURATION = {
    "model": pa.string(),  # as the experiment names it
    "drafter": pa.string(),  # likewise; `PLAIN` for plain decoding
    "strategy": pa.string(),  # of translating drafts; null where nothing is translated
    "num_draft_tokens": pa.int32(),  # k; 0 for plain decoding, null for as many as pay
    "temperature": pa.float64(),  # 0: the most probable tokens, which are compared with plain decoding's
}
GENERATIONS = pa.schema(
    {
        "block": pa.int32(),
        "order": pa.int32(),  # place in the block
        "language": pa.string(),  # of the prompt
        "kind": pa.string(),  # of the prompt: encyclopaedic, instruction, question, list, or as a file names it
        "prompt": pa.string(),  # name of the prompt
        "repetition": pa.int32(),
        **_CONFIGURATION,
        "prompt_tokens": pa.int32(),
        "tokens": pa.int32(),  # committed after the prompt
        "passes": pa.int32(),  # of the target, after the prompt
        "drafted_passes": pa.int32(),  # that verified at least one draft token
        "proposed": pa.int32(),
        "accepted": pa.int32(),
        "prompt_seconds": pa.float64(),  # the target reads the prompt, once for the block: equal in all its rows
        "draft_prompt_seconds": pa.float64(),  # the drafter reads it
        "first_token_seconds": pa.float64(),  # the drafter reads it, and the target's first pass; null in older runs
        "seconds": pa.float64(),  # the drafter reads it, and from the first cycle to the last token
        "draft_seconds": pa.float64(),  # of those, in the drafter
        "pass_seconds": pa.float64(),  # of those, in the target's passes
        "joules": pa.float64(),  # over `seconds`; null where nothing measures it
        "peak_memory": pa.int64(),  # bytes that MLX held at most
        "first_difference": pa.int32(),  # tokens equal to plain decoding's before one that is not; null: all, or drawn
        "gap": pa.float64(),  # there, between the two best logits in one pass over all before; null likewise
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


class Benchmark(Artifact):
    """An open run, read when asked for."""

    format, versions, again = FORMAT, (1, 2, VERSION), "Measure the run again"

    @cached_property
    def generations(self) -> pa.Table:
        """All generations, columns as in `GENERATIONS`."""
        return self._rows("generations.parquet")

    @cached_property
    def cycles(self) -> pa.Table:
        """All cycles, columns as in `CYCLES`."""
        return self._rows("cycles.parquet")

    def _rows(self, name: str) -> pa.Table:
        """Read a file; a run of version 1 has one temperature, which its manifest names."""
        schema, version = _FILES[name], self.manifest.version
        lacks: dict[str, float | None] = {} if version == VERSION else {"first_token_seconds": None}
        if version == 1:
            lacks["temperature"] = float(self.manifest.arguments.get("temperature") or 0)
        old = pa.schema([each for each in schema if each.name not in lacks], {"spectool-benchmark": str(version)})
        table = read_rows(self.path / name, old)
        columns = [
            pa.array([lacks[column]] * len(table), pa.float64()) if column in lacks else table[column]
            for column in schema.names
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Compare the sums of cycles with their generations."""
        aggregates = [("proposed", "sum"), ("accepted", "sum"), ("committed", "sum"), ("cycle", "count")]
        summed = self.cycles.group_by(["block", "order"]).aggregate(aggregates).to_pylist()
        sums = {(row.pop("block"), row.pop("order")): tuple(row.values()) for row in summed}
        columns = ["drafter", "block", "order", "proposed", "accepted", "tokens", "passes"]
        for row in self.generations.select(columns).to_pylist():
            drafter, block, order, *counts = row.values()
            if drafter != PLAIN and (found := sums.pop((block, order), (0, 0, 0, 0))) != tuple(counts):
                place = f"block {block}, generation {order}"
                what = "proposed, accepted and committed tokens and passes"
                yield "", f"{place}: its cycles have {found} {what}, expected {tuple(counts)}"
        if sums:
            yield "", f"cycles of {len(sums)} unknown generations"


def write_block(directory: Path, generations: Iterable[Mapping[str, Any]], cycles: Iterable[Mapping[str, Any]]) -> None:
    """Write the two files of some generations into ``directory``, which must exist, down to the disk."""
    for (name, schema), rows in zip(_FILES.items(), (generations, cycles), strict=True):
        with (directory / name).open("wb") as file:
            pq.write_table(pa.Table.from_pylist(list(rows), schema), file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())


def read_block(directory: Path) -> tuple[pa.Table, pa.Table]:
    """Read the generations and the cycles that `write_block` wrote.

    Raises:
        ArtifactError: A file is missing, damaged, or has other columns.
    """
    generations, cycles = (read_rows(directory / name, schema) for name, schema in _FILES.items())
    return generations, cycles


def join_blocks(blocks: Sequence[Path], out: Path) -> None:
    """Write the two files of all ``blocks`` into ``out``, one block after the other.

    Raises:
        ArtifactError: As `read_block`.
    """
    for name, schema in _FILES.items():
        with pq.ParquetWriter(out / name, schema, compression="zstd") as writer:
            for block in blocks:
                writer.write_table(read_rows(block / name, schema))


def read_rows(file: Path, schema: pa.Schema) -> pa.Table:
    """Read one of the files.

    Raises:
        ArtifactError: It is missing, damaged, or has other columns.
    """
    return parquet_rows.read_rows(file, schema, "Copy or measure the run again")
