"""Drafters to be compared, from the options of `generate`. Nothing drafts by default, only what is named."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from spectool.artifacts.default_paths import AUTO
from spectool.commands.shared.load_model import check_drafting
from spectool.commands.shared.model_options import DraftingChoice, drafting_options
from spectool.measure.bench.results import DrafterSpec

_BY_DEFAULT = {"dictionaries": "--no-dict", "history": "--no-history"}  # and what turns each off
_SETTINGS = ("alignment", "min_probability")  # of something that drafts, which draft nothing themselves


@click.command(add_help_option=False)
@drafting_options
def _choose(drafting: DraftingChoice) -> DraftingChoice:
    return drafting


def drafter_of(options: Sequence[str]) -> DrafterSpec:
    """The drafter of some options."""
    defaults = {"dictionaries": (), "history": False}
    with _choose.make_context("drafter", list(options), default_map=defaults) as context:
        drafting: DraftingChoice = _choose.invoke(context)
        fixed = context.get_parameter_source("num_draft_tokens") is ParameterSource.COMMANDLINE
    if fixed:
        raise click.UsageError("give --num-draft-tokens to bench itself, for all drafters")
    if AUTO in drafting.dictionaries:
        raise click.UsageError("name the dictionaries instead of auto, so that the run says what it measured")
    if not any(value for name, value in drafting.sources.items() if name not in _SETTINGS):
        raise click.UsageError("expected something that drafts")
    check_drafting(drafting)
    off = [option for name, option in _BY_DEFAULT.items() if not getattr(drafting, name)]
    return DrafterSpec((*options, *off), drafting.sources, drafting.verify)


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
