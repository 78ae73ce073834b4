"""Tiny mlx-lm models with seeded random weights, and plain decoding to compare with."""

import importlib
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path
from mlx_lm.generate import generate_step

from spectool.runtime.decoding.generation import generate_step as spectool_step

COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": COMMON,
    "qwen2": COMMON,
    "qwen3": {**COMMON, "head_dim": 32, "max_position_embeddings": 4096, "rope_theta": 1e6},
    # Every second layer has a window of 48 tokens.
    "gemma3_text": {**COMMON, "head_dim": 32, "sliding_window": 48, "sliding_window_pattern": 2},
    "ministral3": {
        **COMMON,
        "head_dim": 32,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4096},
    },
    # Three of four layers see chunks of 24 tokens.
    "llama4": {
        "text_config": {
            **COMMON,
            "model_type": "llama4_text",
            "num_hidden_layers": 4,
            "head_dim": 32,
            "attention_bias": False,
            "attention_chunk_size": 24,
            "interleave_moe_layer_step": 4,
            "intermediate_size_mlp": 128,
            "max_position_embeddings": 4096,
            "num_experts_per_tok": 1,
            "num_local_experts": 2,
            "rope_scaling": None,
            "rope_theta": 1e4,
            "use_qk_norm": True,
            "vocab_size": 256,
        }
    },
    # Every second layer is recurrent.
    "qwen3_5": {
        **COMMON,
        "head_dim": 32,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "full_attention_interval": 2,
    },
    # Every layer is recurrent and has attention, too.
    "falcon_h1": {
        **COMMON,
        "head_dim": 32,
        "mamba_d_head": 16,
        "mamba_d_ssm": 64,
        "mamba_d_state": 16,
        "mamba_n_heads": 4,
        "ssm_multipliers": [1.0] * 5,
        "embedding_multiplier": 1.0,
        "lm_head_multiplier": 1.0,
        "key_multiplier": 1.0,
        "ssm_in_multiplier": 1.0,
        "ssm_out_multiplier": 1.0,
    },
    "mamba2": {
        "num_heads": 4,
        "head_dim": 16,
        "hidden_size": 32,
        "intermediate_size": 64,
        "state_size": 16,
        "num_hidden_layers": 2,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": (0.0, 1e9),
        "time_step_rank": "auto",
    },
    # The first layer has no attention, and a cache that stays empty.
    "nemotron-nas": {
        **COMMON,
        "num_attention_heads": 2,
        "block_configs": [
            {
                "attention": {"no_op": False, "replace_with_linear": not heads, "n_heads_in_group": heads},
                "ffn": {"no_op": False, "replace_with_linear": False, "ffn_mult": 1.5},
            }
            for heads in (None, 2)
        ],
    },
    # Latent attention: a pass over one token computes it in another way, and a quantised cache cannot be read.
    "deepseek_v3": {
        **COMMON,
        "num_key_value_heads": 2,
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "moe_intermediate_size": 64,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
    },
}
# Models that cannot write several texts in one pass.
LONE: dict[str, dict[str, Any]] = {
    # Recurrent layers that take padding for tokens; the second one does so only in a part of its state.
    "mamba": {
        **COMMON,
        "state_size": 8,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
        "tie_word_embeddings": True,
    },
    "nemotron_h": {
        **COMMON,
        "hybrid_override_pattern": "M*",
        "head_dim": 32,
        "layer_norm_epsilon": 1e-5,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "conv_kernel": 4,
        "attention_bias": False,
        "mamba_proj_bias": False,
        "use_bias": False,
        "use_conv_bias": True,
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "time_step_limit": (0.0, 1e9),
    },
    # Once a text is longer than 64 tokens, positions depend on how many tokens a pass has.
    "internlm2": {**COMMON, "max_position_embeddings": 64, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    # One cache for each layer, of a class of its own: a window, groups of tokens, and the last group while it is open.
    "deepseek_v41": {
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "head_dim": 64,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 32,
        "o_groups": 2,
        "o_lora_rank": 16,
        "moe_intermediate_size": 64,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-6,
        "sliding_window": 24,
        "compress_ratios": [0, 4, 4],
        "kv_source_layer_ids": [1],
        "index_source_layer_ids": [1],
        "index_n_heads": 2,
        "index_head_dim": 32,
        "index_topk": 4,
        "hc_mult": 2,
    },
    # Groups of heads are an axis of its scores, so that a mask of rows would fit two of them.
    "gemma2": {**COMMON, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2},
}


def tiny_model(
    kind: str = "llama", *, seed: int = 0, vocabulary: int = 256, bits: int | None = None, scale: float = 1.5
) -> Any:
    """Return a random model of mlx-lm's class ``kind``; ``scale`` widens weights so that outputs vary."""
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    args = module.ModelArgs.from_dict({"model_type": kind, "vocab_size": vocabulary, **{**KINDS, **LONE}[kind]})
    mx.random.seed(seed)
    model = module.Model(args)

    def widen(path: str, weight: mx.array) -> mx.array:
        return weight * scale if weight.ndim == 2 and "embed" not in path else weight

    model.update(tree_map_with_path(widen, model.parameters()))
    if bits is not None:
        nn.quantize(model, group_size=32, bits=bits)
    model.eval()
    mx.eval(model.parameters())
    return model


def perturbed(model: Any, *, kind: str = "llama", vocabulary: int = 256, noise: float = 0.1, seed: int = 1) -> Any:
    """Return ``model``, float32, with a little noise in its weights: a draft that is partly right."""
    copy = tiny_model(kind, vocabulary=vocabulary)
    key = mx.random.key(seed)

    def shake(path: str, weight: mx.array) -> mx.array:
        nonlocal key
        key, now = mx.random.split(key)
        return weight + noise * mx.std(weight) * mx.random.normal(weight.shape, key=now)

    copy.update(tree_map_with_path(shake, model.parameters()))
    mx.eval(copy.parameters())
    return copy


def plain(model: Any, prompt: list[int], count: int, **options: Any) -> list[int]:
    """Return ``count`` tokens of mlx-lm's own loop."""
    return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=count, **options)]


def drafted(model: Any, prompt: list[int], drafter: Any, count: int, **options: Any) -> list[int]:
    """Return ``count`` tokens of our loop, with up to eight draft tokens at once."""
    steps = spectool_step(prompt, model, drafter=drafter, max_tokens=count, **{"num_draft_tokens": 8, **options})
    return [token for token, _, _ in steps]


def prompts(count: int, *, vocabulary: int = 256, seed: int = 0) -> list[list[int]]:
    """Return prompts of 1 to 40 tokens; every second one repeats a phrase."""
    import random

    rng = random.Random(seed)
    made = []
    for number in range(count):
        tokens = [rng.randrange(3, vocabulary) for _ in range(rng.randint(1, 20))]
        made.append(tokens + tokens[: rng.randint(1, 20)] if number % 2 else tokens)
    return made


class Counted:
    """A model that notes how many tokens each pass was fed, and breaks off in pass `fail_at`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.passes: list[int] = []  # without a cache, only the shape of the logits is looked at
        self.fail_at = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        if cache is not None:
            self.passes.append(tokens.shape[1])
            if len(self.passes) == self.fail_at:
                # The first layer has been fed and the second has not.
                cache[0].update_and_fetch(mx.zeros((1, 1, 1, 32)), mx.zeros((1, 1, 1, 32)))
                raise KeyboardInterrupt
        return self._model(tokens, cache=cache)
