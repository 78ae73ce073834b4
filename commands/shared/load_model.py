"""A model and its drafter, loaded as the options of `model_options` say."""

import math
import sys
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.default_paths import AUTO, find_artifact
from spectool.commands.shared.console import say
from spectool.commands.shared.model_options import DRAFT_SOURCES, pop_settings
from spectool.runtime.settings import PENALTIES, SAMPLER

_LONG_PROMPT = 256  # tokens, which a large model reads for seconds


def sources_of(settings: dict[str, Any]) -> dict[str, Any]:
    """What drafts, taken out of ``settings``: arguments of `load_drafter`."""
    from spectool.artifacts.artifact import read_manifest

    sources = {name: settings.pop(name) for name in DRAFT_SOURCES}
    if settings.pop("no_dict"):
        sources["dictionary"] = ()
    if sources["alignment"] is not None and sources["draft_model"] is None:
        raise click.UsageError("--alignment is for a draft model with another tokenizer: name it with --draft-model M2")
    files = [(name, ".dict") for name in sources["dictionary"] if name != AUTO]
    for name, suffix in [*files, *([(sources["alignment"], ".align")] if sources["alignment"] else [])]:
        read_manifest(find_artifact(Path(name), suffix))  # a mistake is said before a model is fetched
    return sources


def open_model(
    name: str, adapter_path: Path | None, pipeline: bool, **settings: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Load a model and its drafter; ``settings`` are the other values of `model_options`.

    Returns:
        The model, its tokenizer, and arguments of ``stream_generate``, including the drafter.
    """
    sources = sources_of(settings)

    import mlx.core as mx

    from spectool.runtime.loading import load_drafter, load_model
    from spectool.runtime.policy.costs import known_costs, new_policy
    from spectool.runtime.sampling.samplers import Sampling, make_logits_processors

    if sys.stderr.isatty():
        say(f"loading {name}")
    # Gigabytes are read once all else is there.
    model, tokenizer = load_model(name, adapter_path, lazy=True, pipeline=pipeline)
    fixed: Any = settings.pop("num_draft_tokens")
    drafter = None if fixed == 0 else load_drafter(tokenizer, **sources, say=say)
    costs = known_costs(model)
    longest = costs.longest_exact if costs is not None and costs.exact else math.inf
    if drafter is not None and fixed and fixed > longest:
        say(f"--num-draft-tokens {fixed} may change the bits, which `spectool doctor --exact` keeps up to {longest}")
    elif drafter is not None and fixed is None and longest == 0:
        say(
            "decoding plainly: `spectool doctor --exact` found that drafts change the bits. Run `spectool doctor` "
            "without --exact to draft again"
        )
        drafter = None
    sampler, stops = Sampling(**pop_settings(settings, SAMPLER)), settings.pop("stop_strings")
    mx.eval(model.parameters())
    if not settings.pop("measure") and fixed is None:
        fixed = new_policy(model, drafter, measure=False)
    arguments = {
        "drafter": drafter,
        "num_draft_tokens": fixed,
        "prompt_progress_callback": _say_reading,
        "sampler": sampler if sampler.temp else None,
        "logits_processors": make_logits_processors(**pop_settings(settings, PENALTIES)),
        "stop_strings": [text.replace("\\n", "\n").replace("\\t", "\t") for text in stops],
    }
    return model, tokenizer, arguments | settings


def _say_reading(fed: int, total: int) -> None:
    """Show on a terminal how much of a long prompt is read."""
    if total >= _LONG_PROMPT and sys.stderr.isatty():
        line = f"reading the prompt: {fed:,} of {total:,} tokens"
        click.echo(f"\r{line}" if fed < total else f"\r{' ' * len(line)}\r", nl=False, err=True)
