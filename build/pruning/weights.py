"""Model weights with some rows of the embedding and the output matrix, copied byte by byte.

Rows are taken from the safetensors files as they are, so every type of number is kept, and quantised matrices, whose
rows are quantised by themselves (``weight``, ``scales``, ``biases``), are not quantised again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spectool import ArtifactError
from spectool.artifacts.container import read_header

_INDEX = "model.safetensors.index.json"
_EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embeddings", "embedding", "embed_in")
_HEADS = ("lm_head", "embed_out", "output")
_PARTS = ("weight", "scales", "biases", "bias")
_FEWEST = 256  # ids of a vocabulary that spells every byte


class Weights(NamedTuple):
    """The weight files of a model, and what of them has a row for every id."""

    files: dict[Path, tuple[dict[str, Any], dict[str, str], int]]  # what `read_header` says of each
    by_id: frozenset[str]  # names of tensors with a row for every id
    rows: int  # their rows

    def size_with(self, rows: int) -> int:
        """Bytes of all tensors if those with a row for every id had this many."""
        sizes = [(name, _bytes(entry)) for entries, *_ in self.files.values() for name, entry in entries.items()]
        return sum(size // self.rows * rows if name in self.by_id else size for name, size in sizes)


def open_weights(directory: Path, config: Mapping[str, Any], ids: int) -> Weights:
    """Find the embedding and the output matrix of a model, which may have more rows than its tokenizer has ``ids``.

    They are known by their names and shapes, which the ``config.json`` in the directory says.

    Raises:
        ArtifactError: There are no safetensors files, one is damaged, or it is not clear whether a tensor, which is
            named, has a row for every id.
    """
    files = {path: read_header(path) for path in sorted(directory.glob("model*.safetensors"))}
    shapes = {name: entry["shape"] for entries, *_ in files.values() for name, entry in entries.items()}
    paths = {name: path for path, (entries, *_) in files.items() for name in entries}
    if not shapes:
        raise ArtifactError(
            f"{directory}: expected model*.safetensors with weights, found none. Give the directory of a model in MLX "
            "format; convert others with `mlx_lm.convert`"
        )
    certain = {name for name in shapes if _owner(name) in ("embed_tokens", "lm_head")}
    sizes = {*_sizes(config)} or {size for name in certain for size in shapes[name][:1]}
    by_id = certain | {name for name, shape in shapes.items() if sizes.intersection(shape[:1])}
    for name in sorted(by_id):
        known = _owner(name) in (*_EMBEDDINGS, *_HEADS) and name.rpartition(".")[2] in _PARTS
        if not known or sizes.isdisjoint(shapes[name][:1]):
            raise ArtifactError(
                f"{paths[name]}: expected the embedding and output matrices ({', '.join((*_EMBEDDINGS, *_HEADS))}), "
                f"and no other tensor, to have {' or '.join(map(str, sorted(sizes)))} rows, one for each id, got "
                f"{name!r} of shape {shapes[name]}. Use the original draft model"
            )
    rows = {shapes[name][0] for name in by_id}
    if len(rows) != 1 or min(rows) < ids or not any(_owner(name) in _EMBEDDINGS for name in by_id):
        found = ", ".join(f"{name} {shapes[name]}" for name in sorted(by_id)) or "none"
        raise ArtifactError(
            f"{directory}: expected an embedding with a row for each of the tokenizer's {ids:,} ids, and an output "
            f"matrix of the same rows or none, found: {found}. Use the original draft model"
        )
    return Weights(files, frozenset(by_id), rows.pop())


def resized(config: Mapping[str, Any], rows: int, ids: int) -> dict[str, Any]:
    """A ``config.json`` that says ``ids`` wherever the size of a vocabulary was ``rows``, or once where nothing was."""

    def changed(node: Any, key: str = "") -> Any:
        if isinstance(node, dict):
            return {name: changed(value, name) for name, value in node.items()}
        return ids if "vocab_size" in key and node == rows else node

    return {**({} if any(_sizes(config)) else {"vocab_size": ids}), **changed(config)}


def write_weights(weights: Weights, kept: Sequence[int], out: Path, copied: Callable[[int], object]) -> None:
    """Write the weight files with the ``kept`` rows of the embedding and output matrices to a directory.

    ``copied`` is called with the bytes of each tensor of the whole model that is done.
    """
    places: dict[str, str] = {}
    for path, (entries, metadata, start) in weights.files.items():
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        end = 0
        for name, entry in entries.items():
            shape, size = entry["shape"], _bytes(entry)
            if name in weights.by_id:
                shape, size = [len(kept), *shape[1:]], size // weights.rows * len(kept)
            header[name] = {"dtype": entry["dtype"], "shape": shape, "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (out / path.name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, entry in entries.items():
                if size := _bytes(entry):
                    data = np.memmap(path, np.uint8, "r", start + entry["data_offsets"][0], (size,))
                    file.write(data.reshape(weights.rows, -1)[kept].data if name in weights.by_id else data.data)
                copied(size)
        places |= dict.fromkeys(entries, path.name)
    if len(weights.files) > 1:
        size = weights.size_with(len(kept))
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
        (out / _INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def _bytes(entry: Mapping[str, Any]) -> int:
    """The size of a tensor."""
    begin, end = entry["data_offsets"]
    return int(end - begin)


def _owner(tensor: str) -> str:
    """The name of the matrix that a tensor is a part of."""
    return tensor.rpartition(".")[0].rpartition(".")[2]


def _sizes(config: Any) -> Iterator[int]:
    """Yield what ``config.json`` calls the size of a vocabulary."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if "vocab_size" in key and type(value) is int and value >= _FEWEST:
            yield value
        yield from _sizes(value)
