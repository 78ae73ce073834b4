"""Drafters to be compared, from the options of `generate`. Nothing drafts by default, only what is named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.default_paths import AUTO
from spectool.commands.shared.model_options import DRAFT_SOURCES, drafting_options, sources_of
from spectool.measure.bench.results import DrafterSpec

_ABOUT = ("alignment", "min_probability")  # say how something drafts


@click.command(add_help_option=False)
@drafting_options
def _choose(**chosen: Any) -> dict[str, Any]:
    return chosen


def drafter_of(options: Sequence[str]) -> DrafterSpec:
    """The drafter of some options."""
    if "--num-draft-tokens" in options:
        raise click.UsageError("give --num-draft-tokens to bench itself, for all drafters")
    chosen = _choose.main(list(options), standalone_mode=False, default_map={"dictionary": (), "history": False})
    if AUTO in (*chosen["dictionary"], chosen["draft_model"]):
        raise click.UsageError("name what drafts instead of auto, so that the run says what it measured")
    if not any(chosen[name] for name in DRAFT_SOURCES if name not in _ABOUT):
        raise click.UsageError("expected something that drafts")
    sources = sources_of(chosen)
    off = [f"--no-{option}" for option, each in (("dict", "dictionary"), ("history", "history")) if not sources[each]]
    return DrafterSpec((*options, *off), sources, chosen["verify"])


def named_drafter(text: str) -> tuple[str, DrafterSpec]:
    """The drafter of a text such as ``name=both,dict=pl.dict,history``, and its name."""
    parts = [part.partition("=") for part in text.split(",")]
    options = [word for key, _, value in parts if key != "name" for word in (f"--{key}", value) if word]
    made_of = "+".join(Path(value).name or key for key, _, value in parts)
    try:
        return next((value for key, _, value in parts if key == "name"), made_of), drafter_of(options)
    except click.UsageError as error:
        raise click.UsageError(
            f"--drafter {text}: {error.message.rstrip('.')}. Join options of `spectool generate` by commas, such as "
            "dict=pl.dict,history or draft-model=M,alignment=pair.align"
        ) from error
