"""How the ranks of a group meet: as the same versions, with the same model, and then in passes."""

import json
import os
import sys
import zlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime.groups.watch import Watch, addresses_of_ranks
from spectool.runtime.per_model import once_per_model

_MOST_BYTES = 1 << 20  # that a rank says of itself
_CONFIGURATIONS = ("config.json", "hf_quant_config.json")
_SAMPLES, _SAMPLE_BYTES = 16, 4096  # of a file of weights


@cache
def world() -> Any:
    """All processes of ``mlx.launch`` once they are there, or this one; a SpectoolError if it cannot join them."""
    rank, addresses = os.environ.get("MLX_RANK", ""), addresses_of_ranks()
    names = {str(each): f"rank {each} ({at})" for each, at in enumerate(addresses)}
    if len(names) > 1:  # said beforehand, since MLX lets no other thread run while it waits
        others = ", ".join(name for each, name in names.items() if each != rank)
        print(f"rank {rank} of {len(addresses)} is waiting for {others}", file=sys.stderr, flush=True)
    try:
        return mx.distributed.init()
    except (RuntimeError, ValueError) as error:
        raise SpectoolError(
            f"{names.get(rank, f'rank {rank}')} cannot join the group ({error}). Check that nothing else uses its "
            "address, that no rank was started twice and that the others are running, then start all of them again"
        ) from error


@cache
def joined() -> Watch:
    """The watch over `world`, which has met; RuntimeUnsupported for other versions, or one that cannot reach rank 0."""
    group = world()
    watch = Watch(group.rank(), addresses_of_ranks())
    versions = ", ".join(f"{name} {version(name)}" for name in ("spectool", "mlx", "mlx-lm"))
    met = gathered(watch, versions, watch.listen() if group.rank() == 0 else None)
    for rank, (found, _) in enumerate(met):
        if found != met[0][0]:
            raise RuntimeUnsupported(f"rank {rank} has {found}, and rank 0 {met[0][0]}. Install the same everywhere")
    for rank, (connected,) in enumerate(gathered(watch, group.rank() == 0 or watch.connect(met[0][1]))):
        if not connected:
            at = " or ".join(f"{host}:{port}" for host, port in met[0][1]["addresses"]) or "any address"
            raise RuntimeUnsupported(
                f"{watch.named(rank)} cannot reach rank 0 at {at}. Let the firewall of rank 0 accept connections from "
                "the other machines of the group"
            )
    watch.begin()
    return watch


def gathered(watch: Watch, *own: Any) -> list[list[Any]]:
    """What each rank gives, by rank; as JSON has it. A SpectoolError if one is gone, or computes something else."""
    given = np.frombuffer(json.dumps(own).encode(), np.uint8)
    sizes = _of_each(watch, np.array([given.size]))[:, 0].tolist()
    with suppress(ValueError):
        if max(sizes) <= _MOST_BYTES:
            rows = _of_each(watch, np.pad(given, (0, max(sizes) - given.size)))
            return [json.loads(row[:size].astype(np.uint8).tobytes()) for row, size in zip(rows, sizes, strict=True)]
    raise SpectoolError(
        f"expected a message of each rank, got {sizes} bytes. The ranks but the first have to make no calls of their "
        "own, of mlx-lm or mx.distributed"
    )


def _of_each(watch: Watch, own: NDArray[Any]) -> NDArray[np.int32]:
    """The numbers of each rank [ranks, numbers]: a sum, to which a rank adds its ``own`` row, as long as all others."""
    group = world()
    rows = np.zeros((group.size(), own.size), np.int32)
    rows[group.rank()] = own
    with watch.waiting(meets=True):
        total = mx.distributed.all_sum(mx.array(rows), group=group, stream=mx.cpu)
        mx.eval(total)
    return np.array(total)


def require_same_model(name: str, folder: Path) -> None:
    """Raise `RuntimeUnsupported`, before weights are read, if a rank has other files.

    Files that lack parameters, or have others, are a ValueError, as mlx-lm says it in one process.
    """
    from spectool.runtime.mlx_lm_compat import load_parameters

    watch, weights = joined(), folder.glob("model*.safetensors")
    own = [*weights, *filter(Path.is_file, (folder / each for each in _CONFIGURATIONS))]
    met = gathered(watch, {file.name: _described(file) for file in own})
    for rank, (files,) in enumerate(met):
        for file in sorted({*files, *met[0][0]}):
            if (found := files.get(file, "none")) != (expected := met[0][0].get(file, "none")):
                raise RuntimeUnsupported(
                    f"{name}: {watch.named(rank)} has another {file} than {watch.named(0)} ({found}; {expected}). "
                    "Copy the model from one to all others"
                )
    load_parameters(folder, lazy=True)  # strictly, which `sharded_load` does not do


def require_shareable(name: str, model: Any) -> None:
    """Make a first pass on all ranks; RuntimeUnsupported where they cannot share the heads of the model."""
    from spectool.runtime.mlx_lm_compat import make_prompt_cache

    try:
        mx.eval(model(mx.array([[0]]), cache=make_prompt_cache(model)))
    except ValueError as error:
        raise RuntimeUnsupported(
            f"{name}: cannot be spread over {world().size()} processes ({error}). Its numbers of heads, of keys and "
            "values too, have to be multiples of the number of processes: start fewer, or use --pipeline"
        ) from error


def _described(file: Path) -> str:
    """What has to be alike: of a configuration its content, of weights also names, shapes, size and some samples."""
    if file.suffix == ".json":
        return f"content {zlib.crc32(json.dumps(json.loads(file.read_bytes()), sort_keys=True).encode()):08x}"
    size, digest = file.stat().st_size, 0
    with file.open("rb") as opened:
        header = opened.read(8)
        digest = zlib.crc32(opened.read(min(int.from_bytes(header, "little"), size)))
        begin = opened.tell()
        for sample in range(_SAMPLES):
            opened.seek(begin + (size - begin) * sample // _SAMPLES)
            digest = zlib.crc32(opened.read(_SAMPLE_BYTES), digest)
    return f"{size:,} bytes, content {digest:08x}"


@once_per_model
def group_of(model: Any) -> Any:
    """The group that a model is spread over, inside its layers or layer by layer; None if it is not."""
    if world().size() == 1:
        return None
    for module in model.modules() if hasattr(model, "modules") else ():
        group = getattr(module, "group", None)
        if isinstance(group, mx.distributed.Group) and group.size() > 1:
            return group
        if getattr(module, "pipeline_size", 1) > 1:
            return world()
    return None


def processes_of(model: Any) -> int:
    """Number of processes that a model is spread over; 1 if it is not."""
    group = group_of(model)
    return 1 if group is None else int(group.size())


class Link:
    """What all ranks of a group share about a model that is spread over them."""

    def __init__(self, model: Any) -> None:
        """Meet the other ranks; a RuntimeUnsupported if they have another model."""
        self._model, self._watch = model, joined()
        met = gathered(self._watch, repr(getattr(model, "args", None)))
        for rank, (arguments,) in enumerate(met):
            if arguments != met[0][0]:
                raise RuntimeUnsupported(f"rank {rank} has a model with {arguments}, and rank 0 one with {met[0][0]}")

    def _pass(self, tokens: list[list[int]], cache: Any, logits: bool) -> mx.array:
        """A pass that all ranks compute at the same time."""
        entries = getattr(cache, "entries", cache)
        found: mx.array = self._model(mx.array(tokens, dtype=mx.int32), cache=entries)
        mx.eval(found if logits else [entry.state for entry in entries])
        return found
