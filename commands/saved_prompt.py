"""Prompts that ``generate`` saves after the target and the draft model have read them, and continues later."""

from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.shared.console import say

_RESPELLED = 2  # last draft tokens of a prompt, which depend on the text that follows it


def check_saving(path: Path) -> None:
    """Check that a prompt can be saved there, before a model is loaded."""
    from spectool.runtime.prompt_cache import check_save_path

    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise click.UsageError(
            f"--save-prompt-cache: expected a name that ends in .safetensors, in a directory that exists, got {path}"
        )
    check_save_path(path)


def save_prompt(
    path: Path, target: Any, tokenizer: Any, prompt: list[int], arguments: dict[str, Any], names: dict[str, str | None]
) -> dict[str, Any]:
    """Save the caches of the target and the draft model after ``prompt``, with their names, and return figures.

    Raises:
        SpectoolError: A model cannot read it, or the file cannot be written.
    """
    from spectool.runtime.decoding.streaming import stream_generate
    from spectool.runtime.mlx_lm_compat import make_prompt_cache
    from spectool.runtime.prompt_cache import check_save_path, fingerprint, save_prompt_cache

    drafter = arguments.pop("drafter")
    cache = make_prompt_cache(target, arguments["max_kv_size"])
    check_save_path(path, cache)
    # After its first token a generation has read the prompt, and no more.
    for _ in stream_generate(target, tokenizer, prompt, **{**arguments, "max_tokens": 1, "prompt_cache": cache}):
        pass
    drafted = drafter and drafter.cache
    if drafted is not None:
        drafter.start(prompt)
        drafter.propose(1)
        # The last draft tokens may change with the text that follows, and a saved recurrent state cannot be rewound.
        drafted.rewind(max(0, len(drafted.tokens) - _RESPELLED))
    facts = {name: value for name, value in names.items() if value} | {"fingerprint": fingerprint(target)}
    save_prompt_cache(path, cache, drafter, facts, tokens=prompt)
    return {
        "prompt cache": str(path),
        "bytes": path.stat().st_size,
        "tokens": len(prompt),
        "draft tokens": 0 if drafted is None else len(drafted.tokens),
    }


def open_prompt(path: Path, target: Any, arguments: dict[str, Any], model: str) -> dict[str, Any]:
    """Load the prompt caches of both models, as arguments of ``stream_generate``.

    Raises:
        SpectoolError: The file is not a prompt cache, or one of another model or quantisation.
    """
    from spectool.runtime.prompt_cache import fingerprint, load_prompt_cache
    from spectool.runtime.sampling.token_ids import require_tokens, vocabulary_size

    drafter, kv_bits = arguments["drafter"], arguments["kv_bits"]
    saved = load_prompt_cache(path, drafter)
    known_as, ours = saved.metadata.get("model", model), fingerprint(target)
    # A file of mlx-lm's names its model and has no fingerprint.
    if saved.metadata.get("fingerprint", ours) != ours or ("fingerprint" not in saved.metadata and known_as != model):
        raise SpectoolError(
            f"{path}: a prompt cache of {known_as}, expected one of {model}. Give the model that it was made with, "
            "or save the prompt again: spectool generate --save-prompt-cache"
        )
    found = {entry.bits for entry in saved.cache if hasattr(entry, "bits")}
    if kv_bits is not None and found - {kv_bits}:
        raise SpectoolError(f"{path}: quantised to {min(found)} bits, expected --kv-bits {kv_bits}. Leave it out")
    require_tokens(str(path), saved.tokens, vocabulary_size(target))
    again = "To avoid that, save the prompt again with these options: --save-prompt-cache"
    if drafter is not None and not saved.tokens:
        say(f"{path}: does not list its tokens, so drafts come from the new part of the prompt alone. {again}")
    elif drafter is not None and drafter.cache is not None and not saved.draft_tokens:
        say(f"{path}: was not saved with this draft model, so the draft model reads it again. {again}")
    return {"prompt_cache": saved.cache, "cached_tokens": saved.tokens}
