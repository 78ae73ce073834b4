"""Options of commands that run a model, and what they name, loaded.

``generate`` and ``chat`` have all of these options, other commands some.
"""

import math
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.artifacts.default_paths import AUTO, find_artifact
from spectool.commands.shared.console import say
from spectool.commands.shared.options import (
    Decorator,
    Finite,
    Whole,
    json_object,
    option,
    option_group,
    path_option,
    texts_option,
)
from spectool.runtime.settings import LONGEST_DRAFT, PENALTIES, SAMPLER, SETTINGS, Setting

_LONG_PROMPT = 256  # tokens, which a large model reads for seconds


class DraftLength(Whole):
    """A number of draft tokens, or ``auto``, which becomes None."""

    name, metavar = "number or auto", "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or None."""
        return None if value == "auto" else super().convert(value, param, ctx)


_model = partial(option, heading="Model")
_prompt = partial(option, heading="Prompt")
_drafting = partial(option, heading="Drafting")
_sampling = partial(option, heading="Sampling")

model_option = _model(
    "--model", "--target", "model", required=True, metavar="M", help="Model: directory or hub id, as for mlx-lm."
)
pipeline_option = _model("--pipeline", is_flag=True, help="Under mlx.launch, give each process whole layers.")
draft_model_option = partial(option, "--draft-model", "--draft", "draft_model", metavar="D")


def sampling_options(heading: str) -> Decorator:
    """The options of all settings of sampling that have one."""
    options = []
    for name, setting in SETTINGS.items():
        if setting.help:
            kind: Any = Whole if setting.whole else Finite
            within = kind(setting.least, None if setting.most == math.inf else setting.most)
            flag = f"--{name.replace('_', '-')}"
            options.append(option(flag, type=within, default=setting.default, help=setting.help, heading=heading))
    return option_group(*options)


def pop_settings(values: dict[str, Any], among: Mapping[str, Setting] = SETTINGS) -> dict[str, Any]:
    """Those of the values of `sampling_options` that are ``among`` some settings, taken out of ``values``."""
    return {name: values.pop(name) for name in among if name in values}


DRAFT_SOURCES = {
    "dictionary": option_group(
        _drafting(
            "--dict",
            "dictionary",
            multiple=True,
            default=[AUTO],
            metavar="FILE",
            help="Dictionary for this tokenizer, or its name; may be repeated. auto uses those that build-dict "
            "and setup put in your cache folder.",
        ),
        _drafting("--no-dict", is_flag=True, help="Draft without dictionaries, even if some are named."),
    ),
    "history": _drafting("--history/--no-history", default=True, help="Draft from the text so far."),
    "draft_model": draft_model_option(
        help="Draft model: directory, hub id or name in your cache folder; auto uses the one there that was last "
        "aligned with this tokenizer.",
        heading="Drafting",
    ),
    "alignment": path_option(
        "--alignment", metavar="FILE", help="Output of `spectool align`, if not in your cache.", heading="Drafting"
    ),
    "min_probability": _drafting(
        "--min-draft-prob",
        "min_probability",
        type=Finite(0, 1),
        metavar="P",
        help="Stop drafting when the probability of the draft falls below this; by default 0.05 for dictionaries and "
        "history, 0.4 for draft models.",
    ),
}
"""All that drafts, by its argument of `load_drafter`. Options and drafters that are compared follow from it."""

drafter_options = option_group(*DRAFT_SOURCES.values())
"""What drafts, which `sources_of` takes."""

running_options = option_group(
    model_option,
    path_option("--adapter-path", metavar="DIR", help="LoRA adapter of the model, as for mlx-lm.", heading="Model"),
    pipeline_option,
    _prompt(
        "--chat-template-config",
        "template_variables",
        type=json_object,
        default="{}",
        metavar="JSON",
        help='Variables of the chat template, such as {"enable_thinking": false}.',
    ),
    drafter_options,
    _drafting(
        "--num-draft-tokens",
        type=DraftLength(0, LONGEST_DRAFT),
        default="auto",
        help="Maximum number of draft tokens per pass; 0 decodes plainly, auto finds the fastest.",
    ),
    _drafting("--measure/--no-measure", default=True, help="Time the model's passes when it first drafts here."),
    option(
        "--kv-bits", type=click.Choice([2, 3, 4, 6, 8]), help="Quantise the cache after 5,000 tokens.", heading="Cache"
    ),
)
"""Of all that writes with a model: which one, what drafts, and what it keeps."""

model_options = option_group(
    running_options,
    _prompt("--system-prompt", help="System message."),
    _sampling("-m", "--max-tokens", type=Whole(1), default=256, help="Maximum number of tokens to generate."),
    sampling_options("Sampling"),
    _sampling("--seed", type=Whole(0, 2**64 - 1), help="Seed; the same command then draws the same text again."),
    texts_option(
        "--stop", "stop_strings", help="End before this (\\n: line end, \\t: tab); may be repeated.", heading="Sampling"
    ),
)
"""What `open_model` takes, and ``system_prompt`` and ``template_variables``."""


def follow_rank_0(model: str, pipeline: bool, adapter_path: Any = None) -> None:
    """Under ``mlx.launch``, where all processes run the same command: follow rank 0 until it ends.

    Returns on rank 0, and where there is one process.
    """
    from spectool.runtime.groups.link import joined, world

    if world().size() == 1:
        if pipeline:
            raise click.UsageError("--pipeline is for several processes: mlx.launch -n 2 spectool … --pipeline")
        return
    watch, context = joined(), click.get_current_context()

    def tell() -> None:
        if isinstance(error := sys.exception(), Exception):
            watch.end(SpectoolError(error))

    context.call_on_close(tell)
    if world().rank() == 0:
        return

    from spectool.runtime.groups import others
    from spectool.runtime.loading import load_model

    others.follow_rank_0(load_model(model, adapter_path, pipeline=pipeline)[0])


def sources_of(settings: dict[str, Any]) -> dict[str, Any]:
    """What drafts, taken out of ``settings``: arguments of `load_drafter`."""
    from spectool.artifacts.artifact import read_manifest
    from spectool.runtime.loading import local_model

    sources = {name: settings.pop(name) for name in DRAFT_SOURCES}
    if settings.pop("no_dict"):
        sources["dictionary"] = ()
    if sources["alignment"] is not None and sources["draft_model"] is None:
        raise click.UsageError("--alignment is for a draft model with another tokenizer: name it with --draft-model D")
    files = [(name, ".dict") for name in sources["dictionary"] if name != AUTO]
    for name, suffix in [*files, *([(sources["alignment"], ".align")] if sources["alignment"] else [])]:
        read_manifest(find_artifact(Path(name), suffix))  # a mistake is said before a model is fetched
    if sources["draft_model"] not in (None, AUTO):
        local_model(sources["draft_model"])
    return sources


def open_model(
    name: str, adapter_path: Path | None, pipeline: bool, **settings: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """A model by the values of `model_options`, its tokenizer, and arguments of ``stream_generate``, with a drafter."""
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
        say("decoding plainly, as `spectool doctor --exact` asks for. Run `spectool doctor` without it to draft again")
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
