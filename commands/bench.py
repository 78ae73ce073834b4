"""The command ``bench``: drafters measured on this machine, and a page that says whether drafting pays."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.default_paths import AUTO
from spectool.commands.shared.console import say, show
from spectool.commands.shared.model_options import (
    DRAFT_SOURCES,
    DraftLength,
    drafter_options,
    follow_rank_0,
    model_option,
    pipeline_option,
    sources_of,
)
from spectool.commands.shared.options import Finite, Whole, command, option, path_option
from spectool.measure.bench.prompts import LANGUAGES
from spectool.runtime.settings import LONGEST_DRAFT

if TYPE_CHECKING:
    from spectool.measure.bench.results import DrafterSpec

_ABOUT = ("alignment", "min_probability")  # say how something drafts


@command("bench")
@model_option
@option(
    "--drafter",
    "drafters",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="What drafts: options of `generate` joined by commas, such as dict=pl.dict,history or draft-model=M. Nothing "
    "else drafts; name=… is for tables. May be repeated, to compare.",
)
@option("--prompts", required=True, metavar="P", help=f"{', '.join(LANGUAGES)}: built-in prompts; or a corpus.")
@option("--count", type=Whole(1), help="Number of prompts; by default 60 of a language, 12 of a corpus.")
@option(
    "--num-draft-tokens", type=DraftLength(1, LONGEST_DRAFT), multiple=True, default=["auto"], help="May be repeated."
)
@option("--tokens", type=Whole(1, 1 << 16), default=128, help="Maximum number after each prompt.")
@option("--temp", "--temperature", type=Finite(0, 1000), default=0.0, help="Temperature.")
@pipeline_option
@option("--ignore-eos", is_flag=True, help="Continue where the model would end its text.")
@path_option("-o", "--out", required=True, metavar="RUN", help="New folder to write.")
@option("--window", type=Whole(0), default=0, help="Tokens of each prompt from a corpus; 0 for all.")
@option("--seed", type=Whole(0), default=0, help="Seed for the order and for sampling.")
def bench(drafters: tuple[str, ...], out: Path, as_json: bool, **settings: Any) -> None:
    """Measure drafters, and say whether drafting pays on this machine.

    Each prompt is decoded by mlx-lm's own loop and with every drafter, in a random order. The page with the verdict is
    RUN/report.md; after Ctrl-C or SIGTERM, it has what was measured so far.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench --model ./Bielik-11B --drafter history --prompts news.txt --window 256 -o news.bench
    """
    from spectool.measure.bench.results import PAGE, PLAIN, DrafterSpec, Options, differences, page, verdict_of
    from spectool.measure.bench.run import run_benchmark

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    follow_rank_0(settings["model"], settings["pipeline"])
    named: dict[str, DrafterSpec] = {}
    for text in drafters:
        name, spec = named_drafter(text)
        if name in (PLAIN, *named):
            raise click.UsageError(f"--drafter {text}: expected a name that none has yet, got {name!r}. Add name=…")
        named[name] = spec
    run = run_benchmark(Options(drafters=named, **settings), out, say)
    if as_json:
        facts = {"page": str(out / PAGE), "blocks": len(run.blocks), **differences(run), **verdict_of(run).facts}
        show(facts, as_json)
    else:
        click.echo(page(run), nl=False)
        say(f"\nthis page: {out / PAGE}")


@click.command(add_help_option=False)
@drafter_options
def _choose(**chosen: Any) -> dict[str, Any]:
    return chosen


def drafter_of(options: Sequence[str]) -> "DrafterSpec":
    """The drafter of some options of `generate`; nothing drafts by default, only what is named."""
    from spectool.measure.bench.results import DrafterSpec

    chosen = _choose.main(list(options), standalone_mode=False, default_map={"dictionary": (), "history": False})
    if AUTO in (*chosen["dictionary"], chosen["draft_model"]):
        raise click.UsageError("name what drafts instead of auto, so that the run says what it measured")
    sources = sources_of(chosen)
    if not any(sources[name] for name in DRAFT_SOURCES if name not in _ABOUT):
        raise click.UsageError("expected something that drafts")
    off = [f"--no-{option}" for option, each in (("dict", "dictionary"), ("history", "history")) if not sources[each]]
    return DrafterSpec((*options, *off), sources)


def named_drafter(text: str) -> tuple[str, "DrafterSpec"]:
    """The drafter of a text such as ``name=both,dict=pl.dict,history``, and its name."""
    parts = [part.partition("=") for part in text.split(",")]
    options = [word for key, _, value in parts if key != "name" for word in (f"--{key}", value) if word]
    made_of = "+".join(Path(value).name or key for key, _, value in parts)
    try:
        return next((value for key, _, value in parts if key == "name"), made_of), drafter_of(options)
    except click.UsageError as error:
        raise click.UsageError(
            f"--drafter {text}: {error.message.rstrip('.')}. Join options of `spectool generate` by commas"
        ) from error
