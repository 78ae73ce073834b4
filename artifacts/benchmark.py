"""The benchmark format: timed generations and their cycles, which is all that tables need.

    generations.jsonl   a row for each generation, in the order in which they ran; fields as in `GENERATIONS`
    cycles.jsonl        a row for each cycle of each drafted generation; fields as in `CYCLES`
    manifest.json       arguments: the experiment; inputs: prompts; statistics: the machine, times, counts

A *block* is one prompt at one temperature, generated once in every configuration: plain decoding, which is mlx-lm's own
loop, and every combination of drafter and draft length of a model. The order of configurations changes from
block to block. They are compared within a block, because a busy machine slows all of them alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spectool.artifacts import json_lines
from spectool.artifacts.artifact import Artifact

PLAIN = "plain"  # the drafter of plain decoding
MOST_DRAFT_TOKENS = 64  # in a cycle
MOST_TOKENS = 1 << 16  # of an output: their ids fit on a line
Row: TypeAlias = dict[str, Any]

_NULLABLE = ("strategy", "num_draft_tokens", "first_difference", "gap")


def _schema(types: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, name in _NULLABLE) for name, kind in types.items()])


_CONFIGURATION = {
    "model": pa.string(),  # as the experiment names it
    "drafter": pa.string(),  # likewise; `PLAIN` for plain decoding
    "strategy": pa.string(),  # how drafts were translated in older runs; null in new ones
    "num_draft_tokens": pa.int32(),  # k; 0 for plain decoding, null for as many as pay
    "temperature": pa.float64(),  # 0: the most probable tokens, which are compared with plain decoding's
}
GENERATIONS = _schema(
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
        "first_token_seconds": pa.float64(),  # the drafter reads it, and the target's first pass
        "seconds": pa.float64(),  # the drafter reads it, and from the first cycle to the last token
        "draft_seconds": pa.float64(),  # of those, in the drafter
        "pass_seconds": pa.float64(),  # of those, in the target's passes
        "peak_memory": pa.int64(),  # bytes that MLX held at most
        "first_difference": pa.int32(),  # tokens equal to plain decoding's before one that is not; null: all, or drawn
        "gap": pa.float64(),  # there, between the two best logits in one pass over all before; null likewise
        "output": pa.list_(pa.field("element", pa.int32())),  # token ids
    }
)
CYCLES = _schema(
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
    }
)
_SHORTEST = 1e-9  # seconds that decoding takes at least: speeds stay finite
_FILES = {"generations.jsonl": GENERATIONS, "cycles.jsonl": CYCLES}


@dataclass(frozen=True, slots=True)
class MeasuredBlock:
    """The rows of one block."""

    generations: list[Row]
    cycles: list[Row]


class Benchmark(Artifact):
    """An open run, whose tables are read when needed."""

    format, version, again = "spectool-benchmark", 5, "Measure the run again"

    @cached_property
    def generations(self) -> pa.Table:
        """All generations, columns as in `GENERATIONS`."""
        return _read_rows(self._file("generations.jsonl"))

    @cached_property
    def cycles(self) -> pa.Table:
        """All cycles, columns as in `CYCLES`."""
        return _read_rows(self._file("cycles.jsonl"))

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Impossible figures, and generations that differ from the sums of their cycles."""
        proposed = pc.field("proposed")
        wrong = self.cycles.filter((pc.field("accepted") > proposed) | (proposed > MOST_DRAFT_TOKENS))
        for row in wrong.slice(0, 1).to_pylist():
            place = f"block {row['block']}, generation {row['order']}, cycle {row['cycle']}"
            got = f"{row['proposed']} proposed and {row['accepted']} accepted"
            yield (
                "cycles.jsonl",
                f"{place}: expected at most {MOST_DRAFT_TOKENS} draft tokens proposed, all accepted at most, got {got}",
            )
        aggregates = [("proposed", "sum"), ("accepted", "sum"), ("committed", "sum"), ("cycle", "count")]
        summed = self.cycles.group_by(["block", "order"]).aggregate(aggregates).to_pylist()
        sums = {(row.pop("block"), row.pop("order")): tuple(row.values()) for row in summed}
        counted = ["proposed", "accepted", "tokens", "passes"]
        columns = ["block", "order", "model", "drafter", "num_draft_tokens", "seconds", "draft_prompt_seconds"]
        seen = set[tuple[Any, ...]]()
        for row in self.generations.select([*columns, *counted]).to_pylist():
            block, order, model, drafter, k, seconds, reading, *counts = row.values()
            place = f"block {block}, generation {order}"
            names = [(block, order), (block, model, PLAIN)] if drafter == PLAIN else [(block, order)]
            if not seen.isdisjoint(names):
                yield "generations.jsonl", f"{place}: expected it once, with plain decoding once a block, got it twice"
            seen.update(names)
            if not row["tokens"] or not row["passes"] or seconds - reading < _SHORTEST:
                got = f"{row['tokens']} in {row['passes']} passes and {seconds - reading:g} seconds"
                yield "generations.jsonl", f"{place}: expected tokens that took passes and time, got {got}"
            if k is not None and not (drafter != PLAIN) <= k <= MOST_DRAFT_TOKENS:
                problem = f"{place}: expected 1 to {MOST_DRAFT_TOKENS} num_draft_tokens or null, got {k}"
                yield "generations.jsonl", problem
            if drafter != PLAIN and (found := sums.pop((block, order), (0, 0, 0, 0))) != tuple(counts):
                what = "proposed, accepted and committed tokens and passes"
                yield "", f"{place}: its cycles have {found} {what}, expected {tuple(counts)}"
        if sums:
            yield "", f"cycles of {len(sums)} unknown generations"


def write_block(directory: Path, generations: Iterable[Mapping[str, Any]], cycles: Iterable[Mapping[str, Any]]) -> None:
    """Write the two files of some generations into an existing directory, and flush them to the disk.

    Raises:
        ArtifactError: A value does not fit its column.
    """
    for (name, schema), rows in zip(_FILES.items(), (generations, cycles), strict=True):
        json_lines.write_rows(directory / name, schema, rows)


def read_block(directory: Path) -> tuple[pa.Table, pa.Table]:
    """The generations and the cycles that `write_block` or `join_blocks` wrote.

    Raises:
        ArtifactError: A file is missing, damaged, or has other fields.
    """
    generations, cycles = (_read_rows(directory / name) for name in _FILES)
    return generations, cycles


def join_blocks(blocks: Sequence[Path], out: Path) -> None:
    """Write the two files of all blocks, one after the other, into ``out``, and flush them to the disk."""
    for name in _FILES:
        with json_lines.synced(out / name) as stream:
            for block in blocks:
                stream.write((block / name).read_bytes())


def _read_rows(file: Path) -> pa.Table:
    return json_lines.read_rows(file, _FILES[file.name], "Copy or measure the run again")
