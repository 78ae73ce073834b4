"""What the lossless grid runs on: languages with their trained models, and a model for every kind of cache.

The trained targets stand in for as many kinds as their weights fit in. Caches that no trained model has belong to
models of random weights. Output layers compute the ids that the language uses most, and no others: the rest would be
most of the time on a CPU.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.models import falcon_h1, llama, mamba2, qwen3_5
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache
from real_data import encoded, real_corpus, real_tokenizer
from train_models import read_recipe

from spectool.artifacts import Alignment
from spectool.build import BackoffOptions, CountOptions, build_alignment, count_and_build
from spectool.corpora import open_corpus
from spectool.runtime.loading import load_model
from spectool.runtime.translation.factory import STRATEGIES, make_translator
from spectool.runtime.translation.protocol import Translator
from spectool.tokenization import Tokenizer

LANGUAGES = {"pl": ("qwen", "apt4"), "uk": ("qwen", "bielik")}  # the drafts beside each target
PRECISIONS = ("float32", "bfloat16", "8", "4")
PROMPT = 16  # tokens
WINDOW = 18  # tokens: it wraps in the middle of an output
QUANTIZED_FROM = 20  # tokens in the cache
GROUP = 32  # weights, or keys and values, that are quantised together
USED = 4096  # ids that output layers compute
FEW = 16  # ids that a random model computes, so that its outputs repeat themselves now and then
NOISE = 0.05  # of a weight, in standard deviations of its matrix, in a draft that is the target with noise
TRAIN_TOKENS = 400_000  # of text, for dictionaries and for the ids that output layers compute
_ALIGNED = 300  # documents on which absorption is counted
# At 2 bits a token that saw the cache unquantised for too long is soon another one; at 4 bits it hardly ever is.
QUANTIZED = {"kv_bits": 2, "kv_group_size": GROUP, "quantized_kv_start": QUANTIZED_FROM}


class UsedIds(nn.Module):
    """An output layer for some ids; the others are impossible."""

    def __init__(self, weight: mx.array, ids: Sequence[int]) -> None:
        """Take the rows ``ids`` of ``weight`` [vocabulary, width]."""
        super().__init__()
        self.rows = nn.Linear(weight.shape[1], len(ids), bias=False)
        self.rows.weight = weight[mx.array(ids)]
        self._ids, self._size = mx.array(ids), weight.shape[0]

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return logits [..., vocabulary]."""
        rows = self.rows(hidden)
        logits = mx.full((*rows.shape[:-1], self._size), -mx.inf, dtype=rows.dtype)
        logits[..., self._ids] = rows
        return logits


_tokenizer = cache(real_tokenizer)


