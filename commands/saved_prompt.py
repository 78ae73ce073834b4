"""Prompts that ``generate`` saves, read once by the target and the draft model, and goes on after."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool import SpectoolError
from spectool.artifacts.console import say

if TYPE_CHECKING:
    from spectool.runtime.prompt_cache import SavedPrompt

_RESPELLED = 2  # last draft tokens of a prompt, which depend on what follows it


def check_saving(path: Path, opened: Path | None, prefill_response: str | None, show_drafts: bool) -> None:
    """Refuse what does not go with --save-prompt-cache, and a file that is something else, before a model is loaded."""
    if opened is not None or prefill_response is not None or show_drafts:
        raise click.UsageError(
            "--save-prompt-cache saves a prompt and gives no answer: leave out --prompt-cache-file, "
            "--prefill-response and --show-drafts"
        )
    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise click.UsageError(
            f"--save-prompt-cache: expected a name that ends in .safetensors, in a directory that exists, got {path}"
        )
    if path.exists():
        from spectool.runtime.prompt_cache import check_replaceable

        check_replaceable(path)


def check_opening(max_kv_size: int | None) -> None:
    """Refuse what does not go with --prompt-cache-file, before a model is loaded."""
    if max_kv_size is not None:
        raise click.UsageError(
            "--max-kv-size is decided when a prompt is saved: leave it out, or save the prompt anew with it: "
            "--save-prompt-cache FILE --max-kv-size N"
        )


def names_of(options: dict[str, Any]) -> dict[str, str]:
    """Return what a saved prompt is told to be made with."""
    names = {name: options[name] for name in ("model", "draft_model")}
    if options["alignment"] is not None:
        from spectool.runtime.loading import DEFAULT_STRATEGY

        names["strategy"] = options["strategy"] or DEFAULT_STRATEGY
    return {key: name for key, name in names.items() if name is not None}


def save_prompt(
    path: Path, target: Any, tokenizer: Any, prompt: list[int], arguments: dict[str, Any], made_with: dict[str, str]
) -> dict[str, Any]:
    """Let the target and the draft model read ``prompt`` and save their caches; return figures.

    Raises:
        SpectoolError: A model cannot read it, or the file cannot be written.
    """
    from spectool.runtime.decoding.streaming import stream_generate
    from spectool.runtime.mlx_lm_compat import make_prompt_cache
    from spectool.runtime.prompt_cache import draft_cache_of, fingerprint, save_prompt_cache

    drafter = arguments.pop("drafter")
    cache = make_prompt_cache(target, arguments["max_kv_size"])
    # After its first token a generation has read the prompt, and no more.
    for _ in stream_generate(target, tokenizer, prompt, **{**arguments, "max_tokens": 1, "prompt_cache": cache}):
        pass
    drafted = draft_cache_of(drafter)
    if drafted is not None:
        drafter.start(prompt)
        drafter.propose(1)
        # Text that follows may be spelled with these, and a recurrent state cannot be taken back once it is saved.
        drafted.rewind(max(0, len(drafted.tokens) - _RESPELLED))
    save_prompt_cache(path, cache, drafter, {**made_with, "fingerprint": fingerprint(target)}, tokens=prompt)
    return {
        "prompt cache": str(path),
        "bytes": path.stat().st_size,
        "tokens": len(prompt),
        "draft tokens": 0 if drafted is None else len(drafted.tokens),
    }


def open_prompt(path: Path, target: Any, arguments: dict[str, Any], made_with: dict[str, str]) -> dict[str, Any]:
    """Load a prompt cache, and that of the draft model; return what ``stream_generate`` takes of it.

    Raises:
        SpectoolError: It is none, of another model, or quantised in another way.
    """
    from spectool.runtime.decoding.token_ids import require_tokens, vocabulary_size
    from spectool.runtime.prompt_cache import fingerprint, load_prompt_cache

    drafter, kv_bits, model = arguments["drafter"], arguments["kv_bits"], made_with["model"]
    saved = load_prompt_cache(path, drafter)
    known_as, ours = saved.metadata.get("model", model), fingerprint(target)
    # A file of mlx-lm's names its model and has no fingerprint.
    if saved.metadata.get("fingerprint", ours) != ours or ("fingerprint" not in saved.metadata and known_as != model):
        raise SpectoolError(
            f"{path}: a prompt cache of {known_as}, expected one of {model}. Give the model that it was made with, "
            "or make the cache anew: spectool generate --save-prompt-cache"
        )
    found = {entry.bits for entry in saved.cache if hasattr(entry, "bits")}
    if kv_bits is not None and found - {kv_bits}:
        raise SpectoolError(f"{path}: quantised to {min(found)} bits, expected --kv-bits {kv_bits}. Leave it out")
    require_tokens(str(path), saved.tokens, vocabulary_size(target))
    note = _slower(saved, drafter, made_with)
    if note:
        say(f"{path}: {note}. Save the prompt anew with these options to spare that: --save-prompt-cache")
    return {"prompt_cache": saved.cache, "cached_tokens": saved.tokens}


def _slower(saved: "SavedPrompt", drafter: Any, made_with: dict[str, str]) -> str:
    """Return what a drafter must do without, or do again; nothing where it goes on as if it had read the prompt."""
    from spectool.runtime.prompt_cache import draft_cache_of

    if drafter is not None and not saved.tokens:
        return "does not list its tokens, so drafts come from the new part of the prompt alone"
    if draft_cache_of(drafter) is None:
        return ""
    if not saved.draft_tokens:
        return f"has no cache of a draft model, which reads the {len(saved.tokens):,} tokens itself"
    was, now = (names.get("strategy", "no translation") for names in (saved.metadata, made_with))
    if was == now:
        return ""
    return (
        f"was read by the draft model for {was}; for {now} it reads again from where the two spell a text differently"
    )
