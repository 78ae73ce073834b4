"""The options that ``generate`` and ``chat`` share beside those of sampling: model, drafting, template, cache.

``serve`` has those of drafting, too.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import Finite
from spectool.artifacts.manifest import read_manifest
from spectool.runtime.option_sections import under
from spectool.runtime.sampling_options import sampling_arguments, sampling_options
from spectool.runtime.strategies import STRATEGIES


class DraftLength(click.IntRange):
    """A number of draft tokens, or ``auto``: None."""

    name = "draft length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        return None if value == "auto" else super().convert(value, param, ctx)


_model = under("Model")
_drafting = under("Drafting")
_template = under("Chat template")
_cache = under("Cache")
_DRAFTING = (
    _drafting(
        "--dict",
        "dictionary",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Dictionary built for the model's tokenizer.",
    ),
    _drafting(
        "--history/--no-history",
        default=True,
        show_default=True,
        help="Draft from what the prompt and the answer already said.",
    ),
    _drafting("--draft-model", metavar="M2", help="Draft model: directory or hub id."),
    _drafting(
        "--alignment",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Alignment of M2's tokenizer with the model's, from `spectool align`; needed where they differ.",
    ),
    _drafting("--strategy", type=click.Choice(STRATEGIES), help="How drafts are translated then; anchored by default."),
    _drafting(
        "--num-draft-tokens",
        type=DraftLength(0),
        default="auto",
        show_default=True,
        metavar="auto|INTEGER",
        help="Draft tokens per verification at most; 0 decodes plainly, auto takes as many as pay.",
    ),
    _drafting(
        "--min-draft-prob",
        type=Finite(0, 1),
        default=0.2,
        show_default=True,
        help="End proposals of dictionary and history before they get less probable than this: fewer, surer tokens.",
    ),
    _drafting(
        "--verify",
        type=click.Choice(["exact", "rejection"]),
        default="exact",
        show_default=True,
        help="Above temperature 0: exact keeps drafts that equal what is drawn; rejection keeps more of a model's, "
        "from the same distribution.",
    ),
)


def drafting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what drafts, and how much."""
    for option in reversed(_DRAFTING):
        command = option(command)
    return command


_OPTIONS = (
    _model("--model", required=True, metavar="M", help="Target model: directory or hub id, as for mlx-lm."),
    _model("--adapter-path", type=click.Path(path_type=Path), metavar="DIR", help="Trained adapter of the model."),
    drafting_options,
    _template("--system-prompt", metavar="TEXT", help="What the model is told before anything else."),
    _template(
        "--chat-template-config",
        metavar="JSON",
        help='Variables of the template, such as {"enable_thinking": false}.',
    ),
    sampling_options,
    _cache("--max-kv-size", type=click.IntRange(1), help="Keep only so many tokens in the cache."),
    _cache("--prefill-step-size", type=click.IntRange(1), default=2048, help="Prompt tokens in one pass."),
    _cache("--kv-bits", type=click.Choice(["2", "3", "4", "6", "8"]), help="Quantise the key-value cache."),
    _cache("--kv-group-size", type=click.Choice(["32", "64", "128"]), default="64", help="Its group size."),
    _cache(
        "--quantized-kv-start",
        type=click.IntRange(0),
        default=5000,
        show_default=True,
        help="Tokens in the cache from which on it is quantised.",
    ),
)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of model, drafting, template, sampling and cache."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def open_model(options: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Take the options of `model_options` but for the template's out, and load what they name.

    Args:
        options: Values of all options by name.

    Returns:
        The model, its tokenizer, and what ``stream_generate`` takes: the drafter among it.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    drafting = {name: options.pop(name) for name in ("dictionary", "draft_model", "alignment", "strategy", "history")}
    for artifact in (drafting["dictionary"], drafting["alignment"]):
        if artifact is not None:
            read_manifest(artifact)  # before the model is loaded, which takes longer

    from spectool.runtime.loading import load_drafter, load_model

    model, tokenizer = load_model(options.pop("model"), options.pop("adapter_path"))
    drafter = load_drafter(tokenizer, **drafting, min_probability=options.pop("min_draft_prob"))
    kv_bits = options.pop("kv_bits")
    cache = {name: options.pop(name) for name in ("max_kv_size", "prefill_step_size", "quantized_kv_start")}
    return (
        model,
        tokenizer,
        {
            "drafter": drafter,
            "num_draft_tokens": options.pop("num_draft_tokens"),
            "verify": options.pop("verify"),
            "kv_bits": int(kv_bits) if kv_bits else None,
            "kv_group_size": int(options.pop("kv_group_size")),
            **cache,
            **sampling_arguments(tokenizer, options),
        },
    )


def template_variables(text: str | None) -> dict[str, Any]:
    """Read ``--chat-template-config``."""
    try:
        variables = json.loads(text or "{}")
    except ValueError:
        variables = None
    if not isinstance(variables, dict):
        raise click.UsageError(f"--chat-template-config: expected a JSON object, got {text!r}")
    return variables
