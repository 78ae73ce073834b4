"""A model that is loaded, and what the HTTP side needs to know of it."""

import json
import os
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

import mlx.core as mx

from spectool import expanded
from spectool.runtime.caches.leaves import flatten
from spectool.runtime.caches.rewinding import trims_freely
from spectool.runtime.caches.shared import STEP
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, members_of
from spectool.runtime.loading import load_model
from spectool.runtime.machine import weight_bytes
from spectool.runtime.mlx_lm_compat import make_prompt_cache
from spectool.runtime.policy.costs import new_policy
from spectool.runtime.policy.policy import Policy
from spectool.runtime.sampling.samplers import Sampling, kept_by_xtc, make_logits_processors
from spectool.runtime.sampling.token_ids import vocabulary_size
from spectool.runtime.settings import PENALTIES, SAMPLER
from spectool.serve.options import ServerOptions
from spectool.tokenization.hub_names import cached_snapshot
from spectool.tokenization.opening import open_tokenizer

MakeDrafter = Callable[[Any], Drafter | DrafterSet | None]
# Names of the context length in the configurations of mlx-lm's models.
_CONTEXT_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "model_max_length", "block_size")
_UNSTATED = 1 << 40  # tokens; transformers writes 10**30 where a tokenizer says nothing


class LoadedModel:
    """A model, its tokenizer and its drafter."""

    def __init__(self, options: ServerOptions, make_drafter: MakeDrafter) -> None:
        """Load as ``options`` say, on the thread that is going to run the model.

        Raises:
            SpectoolError: The model cannot be loaded, or not served with these options.
        """
        model, tokenizer = load_model(
            options.model, options.adapter_path, True, options.chat_template, pipeline=options.pipeline
        )
        drafter = make_drafter(tokenizer)
        # Raises what a request would, before the first one; nothing is computed, and with a fixed length nothing timed.
        Sampling(**options.settings(SAMPLER))
        make_logits_processors(**options.settings(PENALTIES))
        generate_step([0], model, drafter=drafter, kv_bits=options.kv_bits, num_draft_tokens=1).close()
        self.tokens = open_tokenizer(tokenizer)  # for the bytes of single tokens
        self.tokens.token_bytes_of(())  # refuses a decoder that it does not know
        mx.eval(model.parameters())
        self.name, self.model, self.tokenizer, self.drafter = options.names[0], model, tokenizer, drafter
        # Chooses among drafters for all requests, since one alone may be too short to learn in.
        most = options.num_draft_tokens
        self.policy = new_policy(model, drafter, measure=options.measure) if most is None else Policy(longest=most)
        self.needs_marks = not trims_freely(make_prompt_cache(model))  # to continue a text from where it was before
        self.vocabulary = vocabulary_size(model)  # number of the model's token ids
        self.context = context_length(model, tokenizer)
        self.ends = frozenset(tokenizer.eos_token_ids)  # token ids that end an answer
        self.kept_by_xtc = kept_by_xtc(tokenizer)

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token: a text of more than this times n has more than n tokens."""
        return max(map(len, self.tokenizer.get_vocab()), default=1)

    def cache_bytes(self, tokens: int) -> int:
        """Bytes that the caches of a text with this many tokens take, with those of a draft model."""
        slots = -(-tokens // STEP) * STEP
        return sum(size * min(slots, most) for size, most in self._leaf_sizes)

    @cached_property
    def _leaf_sizes(self) -> list[tuple[int, int]]:
        """Of each part of a text's caches, the bytes that a token takes and the tokens that it holds at most."""
        sizes = list[tuple[int, int]]()
        drafts = [each.cache.model for each in members_of(self.drafter) if each.cache is not None]
        for model in (self.model, *drafts):
            cache = make_prompt_cache(model)
            model(mx.zeros((1, 1), dtype=mx.int32), cache=cache)  # built and never computed
            for leaf in flatten(cache):
                if getattr(leaf, "keys", None) is None:  # the states of a recurrent layer, or nothing
                    sizes.append((leaf.nbytes, 1))
                else:
                    sizes.append((leaf.nbytes // leaf.keys.shape[2], getattr(leaf, "max_size", sys.maxsize)))
        return sizes


def advised_sampling(name: str) -> str:
    """Options of ``serve`` for the sampling in a model's generation_config.json; empty where it has none."""
    local = expanded(name)
    folder = local if local.is_dir() else cached_snapshot(name, "generation_config.json")
    try:
        config = json.loads((folder / "generation_config.json").read_text(encoding="utf-8")) if folder else {}
        named = {name: setting.field or name for name, setting in SAMPLER.items() if setting.help}
        numbers = {name: float(config.get(key) or 0) for name, key in named.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):  # mlx-lm does without the file, too
        return ""
    if not numbers["temp"] > 0 or config.get("do_sample") is False:
        return ""
    return " ".join(f"--{name.replace('_', '-')} {number:g}" for name, number in numbers.items() if number)


def free_memory(model: Any) -> int:
    """Bytes of the device's memory that the weights leave."""
    info: dict[str, Any] = mx.device_info()
    stated = next((info[key] for key in ("max_recommended_working_set_size", "total_memory") if info.get(key)), None)
    memory = stated or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(0, int(memory - weight_bytes(model)))


def context_length(model: Any, tokenizer: Any) -> int | None:
    """Tokens that a model was made for; None where neither its configuration nor its tokenizer says so."""
    args = getattr(model, "args", None) or getattr(model, "config", None)
    parts = [part for part in (args, getattr(args, "text_config", None)) if part is not None]
    facts = [part if isinstance(part, dict) else vars(part) for part in parts]
    stated = [each.get(name) for each in facts for name in _CONTEXT_LENGTHS]
    stated.append(getattr(tokenizer, "model_max_length", None))
    return next((length for length in stated if isinstance(length, int) and 0 < length < _UNSTATED), None)
