"""Whether all ranks load the same model, whole, and can share it."""

import json
import zlib
from pathlib import Path
from typing import Any

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime import mlx_lm_compat
from spectool.runtime.groups.meeting import Meeting, joined, world

_CONFIGURATIONS = ("config.json", "hf_quant_config.json")
_SAMPLES, _SAMPLE_BYTES = 16, 4096  # of a file of weights


def require_same_model(name: str, folder: Path) -> None:
    """Raise `RuntimeUnsupported`, before weights are read, if a rank has other files.

    Files that lack parameters, or have others, are a ValueError, as mlx-lm says it in one process.
    """
    watch, weights = joined(), folder.glob("model*.safetensors")
    own = [*weights, *filter(Path.is_file, (folder / each for each in _CONFIGURATIONS))]
    met = Meeting(world(), watch).gathered({file.name: _described(file) for file in own})
    for rank, (files,) in enumerate(met):
        for file in sorted({*files, *met[0][0]}):
            if (found := files.get(file, "none")) != (expected := met[0][0].get(file, "none")):
                raise RuntimeUnsupported(
                    f"{name}: {watch.named(rank)} has another {file} than {watch.named(0)} ({found}; {expected}). "
                    "Copy the model from one to all others"
                )
    mlx_lm_compat.load_parameters(folder, lazy=True)  # strictly, which `sharded_load` does not do


def require_shareable(name: str, model: Any) -> None:
    """Make a first pass on all ranks; RuntimeUnsupported where they cannot share the heads of the model."""
    try:
        mx.eval(model(mx.array([[0]]), cache=mlx_lm_compat.make_prompt_cache(model)))
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