@dataclass(frozen=True)
class Language:
    """What all settings of a language share: tokenizers, models' folders, prompts, artifacts.

    Attributes:
        name: Of the language.
        models: Folder of the trained models.
        scratch: Folder of the artifacts, made by `prepare`.
    """

    name: str
    models: Path
    scratch: Path

    @cached_property
    def recipe(self) -> dict[str, dict[str, Any]]:
        """The models by name."""
        return read_recipe(self.name, large=False)

    def tokenizer(self, model: str) -> Tokenizer:
        """Return the tokenizer of a model."""
        return _tokenizer(self.recipe[model]["tokenizer"])

    def used(self, model: str) -> list[int]:
        """Return the ids that output layers compute: the most frequent first."""
        ids: list[int] = json.loads((self.scratch / f"{self.name}-{model}.json").read_text())
        return ids

    def trained(self, model: str) -> Any:
        """Load a trained model, its output layer cut to the used ids."""
        found, _ = load_model(str(self.models / self.name / model))
        return with_used_ids(found, found.model.embed_tokens.weight, self.used(model))

    def dictionary(self) -> Path:
        """Return the path of the dictionary."""
        return self.scratch / f"{self.name}.dict"

    def translators(self, draft: str) -> dict[str, Translator]:
        """Return the translators of a draft's tokenizer, by strategy."""
        alignment = Alignment(self.scratch / f"{self.name}-{draft}.align")
        sides = self.tokenizer(draft), self.tokenizer("target")
        return {strategy: make_translator(strategy, alignment, *sides) for strategy in STRATEGIES}

    def prompts(self, count: int) -> list[list[int]]:
        """Return the first tokens of ``count`` paragraphs of held-out text."""
        documents = encoded(self.tokenizer("target"), real_corpus(self.name, "valid"), 1 << 40)
        found = list(islice((ids[:PROMPT] for ids in documents if len(ids) > 2 * PROMPT), count))
        if len(found) < count:
            raise click.ClickException(f"{self.name}: expected {count} paragraphs of held-out text, got {len(found)}")
        return found

    def prepare(self) -> None:
        """Build the dictionary and the alignments, and find the used ids; what is there already stays."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        text, target = self.scratch / f"{self.name}.txt", self.tokenizer("target")
        if not text.exists():
            documents = sum(1 for _ in encoded(target, real_corpus(self.name, "train"), TRAIN_TOKENS))
            lines = (d.text.replace("\n", " ") + "\n" for d in islice(real_corpus(self.name, "train"), documents))
            text.write_text("".join(lines), encoding="utf-8")
        corpus = open_corpus(str(text))
        if not self.dictionary().exists():
            options, limits = BackoffOptions(max_bytes=1_000_000), CountOptions(workers=1)
            count_and_build(target, corpus, self.dictionary(), options, limits, lambda step: None)
        for model in ("target", *LANGUAGES[self.name]):
            tokenizer, ids = self.tokenizer(model), self.scratch / f"{self.name}-{model}.json"
            if not ids.exists():
                counts = Counter(id_ for document in encoded(tokenizer, corpus, TRAIN_TOKENS) for id_ in document)
                ids.write_text(json.dumps([id_ for id_, _ in counts.most_common(USED)]))
            path = self.scratch / f"{self.name}-{model}.align"
            if model != "target" and not path.exists():
                build_alignment(tokenizer, target, corpus, path, lambda step: None, lambda it: islice(it, _ALIGNED))


def with_used_ids(model: Any, weight: mx.array, ids: Sequence[int]) -> Any:
    """Give a model an output layer of the used ids. Mutates it."""
    whole = getattr(model, "language_model", model)
    whole.args.tie_word_embeddings = whole.tie_word_embeddings = False  # mlx-lm's models ask for one or the other
    whole.lm_head = UsedIds(weight, ids)
    return model


def _llama(language: Language, **changes: Any) -> Any:
    """Return the trained target, in another form of its class."""
    trained = language.trained("target")
    model = llama.Model(llama.ModelArgs(**{**vars(trained.args), **changes}))
    model.lm_head = trained.lm_head
    model.update(trained.parameters())
    return model


def _padded(language: Language) -> Any:
    """Return the trained target with zeros at the end of its heads, up to what a cache can be quantised in."""
    trained = language.trained("target")
    narrow = trained.args.hidden_size // trained.args.num_attention_heads
    wide = -(-narrow // GROUP) * GROUP
    model = llama.Model(llama.ModelArgs(**{**vars(trained.args), "head_dim": wide}))
    model.lm_head = trained.lm_head

    def pad(path: str, weight: mx.array) -> mx.array:
        if path.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            heads = weight.reshape(-1, narrow, weight.shape[-1])
            return mx.pad(heads, [(0, 0), (0, wide - narrow), (0, 0)]).reshape(-1, weight.shape[-1])
        if path.endswith("o_proj.weight"):
            heads = weight.reshape(weight.shape[0], -1, narrow)
            return mx.pad(heads, [(0, 0), (0, 0), (0, wide - narrow)]).reshape(weight.shape[0], -1)
        return weight

    model.update(tree_map_with_path(pad, trained.parameters()))
    for layer, original in zip(model.layers, trained.layers, strict=True):
        # Rotates the first `narrow` numbers of a head and leaves the zeros.
        layer.self_attn.rope, layer.self_attn.scale = original.self_attn.rope, original.self_attn.scale
    return model


def _falcon(language: Language) -> Any:
    """Return the trained target with a random recurrent part of little weight beside its attention."""
    trained = language.trained("target")
    args = trained.args
    ones = dict.fromkeys(("embedding_multiplier", "lm_head_multiplier", "key_multiplier", "ssm_in_multiplier"), 1.0)
    model = falcon_h1.Model(
        falcon_h1.ModelArgs(
            **ones,
            hidden_size=args.hidden_size,
            intermediate_size=args.intermediate_size,
            num_hidden_layers=args.num_hidden_layers,
            num_attention_heads=args.num_attention_heads,
            num_key_value_heads=args.num_key_value_heads,
            head_dim=args.head_dim or args.hidden_size // args.num_attention_heads,
            rms_norm_eps=args.rms_norm_eps,
            rope_theta=args.rope_theta,
            vocab_size=args.vocab_size,
            tie_word_embeddings=False,
            mamba_d_head=16,
            mamba_d_ssm=64,
            mamba_d_state=16,
            mamba_n_heads=4,
        )
    )
    model.lm_head = trained.lm_head
    names = {
        ".mlp.": ".feed_forward.",
        "post_attention_layernorm": "pre_ff_layernorm",
        "model.norm.": "model.final_layernorm.",
    }
    weights = []
    for name, weight in tree_flatten(trained.parameters()):
        for old, new in names.items():
            name = name.replace(old, new)
        weights.append((name, weight))
    model.load_weights(weights, strict=False)
    return model


_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}


def _qwen(language: Language) -> Any:
    """Return a random model of attention and gated delta layers by turns."""
    args = {
        **_SMALL,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "full_attention_interval": 2,
    }
    return _random(qwen3_5, "qwen3_5", language, args)


def _mamba(language: Language) -> Any:
    """Return a random model of recurrent layers only."""
    args = {
        "num_heads": 8,
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 128,
        "state_size": 16,
        "num_hidden_layers": 2,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_limit": (0.0, 1e9),
        "time_step_rank": "auto",
    }
    return _random(mamba2, "mamba2", language, args)


def _random(module: Any, kind: str, language: Language, args: dict[str, Any]) -> Any:
    """Return a model of random weights, wide enough apart for outputs that vary, and say the same again at times."""
    mx.random.seed(0)
    size = language.tokenizer("target").size
    args = {"model_type": kind, "vocab_size": size, "tie_word_embeddings": False, **args}
    model = module.Model(module.ModelArgs.from_dict(args))

    def widen(path: str, weight: mx.array) -> mx.array:
        return weight * (6.0 if "embed" in path else 1.5) if weight.ndim == 2 else weight

    model.update(tree_map_with_path(widen, model.parameters()))
    few = language.used("target")[:: USED // FEW]
    return with_used_ids(model, mx.random.normal((size, args["hidden_size"])), few)


@dataclass(frozen=True)
class Kind:
    """A kind of cache.

    Attributes:
        build: Makes the model, float32.
        trained: Whether it says what the trained target says, more or less.
        options: For both loops.
        window: All layers keep the first 4 tokens and the latest, as with ``max_kv_size``.
    """

    build: Callable[[Language], Any]
    trained: bool = True
    options: dict[str, int] = field(default_factory=dict)
    window: int | None = None

    def cache(self, model: Any) -> list[Any]:
        """Return a fresh prompt cache."""
        if self.window is None:
            return make_prompt_cache(model)
        return [RotatingKVCache(max_size=self.window, keep=4) for _ in model.layers]


_WINDOW = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
KINDS = {
    "KV": Kind(_llama),
    "quantised KV": Kind(_padded, options=QUANTIZED),
    "window": Kind(lambda language: _llama(language, **_WINDOW)),
    "window, start kept": Kind(_llama, window=WINDOW),
    "recurrent beside KV": Kind(_falcon),
    "recurrent by turns": Kind(_qwen, trained=False),
    "recurrent": Kind(_mamba, trained=False),
}


def in_precision(model: Any, precision: str) -> Any:
    """Cast or quantise a model. Mutates it."""
    if precision == "bfloat16":
        model.set_dtype(mx.bfloat16)
    elif precision != "float32":
        nn.quantize(model, group_size=GROUP, bits=int(precision))
    model.eval()
    mx.eval(model.parameters())
    return model


def noisy(model: Any) -> Any:
    """Shake the weights a little: a draft model that is partly right. Mutates it."""
    key = mx.random.key(1)

    def shake(path: str, weight: mx.array) -> mx.array:
        nonlocal key
        key, now = mx.random.split(key)
        return weight + NOISE * mx.std(weight) * mx.random.normal(weight.shape, key=now) if weight.ndim == 2 else weight

    model.update(tree_map_with_path(shake, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model
