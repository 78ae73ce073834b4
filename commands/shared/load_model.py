"""A model and its drafter, loaded as the options of `model_options` say."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from spectool import ArtifactError
from spectool.artifacts.artifact import read_manifest
from spectool.artifacts.default_paths import find_artifact
from spectool.commands.shared.console import say
from spectool.commands.shared.model_options import SAMPLING, CacheChoice, DraftingChoice, SamplingChoice
from spectool.tokenization.hub_names import looks_like_hub_id

_DRAWING = [name for name in SAMPLING if name != "temp"]
_LONG_PROMPT = 256  # tokens, which a large model reads for seconds
_QUANTISING = ("kv_group_size", "quantized_kv_start")


def check_drafting(drafting: DraftingChoice) -> None:
    """Check the dictionaries and the alignment that are named before a model is loaded, which takes longer.

    Raises:
        UsageError: An alignment is named without a draft model.
        ArtifactError: One is damaged.
    """
    if drafting.alignment is not None and drafting.draft_model is None:
        raise click.UsageError("--alignment is for a draft model with another tokenizer: name it with --draft-model M2")
    for artifact in drafting.dictionaries:
        if isinstance(artifact, Path):
            _require_format(artifact, "spectool-dictionary")
    if drafting.alignment is not None:
        _require_format(find_artifact(drafting.alignment, ".align"), "spectool-alignment")
    if drafting.draft_model is not None:
        check_model(drafting.draft_model)


def check_model(name: str) -> None:
    """Check that a model is there, unless it may be on the hub.

    Raises:
        RuntimeUnsupported: There is nothing of that name.
    """
    if not looks_like_hub_id(name) and not os.path.lexists(Path(name).expanduser()):
        from spectool.runtime.loading import load_model

        load_model(name)  # says what it looked for


def _require_format(path: Path, expected: str) -> None:
    found = read_manifest(path).format
    if found != expected:
        raise ArtifactError(f"{path}: is a {found}, expected a {expected}. Check the option that names it")


def open_model(
    name: str, adapter_path: Path | None, drafting: DraftingChoice, sampling: SamplingChoice, cache: CacheChoice
) -> tuple[Any, Any, dict[str, Any]]:
    """Load a model and its drafter.

    Returns:
        The model, its tokenizer, and arguments of ``stream_generate``, including the drafter.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    check_drafting(drafting)
    source_of = click.get_current_context().get_parameter_source
    for needed, given, names in (("--temp T", sampling.temp, _DRAWING), ("--kv-bits N", cache.kv_bits, _QUANTISING)):
        unused = [f"--{name.replace('_', '-')}" for name in names if source_of(name) is ParameterSource.COMMANDLINE]
        if unused and not given:
            say(f"no effect without {needed}: {', '.join(unused)}")

    import mlx.core as mx

    from spectool.runtime.loading import load_drafter, load_model

    if sys.stderr.isatty():
        say(f"loading {name}")
    model, tokenizer = load_model(name, adapter_path, lazy=True)  # gigabytes are read once all else is there
    _say_damage(model)
    if cache.kv_bits:
        from spectool.runtime.caches.quantized import require_quantizable
        from spectool.runtime.mlx_lm_compat import make_prompt_cache

        require_quantizable(make_prompt_cache(model, cache.max_kv_size), model, cache.kv_bits, cache.kv_group_size)
    fixed = drafting.num_draft_tokens
    drafter = None if fixed == 0 else load_drafter(tokenizer, **drafting.sources, say=say)
    if drafter is not None and fixed and (most := longest_exact(model)) is not None and fixed > most:
        say(f"--num-draft-tokens {fixed} may change the bits, which `spectool doctor --exact` keeps up to {most}")
    elif drafter is not None and fixed is None and longest_exact(model) == 0:
        say("decoding plainly: `spectool doctor --exact` found that drafts change the bits; run it without to draft")
    arguments = {
        "drafter": drafter,
        "num_draft_tokens": fixed,
        "verify": drafting.verify,
        "prompt_progress_callback": _say_reading,
        **asdict(cache),
        **_sampling_arguments(tokenizer, sampling),
    }
    mx.eval(model.parameters())
    return model, tokenizer, arguments


def _say_damage(model: Any) -> None:
    """Say that what the doctor has saved of a model is damaged and therefore not used."""
    from spectool.artifacts.pass_costs import load_costs
    from spectool.runtime.draft_length.measured import model_key

    try:
        load_costs(model_key(model))
    except ArtifactError as error:
        say(f"ignoring {error}")


def _say_reading(fed: int, total: int) -> None:
    """Show on a terminal how much of a long prompt is read."""
    if total >= _LONG_PROMPT and sys.stderr.isatty():
        line = f"reading the prompt: {fed:,} of {total:,} tokens"
        click.echo(f"\r{line}" if fed < total else f"\r{' ' * len(line)}\r", nl=False, err=True)


def longest_exact(model: Any) -> int | None:
    """The draft length up to which ``spectool doctor --exact`` keeps the bits of a model's output; None without it."""
    from spectool.runtime.draft_length.measured import known_costs

    costs = known_costs(model)
    return costs.longest_exact if costs is not None and costs.exact else None


def _sampling_arguments(tokenizer: Any, sampling: SamplingChoice) -> dict[str, Any]:
    """Arguments of ``stream_generate`` for sampling."""
    from spectool.runtime.sampling.samplers import Sampling, kept_by_xtc, make_logits_processors

    settings = {name: getattr(sampling, name) for name in SAMPLING}
    sampler = Sampling(**settings, xtc_special_tokens=kept_by_xtc(tokenizer))
    return {
        "sampler": sampler if sampling.temp else None,
        "logits_processors": make_logits_processors(repetition_penalty=sampling.repetition_penalty),
        "seed": sampling.seed,
        "max_tokens": sampling.max_tokens,
        "stop_strings": [text.replace("\\n", "\n").replace("\\t", "\t") for text in sampling.stop_strings],
    }
