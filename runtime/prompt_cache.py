"""Prompt caches on disk: the target's, and the draft model's after it with a length of its own.

The file is in mlx-lm's own format. Its metadata says where the draft's caches begin and which tokens both hold, since a
draft model drops and adds tokens on its own:

    spectool_target_caches   caches of the target, "28"
    spectool_target_tokens   token ids that they hold, JSON
    spectool_draft_tokens    token ids that the draft's hold, JSON
    spectool_draft_model     fingerprint of the draft model

A file that mlx-lm has saved has none of them and loads as a target's cache.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from spectool import RuntimeUnsupported
from spectool.artifacts.atomic import atomic_file
from spectool.runtime.caches.leaves import flatten, lengths
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.mlx_lm_compat import cache as mlx_lm_cache
from spectool.runtime.mlx_lm_compat import make_prompt_cache
from spectool.runtime.sampling.token_ids import given_ids
from spectool.runtime.translation.protocol import DraftSource
from spectool.tokenization.fingerprint import short

TARGET_CACHES = "spectool_target_caches"
TARGET_TOKENS = "spectool_target_tokens"
DRAFT_TOKENS = "spectool_draft_tokens"
DRAFT_MODEL = "spectool_draft_model"
_SUFFIX = ".safetensors"
_SAMPLED = 64  # values of each weight that the fingerprint covers


class SavedPrompt(NamedTuple):
    """The content of a prompt cache file."""

    cache: list[Any]  # the target's prompt cache
    metadata: dict[str, str]  # text that was saved with it
    tokens: list[int]  # token ids that the target's cache holds; empty where the file does not say
    draft_tokens: int  # number of tokens in the draft model's cache; 0 where there is none


def save_prompt_cache(
    path: Path | str,
    cache: list[Any],
    draft: Drafter | DraftSource | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    tokens: Sequence[int] = (),
) -> None:
    """Write a prompt cache to a ``.safetensors`` file, with that of the draft model.

    An interruption leaves the old file whole.

    Args:
        path: The file.
        cache: The target's prompt cache, as a closed generation leaves it.
        draft: Drafter whose draft model's cache is saved too.
        metadata: Text to save with it.
        tokens: Token ids that ``cache`` holds, for ``cached_tokens`` of a later generation.

    Raises:
        RuntimeUnsupported: The file has another suffix, holds something else, or cannot be written, or ``cache`` has no
            entries.
    """
    path = Path(path)
    if path.suffix != _SUFFIX:
        raise RuntimeUnsupported(f"{path}: expected a file name that ends in {_SUFFIX}. Call it {path}{_SUFFIX}")
    if not cache:
        raise RuntimeUnsupported("cache: expected a prompt cache with an entry for each layer, got none")
    check_save_path(path, cache)
    facts = {**(metadata or {}), TARGET_CACHES: str(len(cache)), TARGET_TOKENS: json.dumps(given_ids("tokens", tokens))}
    entries = list(cache)
    held = None if draft is None else draft.cache
    # An empty cache has no arrays to write, and is what a draft model begins with anyway.
    if held is not None and held.tokens:
        of_draft, drafted = held.content()
        facts |= {DRAFT_TOKENS: json.dumps(drafted), DRAFT_MODEL: fingerprint(held.model)}
        entries += of_draft
    try:
        with atomic_file(path, _SUFFIX) as written:
            mlx_lm_cache.save_prompt_cache(str(written), entries, facts)
    except (OSError, RuntimeError) as error:
        raise RuntimeUnsupported(f"{path}: cannot be written ({error}). Choose another place") from error


def check_save_path(path: Path, cache: Sequence[Any] = ()) -> None:
    """Raise `RuntimeUnsupported` if something other than a prompt cache is at ``path``, such as a model's weights.

    Also if ``cache`` has entries of a class that mlx-lm writes and cannot read back.
    """
    classes = {type(entry) for entry in (*cache, *flatten(cache))}
    lost = sorted(each.__name__ for each in classes if getattr(mlx_lm_cache, each.__name__, None) is not each)
    if lost:
        raise RuntimeUnsupported(
            f"{path}: a prompt cache of class {', '.join(lost)} cannot be saved, since mlx-lm could not read it back. "
            "Generate without saving it"
        )
    if path.exists() and not (path.is_file() and _is_prompt_cache(path)):
        raise RuntimeUnsupported(
            f"{path}: exists and is not a prompt cache, so it is not replaced. Choose another name, or remove it first"
        )


def _is_prompt_cache(path: Path) -> bool:
    """Whether a file's header names the class of a cache, as mlx-lm writes it (older versions: ``2.0``)."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= path.stat().st_size else {}
        metadata = header["__metadata__"]
        kinds = [str(metadata.get(place)) for place in ("1.0", "2.0")]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return any(isinstance(getattr(mlx_lm_cache, kind, None), type) for kind in kinds)


