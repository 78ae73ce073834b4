"""Prompt caches on disk: the target's, and the draft model's beside it with a length of its own.

The file is mlx-lm's own format: the target's caches, then the draft's. Its metadata tells where the
draft's begin and which tokens they hold, since a draft model drops and adds tokens on its own:

    spectool_target_caches   caches of the target, "28"
    spectool_draft_tokens    token ids that the draft's hold, JSON

A file that mlx-lm has saved has neither and loads as a target's cache.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mlx_lm.models import cache as host

from spectool import RuntimeUnsupported
from spectool.runtime.draft_cache import DraftCache

TARGET_CACHES = "spectool_target_caches"
DRAFT_TOKENS = "spectool_draft_tokens"


class HasDraftCache(Protocol):
    """A ``ModelDrafter`` or a ``ModelSource``."""

    cache: DraftCache


def save_prompt_cache(
    path: Path | str, cache: list[Any], draft: HasDraftCache | None = None, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a prompt cache to a .safetensors file, with that of the draft model.

    Args:
        path: File to write.
        cache: The target's prompt cache, as a closed generation leaves it.
        draft: The draft model whose cache is saved too; None for none.
        metadata: Text to keep with it.
    """
    marks = dict(metadata or {})
    entries = list(cache)
    if draft is not None:
        of_draft, tokens = draft.cache.content()
        # An empty cache has no arrays to write, and is what a draft model begins with anyway.
        if tokens:
            marks |= {TARGET_CACHES: str(len(cache)), DRAFT_TOKENS: json.dumps(tokens)}
            entries += of_draft
    host.save_prompt_cache(str(path), entries, marks)


def load_prompt_cache(path: Path | str, draft: HasDraftCache | None = None) -> tuple[list[Any], dict[str, str]]:
    """Read a prompt cache; give ``draft`` its part, if the file has one and ``draft`` is asked for.

    Returns:
        The target's prompt cache, and the metadata it was saved with.

    Raises:
        RuntimeUnsupported: The file is none of a prompt cache, or its draft part is of another model.
    """
    try:
        entries, metadata = host.load_prompt_cache(str(path), return_metadata=True)
        metadata = dict(metadata or {})
        split = int(metadata.pop(TARGET_CACHES, len(entries)))
        tokens = [int(token) for token in json.loads(metadata.pop(DRAFT_TOKENS, "[]"))]
        if not 0 < split <= len(entries) or (split == len(entries)) != (not tokens):
            raise ValueError(f"{split} caches of the target among {len(entries)}")
    except Exception as error:
        raise RuntimeUnsupported(
            f"{path}: expected a prompt cache, got {type(error).__name__}: {error}. "
            "Save one with spectool.runtime.save_prompt_cache or mlx_lm.cache_prompt."
        ) from error
    if draft is not None and tokens:
        try:
            draft.cache.replace(entries[split:], tokens)
        except RuntimeUnsupported as error:
            raise RuntimeUnsupported(f"{path}: {error}") from error
    return entries[:split], metadata
