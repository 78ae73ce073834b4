"""The command ``bench``: drafters measured on this machine, and a page that says whether drafting pays."""

from pathlib import Path

import click

from spectool.commands.shared.console import progress, say, show, table
from spectool.commands.shared.drafter_spec import named_drafter
from spectool.commands.shared.model_options import DraftLength, model_option
from spectool.commands.shared.options import Finite, Whole, command, option, path_option


@command("bench")
@model_option()
@option(
    "--drafter",
    "drafters",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="What drafts: options of `generate` joined by commas, such as dict=pl.dict,history or draft-model=M. Nothing "
    "else drafts; name=… is for tables. May be repeated, to compare.",
)
@option(
    "--prompts",
    multiple=True,
    required=True,
    metavar="P",
    help="pl, uk, en, crh, crh-cyrl: built-in prompts, pl:list for one kind of them; or a corpus, as for build-dict. "
    "May be repeated.",
)
@option(
    "--count",
    type=Whole(1),
    help="Total number of prompts, the first of each source and kind; by default 60 per language, 12 per corpus.",
)
@option(
    "--num-draft-tokens",
    type=DraftLength(1),
    multiple=True,
    metavar="auto|N",
    help="Draft length; auto by default, may be repeated.",
)
@option(
    "--tokens",
    type=Whole(1, 1 << 16),
    default=128,
    show_default=True,
    help="Maximum number of tokens after each prompt.",
)
@option(
    "--temp",
    "--temperature",
    "temperatures",
    type=Finite(0, 1000),
    multiple=True,
    metavar="T",
    help="Temperature; 0 by default, may be repeated.",
)
@option("--ignore-eos", is_flag=True, help="Continue where the model would end its text.")
@path_option("-o", "--out", required=True, metavar="RUN", help="New folder to write.")
@option("--window", type=Whole(0), default=0, help="Tokens of each prompt from a corpus; 0 for all.", rare=True)
@option("--seed", type=Whole(0), default=0, help="Seed for the order and for sampling; 0 by default.", rare=True)
@option("--pause", type=Finite(0), default=0.0, help="Seconds of rest before each prompt.", rare=True)
def bench(
    model: str,
    drafters: tuple[str, ...],
    prompts: tuple[str, ...],
    count: int | None,
    num_draft_tokens: tuple[int | None, ...],
    tokens: int,
    temperatures: tuple[float, ...],
    ignore_eos: bool,
    out: Path,
    window: int,
    seed: int,
    pause: float,
    as_json: bool,
) -> None:
    """Measure drafters, and say whether drafting pays on this machine.

    Each prompt is decoded by mlx-lm's own loop and with every drafter, in a random order. The page with the verdict is
    RUN/report.md; after Ctrl-C, it has what was measured so far.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench --model ./Bielik-11B --drafter history --prompts news.txt --window 256 -o news.bench
    """
    from spectool.artifacts.atomic import require_new
    from spectool.measure.bench.prompts import is_built_in
    from spectool.measure.bench.results import differences, summary_table, verdicts
    from spectool.measure.bench.run import run_benchmark
    from spectool.measure.bench.run_file import PAGE, PLAIN, DrafterSpec, Options
    from spectool.measure.intervals import LEAST

    require_new(out)
    if window and all(map(is_built_in, prompts)):
        raise click.UsageError("--window applies to prompts from a corpus, and all of these are built in")
    named: dict[str, DrafterSpec] = {}
    for text in drafters:
        name, spec = named_drafter(text)
        if name in (PLAIN, *named):
            raise click.UsageError(f"--drafter {text}: expected a name that none has yet, got {name!r}. Add name=…")
        named[name] = spec
    options = Options(
        model=model,
        drafters=named,
        prompts=prompts,
        count=count,
        window=window,
        num_draft_tokens=tuple(dict.fromkeys(num_draft_tokens)) or (None,),
        tokens=tokens,
        temperatures=tuple(dict.fromkeys(temperatures)) or (0.0,),
        seed=seed,
        ignore_eos=ignore_eos,
        pause=pause,
    )
    run = run_benchmark(options, out, say, progress)
    found = verdicts(run)
    if short := len({block.prompt for block in run.blocks if not block.long_enough}):
        say(
            f"left out: {short} prompts, because some output has fewer than {LEAST} tokens. --ignore-eos goes on after "
            "the model ends its text"
        )
    facts = {"page": str(out / PAGE), **differences(run), "verdict": [verdict.sentence for verdict in found]}
    if as_json:
        facts |= {"configurations": [one.figures() for verdict in found for one in verdict.results]}
        facts |= {"looping_or_echoing": [one.figures() for verdict in found for one in verdict.apart]}
        show({**facts, "blocks": len(run.blocks)}, as_json)
        return
    click.echo(table(*summary_table(found)) + "\n")
    show({name: facts[name] for name in ("page", "differences", "verdict")}, as_json)
