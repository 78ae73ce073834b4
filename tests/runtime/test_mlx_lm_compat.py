"""mlx-lm's internals: which names we rely on, and that one place knows them."""

import ast
import inspect
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx_lm
import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("artifacts", "build", "corpora", "measure", "runtime", "serve")
COMPAT = ROOT / "runtime" / "mlx_lm_compat"

# Parameters and attributes that we use, beyond the names that `runtime/mlx_lm_compat` imports.
PARAMETERS = {
    "generate.maybe_quantize_kv_cache": "prompt_cache quantized_kv_start kv_group_size kv_bits",
    "generate.wired_limit": "model streams",
    "sample_utils.categorical_sampling": "logits temp",
    "sample_utils.apply_top_p": "logprobs top_p",
    "sample_utils.apply_min_p": "logprobs min_p min_tokens_to_keep",
    "sample_utils.apply_top_k": "logprobs top_k",
    "sample_utils.apply_xtc": "logits xtc_probability xtc_threshold xtc_special_tokens",
    "utils.sharded_load": "repo pipeline_group tensor_group return_config tokenizer_config trust_remote_code",
    "utils.load_model": "model_path lazy strict",
    "models.cache.make_prompt_cache": "model max_kv_size",
}
ATTRIBUTES = {
    "tokenizer_utils.TokenizerWrapper": "has_tool_calling tool_call_start tool_call_end tool_parser "
    "has_thinking think_start think_end structural_markers",
    "models.cache.RotatingKVCache": "make_mask is_trimmable trim",
}
FOLLOWS = {  # who follows what, by the name's beginning; the folder `runtime/mlx_lm_compat` follows the rest
    "models.cache": "runtime/caches",
    "sample_utils": "runtime/sampling/samplers.py",
    "tokenizer_utils": "serve/call_forms.py",
}
# What is followed beyond names: the CRC-32 of its source.
FOLLOWED = {
    "models.cache.KVCache": 4150954462,
    "models.cache.QuantizedKVCache": 2306633309,
    "models.cache.RotatingKVCache": 4190271217,
    "models.cache.ChunkedKVCache": 1320505813,
    "models.cache.ArraysCache": 4150677104,
    "models.cache.CacheList": 1964734961,
    "models.cache.create_attention_mask": 2165890806,
    "models.base.create_attention_mask": 2134014562,
    "models.phi3small.Attention": 1862802177,
    "models.rope_utils.DynamicNTKScalingRoPE": 63408850,
    "sample_utils.make_sampler": 3290956602,
    "sample_utils.make_logits_processors": 3818929173,
    "tokenizer_utils._infer_tool_parser": 3204308920,
}


def found(name: str) -> object:
    module, _, member = name.rpartition(".")
    return getattr(import_module(f"mlx_lm.{module}"), member)


def imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules of mlx-lm that a file imports from, and the names."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mlx_lm":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "mlx_lm")


def test_one_place_knows_the_internals() -> None:
    public = {("mlx_lm", ""), *(("mlx_lm", name) for name in mlx_lm.__all__)}
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py") if file.parent != COMPAT]
    wrong = [f"{file.relative_to(ROOT)}: {used}" for file in files for used in imports(file) if used not in public]
    assert not wrong
    assert ("mlx_lm.generate", "wired_limit") in {used for file in COMPAT.glob("*.py") for used in imports(file)}


@pytest.mark.parametrize("name", PARAMETERS | ATTRIBUTES)
def test_parameters_and_attributes_that_we_use_are_there(name: str) -> None:
    function: Any = found(name)
    expected = PARAMETERS.get(name, "").split()
    assert not expected or list(inspect.signature(function).parameters)[: len(expected)] == expected
    assert not [attribute for attribute in ATTRIBUTES.get(name, "").split() if not hasattr(function, attribute)]


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_followed_has_not_changed(name: str) -> None:
    digest = zlib.crc32(inspect.getsource(found(name)).encode())  # type: ignore[arg-type]
    follower = next((who for begin, who in FOLLOWS.items() if name.startswith(begin)), "runtime/mlx_lm_compat")
    assert digest == FOLLOWED[name], f"mlx-lm has changed {name}: read it, adapt {follower}, note {digest}"


def test_the_version_is_the_one_that_is_tested() -> None:
    assert mlx_lm.__version__.startswith("0.32.")