def load_prompt_cache(path: Path | str, draft: Drafter | DraftSource | None = None) -> SavedPrompt:
    """The content of a prompt cache file; the draft model of ``draft`` takes over its part if the file has one.

    Raises:
        RuntimeUnsupported: The file is not a prompt cache, or its draft part is of another model.
    """
    try:
        if not Path(path).is_file():  # opening a pipe would wait for its writer
            raise FileNotFoundError("no regular file has this name")
        entries, metadata = mlx_lm_cache.load_prompt_cache(str(path), return_metadata=True)
        metadata = dict(metadata or {})
        split = int(metadata.pop(TARGET_CACHES, len(entries)))
        tokens, drafted = (_ids(metadata.pop(name, "[]")) for name in (TARGET_TOKENS, DRAFT_TOKENS))
        drafted_by = metadata.pop(DRAFT_MODEL, "")
        if not 0 < split <= len(entries) or (split == len(entries)) != (not drafted):
            raise ValueError(f"{split} caches of the target among {len(entries)}")
        held_by_target = lengths(entries[:split])
        if tokens and held_by_target - {len(tokens)}:
            raise ValueError(f"caches of {held_by_target} tokens, and {len(tokens)} token ids")
    except Exception as error:
        raise RuntimeUnsupported(
            f"{path}: expected a prompt cache, got {type(error).__name__}: {error}. "
            "Save one with `spectool generate --save-prompt-cache` or `mlx_lm.cache_prompt`."
        ) from error
    held = None if draft is None else draft.cache
    if held is not None and drafted:
        expected = fingerprint(held.model)
        if drafted_by != expected:
            known_as = f" ({metadata['draft_model']})" if "draft_model" in metadata else ""
            raise RuntimeUnsupported(
                f"{path}: its draft cache is of model {short(drafted_by)}{known_as}, the draft model is "
                f"{short(expected)}. Draft with that model, or save the prompt again with this one: "
                "spectool generate --save-prompt-cache"
            )
        count, found = len(flatten(make_prompt_cache(held.model))), len(flatten(entries[split:]))
        held_by_draft = lengths(entries[split:])
        if found != count or held_by_draft - {len(drafted)}:
            raise RuntimeUnsupported(
                f"{path}: draft cache: expected {count} caches of {len(drafted)} tokens, got {found} of "
                f"{', '.join(map(str, sorted(held_by_draft))) or 'no'} tokens. Save it with this draft model."
            )
        held.replace(entries[split:], drafted)
    return SavedPrompt(entries[:split], metadata, tokens, len(drafted))


def _ids(text: str) -> list[int]:
    return [int(token) for token in json.loads(text)]


def fingerprint(model: Any) -> str:
    """SHA-256 of the names, shapes and types of a model's weights, and of the first values of each.

    Training changes all values a little, so models of one architecture differ.
    """
    digest = hashlib.sha256()
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.shape} {weight.dtype}\n".encode())
        digest.update(np.array(weight.reshape(-1)[:_SAMPLED].view(mx.uint8)).tobytes())
    return digest.hexdigest()
