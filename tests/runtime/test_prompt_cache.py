"""Prompts saved by mlx-lm: they are continued as from the cache itself, and what is damaged is one clear error."""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, QuantizedKVCache, make_prompt_cache, save_prompt_cache

from spectool import RuntimeUnsupported, SpectoolError
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.prompt_cache import load_prompt_cache
from spectool.tests.runtime.models import KINDS, plain, tiny_model

BEGIN, REST = [7, 8, 9, 7, 8] * 4, [7, 8, 9]


def saved(path: Path, model: Any, max_kv_size: int | None = None) -> Path:
    """Save what mlx-lm's ``cache_prompt`` would, with the model's name."""
    cache = make_prompt_cache(model, max_kv_size)
    for _ in generate_step(mx.array([*BEGIN, 1]), model, max_tokens=1, prompt_cache=cache):
        pass
    save_prompt_cache(str(path), cache, {"model": "m", "tokenizer_config": "{}"})
    return path


def continued(model: Any, cache: list[Any], count: int = 20) -> list[int]:
    steps = generate_step(mx.array(REST), model, max_tokens=count, prompt_cache=cache, num_draft_tokens=0)
    return [token for token, _, _ in steps]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_prompt_is_continued_as_the_whole_text(kind: str, tmp_path: Path) -> None:
    model = tiny_model(kind)
    cache = load_prompt_cache(saved(tmp_path / "a.safetensors", model), model, "m")
    assert continued(model, cache) == plain(model, [*BEGIN, 1, *REST], 20)


def edited(data: bytes, rng: random.Random) -> bytes:
    """A file whose header says something else in one place or two, or whose small arrays have other values."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])
    metadata, arrays = header["__metadata__"], [name for name in header if name != "__metadata__"]
    for _ in range(rng.choice((1, 1, 2))):
        name, key = rng.choice(arrays), rng.choice(sorted(metadata))
        shape, (begin, end) = header[name]["shape"], header[name]["data_offsets"]
        match rng.randrange(5):
            case 0:
                metadata[key] = rng.choice(("", "KVCache", "CacheList", "mx", "scalar", "none", "string", "9.9", "-1"))
            case 1:
                metadata[rng.choice(("1.0", "1.9", "2.0.0", "x", "0"))] = metadata.pop(key)
            case 2:
                header[name]["shape"] = list(reversed(shape))
            case 3 if end - begin == 4:
                body[begin:end] = struct.pack("<i", rng.choice((0, -1, 3, 100, 2**31 - 1, -(2**31))))
            case _:
                other = rng.choice(arrays)
                header[name], header[other] = header[other], header[name]
    written = json.dumps(header).encode()
    return struct.pack("<Q", len(written)) + written + body


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3_5"])
def test_an_edited_file_is_one_clear_error_or_is_continued(kind: str, tmp_path: Path) -> None:
    model, path, rng, refused = tiny_model(kind), tmp_path / "b.safetensors", random.Random(kind), 0
    for max_kv_size in (None, 16):
        whole = saved(tmp_path / "a.safetensors", model, max_kv_size).read_bytes()
        for _ in range(15):
            path.write_bytes(edited(whole, rng))
            try:
                continued(model, load_prompt_cache(path, model, "m"), 12)
            except SpectoolError as error:
                refused += 1
                assert f"{path}: expected a saved prompt of m, got" in str(error)
                assert f"mlx_lm.cache_prompt --model m --prompt-cache-file {path}" in str(error)
    assert refused > 10


def test_what_is_no_saved_prompt_of_this_model_is_refused(tmp_path: Path) -> None:
    model, path = tiny_model(), tmp_path / "a.safetensors"
    saved(path, model)
    pipe, weights, none = tmp_path / "pipe", tmp_path / "w.safetensors", tmp_path / "gone"
    os.mkfifo(pipe)
    model.save_weights(str(weights))

    def damaged(name: str, kind: Callable[[], Any], counts: tuple[int, int], **attributes: Any) -> Path:
        """A file whose layers hold numbers of tokens, the second one with other ``attributes``."""
        layers = [kind(), kind()]
        for layer, count in zip(layers, counts, strict=True):
            layer.update_and_fetch(mx.zeros((1, 1, count, 32)), mx.zeros((1, 1, count, 32)))
        vars(layers[1]).update(attributes)
        save_prompt_cache(str(file := tmp_path / f"{name}.safetensors"), layers)
        return file

    cases = (
        (path, tiny_model(), "other", "got one of m"),
        (path, tiny_model("qwen3_5"), "m", "expected a cache of this model"),
        (damaged("uneven", KVCache, (3, 5)), model, "m", "hold 3 and 5 tokens"),
        (
            damaged("groups", lambda: QuantizedKVCache(32), (3, 3), group_size=0),
            model,
            "m",
            "in groups of 0",
        ),  # would end MLX
        (damaged("short", KVCache, (3, 3), values=mx.zeros((1, 1, 32, 32))), model, "m", "different numbers of tokens"),
        (pipe, model, "m", "no regular file"),
        (none, model, "m", "no regular file"),
        (weights, model, "m", "expected a saved prompt"),
    )
    for file, of, name, message in cases:
        with pytest.raises(RuntimeUnsupported, match=message):
            load_prompt_cache(file, of, name)


def test_the_path_that_a_saved_prompt_names_is_compared_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a stranger's, and lead to another machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "m").symlink_to("real")
    model = tiny_model()
    path = saved(tmp_path / "a.safetensors", model)
    assert load_prompt_cache(path, model, str(tmp_path / "m"))
    with pytest.raises(RuntimeUnsupported, match="got one of m"):
        load_prompt_cache(path, model, "real")
