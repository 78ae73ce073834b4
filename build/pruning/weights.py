"""Model weights with some rows of the embedding and the output matrix, copied byte by byte.

Rows are taken from the safetensors files as they are, so every type of number is kept, and quantised matrices, whose
rows are quantised by themselves (``weight``, ``scales``, ``biases``), are not quantised again.

    file     8 bytes: length of the header, then the header (JSON), then the numbers of all tensors
    header   name -> {"dtype", "shape", "data_offsets": [begin, end]}, counted from the end of the header
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spectool import ArtifactError

INDEX = "model.safetensors.index.json"
_EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embeddings", "embedding", "embed_in")
_HEADS = ("lm_head", "embed_out", "output")
_PARTS = ("weight", "scales", "biases", "bias")
_FEWEST = 256  # ids of a vocabulary that spells every byte
_LONGEST_HEADER = 100_000_000  # bytes, as in the safetensors library
_BLOCK = 1 << 24  # bytes


class Tensor(NamedTuple):
    """Where a tensor is in its file."""

    entry: dict[str, Any]  # dtype and shape, as in the header
    begin: int  # bytes from the beginning of the file
    size: int  # bytes


class Weights(NamedTuple):
    """The weight files of a model, and what of them has a row for every id."""

    files: dict[Path, tuple[dict[str, Tensor], dict[str, Any]]]  # tensors by name, and the metadata of the header
    by_id: frozenset[str]  # names of tensors with a row for every id
    rows: int  # their rows

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensors, _ in self.files.values() for tensor in tensors.values())


def open_weights(directory: Path, config: Mapping[str, Any], ids: int) -> Weights:
    """Find the embedding and the output matrix of a model by their names and shapes.

    Args:
        directory: Of the model.
        config: Its ``config.json``.
        ids: Number of ids of its tokenizer; the matrices may have more rows.

    Raises:
        ArtifactError: There are no safetensors files, one is damaged, or it is not clear whether a tensor, which is
            named, has a row for every id.
    """
    files = {path: _read_header(path) for path in sorted(directory.glob("model*.safetensors"))}
    tensors = {name: (path, tensor) for path, (found, _) in files.items() for name, tensor in found.items()}
    if not tensors:
        raise ArtifactError(
            f"{directory}: expected model*.safetensors with weights, found none. Give the directory of a model in MLX "
            "format; convert others with `mlx_lm.convert`"
        )
    sizes = set(_sizes(config))
    by_id, rows = set(), set()
    for name, (path, tensor) in tensors.items():
        *_, owner, part = ["", *name.split(".")]
        shape = tensor.entry["shape"]
        certain, known = owner in ("embed_tokens", "lm_head"), owner in (*_EMBEDDINGS, *_HEADS)
        if not certain and not (shape and shape[0] in sizes):
            continue
        if not known or part not in _PARTS or not shape or (sizes and shape[0] not in sizes):
            raise ArtifactError(
                f"{path}: it is not clear whether tensor {name!r} of shape {shape} has a row for every id. Expected "
                f"an embedding or output matrix ({', '.join((*_EMBEDDINGS, *_HEADS))}) of "
                f"{' or '.join(map(str, sorted(sizes))) or 'as many rows as ids'} rows, as config.json says, and no "
                "other tensor of that many rows. Use the draft model as it is"
            )
        by_id.add(name)
        rows.add(shape[0])
    if len(rows) != 1 or min(rows) < ids or not any(name.split(".")[-2] in _EMBEDDINGS for name in by_id):
        found = ", ".join(f"{name} {tensors[name][1].entry['shape']}" for name in sorted(by_id)) or "none"
        raise ArtifactError(
            f"{directory}: expected an embedding with a row for each of the tokenizer's {ids:,} ids, and an output "
            f"matrix of the same rows or none, found: {found}. Use the draft model as it is"
        )
    return Weights(files, frozenset(by_id), rows.pop())


def with_size(config: Any, rows: int, ids: int) -> Any:
    """A ``config.json`` that says ``ids`` wherever the size of a vocabulary was ``rows``."""
    if not isinstance(config, dict):
        return config
    return {
        key: ids if "vocab_size" in key and value == rows else with_size(value, rows, ids)
        for key, value in config.items()
    }


def write_rows(
    weights: Weights, rows: Sequence[int], out: Path, copied: Callable[[int], object] = lambda size: None
) -> int:
    """Write the weight files with these rows of the embedding and output matrices to a directory.

    ``copied`` is called with the number of bytes of the whole model that were gone through since the last call.

    Returns:
        Bytes of all tensors.
    """
    kept, total = np.asarray(rows), 0
    places: dict[str, str] = {}
    for path, (tensors, metadata) in weights.files.items():
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        end = 0
        for name, tensor in tensors.items():
            entry, size = dict(tensor.entry), tensor.size
            if name in weights.by_id:
                entry["shape"] = [len(kept), *entry["shape"][1:]]
                size = size // weights.rows * len(kept)
            header[name] = entry | {"data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (out / path.name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, tensor in tensors.items():
                for block in _blocks(path, tensor, weights.rows, kept if name in weights.by_id else None):
                    file.write(block.data)
                copied(tensor.size)
        places |= dict.fromkeys(tensors, path.name)
        total += end
    if len(weights.files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (out / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return total


def _blocks(path: Path, tensor: Tensor, rows: int, kept: NDArray[np.int64] | None) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a tensor, or of some of its rows."""
    if not tensor.size:
        return
    data = np.memmap(path, np.uint8, "r", tensor.begin, (tensor.size,))
    if kept is None:
        for begin in range(0, tensor.size, _BLOCK):
            yield data[begin : begin + _BLOCK]
        return
    matrix = data.reshape(rows, -1)
    step = max(1, _BLOCK // matrix.shape[1])
    for begin in range(0, len(kept), step):
        yield matrix[kept[begin : begin + step]]


def _read_header(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 0 < size <= min(length - 8, _LONGEST_HEADER):
                raise ValueError(f"a header of {size:,} bytes in {length:,}")
            header = json.loads(file.read(size))
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, entry in header.items():
            begin, end = entry.pop("data_offsets")
            if not 0 <= begin <= end <= length - 8 - size:
                raise ValueError(f"{name} ends after the file")
            tensors[name] = Tensor({"dtype": entry["dtype"], "shape": entry["shape"]}, 8 + size + begin, end - begin)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path}: not a whole safetensors file ({error}). Download or convert it again") from error
    return tensors, metadata


def _sizes(config: Any) -> Iterator[int]:
    """Yield what ``config.json`` calls the size of a vocabulary."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if "vocab_size" in key and type(value) is int and value >= _FEWEST:
            yield value
        yield from _sizes(value)
