"""The options that ``generate`` and ``chat`` share beside those of sampling: model, drafting, template, cache.

``serve`` has those of drafting, too, and commands that measure have some of them: `model_option` and its like.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool import ArtifactError
from spectool.artifacts.console import Finite, Text, say
from spectool.artifacts.default_paths import find_artifact
from spectool.artifacts.manifest import read_manifest
from spectool.commands.option_sections import Decorator, together, under
from spectool.commands.sampling_options import sampling_arguments, sampling_options
from spectool.runtime.translation.factory import STRATEGIES

if TYPE_CHECKING:
    pass


class DraftLength(click.IntRange):
    """A number of draft tokens, or ``auto``: None."""

    name = "draft length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return None if value == "auto" else super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"expected auto or a number: {error.message}", param, ctx)


def _the_dictionary(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Path | None:
    """Return where the dictionary lies; None where none is given."""
    if len(values) > 1:
        raise click.BadParameter(
            f"expected one dictionary, got {len(values)}. Make one of them: spectool merge-dict "
            f"{' '.join(map(str, values))} -o NEW.dict",
            context,
            parameter,
        )
    try:
        return find_artifact(values[0], ".dict") if values else None
    except ArtifactError as error:
        raise click.BadParameter(str(error), context, parameter) from error


GROUP_SIZES = (32, 64, 128)
"""Numbers that MLX can quantise together."""


def _shared(*names: str, **settings: Any) -> Callable[..., Decorator]:
    """Return a function that makes an option of several commands.

    It takes what makes it, `click.option` by default, and settings in the place of these.
    """

    def make(option: Callable[..., Any] = click.option, **others: Any) -> Decorator:
        made: Decorator = option(*names, **(settings | others))
        return made

    return make


model_option = _shared(
    "--model",
    "--target",
    "model",
    required=True,
    metavar="M",
    help="Target model: directory or hub id, as for mlx-lm.",
)
min_draft_prob_option = _shared(
    "--min-draft-prob",
    type=Finite(0, 1),
    default=0.2,
    show_default=True,
    help="End proposals that get less probable than this: fewer, surer tokens.",
)
verify_option = _shared(
    "--verify",
    type=click.Choice(["exact", "rejection"]),
    default="rejection",
    show_default=True,
    help="Above temperature 0: exact keeps drafts that equal what is drawn; rejection keeps more of a model's, "
    "from the same distribution.",
)


_model = under("Model")
_drafting = under("Drafting")
_template = under("Chat template")
_cache = under("Cache")
drafting_options = together(
    _drafting(
        "--dict",
        "dictionary",
        type=click.Path(path_type=Path),
        multiple=True,  # to see a second one, which click would take in place of the first
        callback=_the_dictionary,
        metavar="DIR",
        help="Dictionary for the model's tokenizer, or its name (pl) if build-dict was given no -o.",
    ),
    _drafting(
        "--history/--no-history",
        default=True,
        show_default=True,
        help="Draft from what the prompt and the answer already said.",
    ),
    _drafting("--draft-model", "--draft", "draft_model", metavar="M2", help="Draft model: directory or hub id."),
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
    min_draft_prob_option(_drafting),
    verify_option(_drafting),
)
"""The options that say what drafts, and how much."""

model_options = together(
    model_option(_model),
    _model("--adapter-path", type=click.Path(path_type=Path), metavar="DIR", help="Trained adapter of the model."),
    drafting_options,
    _template("--system-prompt", type=Text(), metavar="TEXT", help="What the model is told before anything else."),
    _template(
        "--chat-template-config", metavar="JSON", help='Variables of the template, such as {"enable_thinking": false}.'
    ),
    sampling_options,
    _cache("--max-kv-size", type=click.IntRange(1), help="Keep only so many tokens in the cache."),
    _cache("--prefill-step-size", type=click.IntRange(1), default=2048, help="Prompt tokens in one pass."),
    _cache("--kv-bits", type=click.Choice(["2", "3", "4", "6", "8"]), help="Quantise the key-value cache."),
    _cache("--kv-group-size", type=click.Choice(list(map(str, GROUP_SIZES))), default="64", help="Its group size."),
    _cache(
        "--quantized-kv-start",
        type=click.IntRange(0),
        default=5000,
        show_default=True,
        help="Tokens in the cache from which on it is quantised.",
    ),
)
"""The options of model, drafting, template, sampling and cache."""


def take_drafting(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options that say what drafts out of ``options``; return them under the names of `load_drafter`.

    Raises:
        ArtifactError: The dictionary or the alignment is damaged. No model has been loaded yet, which takes longer.
    """
    drafting = {name: options.pop(name) for name in ("dictionary", "draft_model", "alignment", "strategy", "history")}
    for artifact in (drafting["dictionary"], drafting["alignment"]):
        if artifact is not None:
            read_manifest(artifact)
    return {**drafting, "min_probability": options.pop("min_draft_prob")}


def open_model(options: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Take the options of `model_options` but for the template's out of ``options``, and load what they name.

    Returns:
        The model, its tokenizer, and what ``stream_generate`` takes: the drafter among it.

    Raises:
        SpectoolError: Something that is named cannot be used.
    """
    drafting = take_drafting(options)

    import mlx.core as mx

    from spectool.runtime.loading import load_drafter, open_target

    kv_bits, group_size = (int(options.pop(name) or 0) for name in ("kv_bits", "kv_group_size"))
    name = options.pop("model")
    if sys.stderr.isatty():
        say(f"loading {name}")
    model, tokenizer, drafter = open_target(
        name,
        partial(load_drafter, **drafting),
        group_size if kv_bits else None,
        GROUP_SIZES,
        options.pop("adapter_path"),
    )
    unchanged = ("num_draft_tokens", "verify", "max_kv_size", "prefill_step_size", "quantized_kv_start")
    arguments = {
        "drafter": drafter,
        "kv_bits": kv_bits or None,
        "kv_group_size": group_size,
        **{name: options.pop(name) for name in unchanged},
        **sampling_arguments(model, tokenizer, options),
    }
    mx.eval(model.parameters())
    return model, tokenizer, arguments


def template_variables(text: str | None) -> dict[str, Any]:
    """Read ``--chat-template-config``."""
    try:
        variables = json.loads(text or "{}")
    except ValueError:
        variables = None
    if not isinstance(variables, dict):
        raise click.UsageError(f"--chat-template-config: expected a JSON object, got {text!r}")
    return variables
