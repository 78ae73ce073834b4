"""The command ``bench``: drafters measured on this machine, and a page that says whether drafting pays."""

from pathlib import Path
from typing import Any

import click

from spectool.artifacts.default_paths import AUTO
from spectool.commands.shared.console import progress, say, show, table
from spectool.commands.shared.model_options import DraftLength, model_option
from spectool.commands.shared.options import Finite, Whole, command, option, path_option

_KEYS = {"name": "name", "dict": "dictionaries", "model": "draft_model", "align": "alignment", "verify": "verify"}
_WAYS = ("exact", "rejection")


@command("bench")
@model_option()
@option(
    "--drafter",
    "drafters",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="What drafts, joined by commas: dict=… (one or more), history, model=…, align=…; name=… is for tables, and "
    "verify=… as in `generate`. May be repeated, to compare.",
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
@path_option("-o", "--out", required=True, metavar="RUN", help="Folder to write.")
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

    Each prompt is decoded by mlx-lm's own loop and with every drafter, in a random order. If a run is killed, the same
    command resumes it. Its last step writes a page with the verdict, RUN/report.md; for a run that is whole, it writes
    the page again.

    \b
    Examples:
        spectool bench --model ./Bielik-11B --drafter dict=pl.dict,history --prompts pl -o bielik.bench
        spectool bench --model ./Bielik-11B --drafter history --prompts news.txt --window 256 -o news.bench
    """
    from pydantic import ValidationError

    from spectool.measure.bench.prompts import is_built_in
    from spectool.measure.bench.results import (
        describe_differences,
        differences,
        left_out,
        summary_table,
        verdicts,
    )
    from spectool.measure.bench.run import run_benchmark
    from spectool.measure.bench.run_file import PAGE, PLAIN, RUN_FILE, DrafterSpec, Options
    from spectool.measure.checked import problems
    from spectool.measure.intervals import LEAST

    if window and all(map(is_built_in, prompts)):
        raise click.UsageError("--window applies to prompts from a corpus, and all of these are built in")
    named: dict[str, DrafterSpec] = {}
    try:
        for text in drafters:
            name, keys = _drafter(text)
            if name in (PLAIN, *named):
                raise click.UsageError(f"--drafter {text}: expected a name that none has yet, got {name!r}. Add name=…")
            named[name] = DrafterSpec(**keys)
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
        )
    except ValidationError as error:
        raise click.UsageError(problems(error)) from error
    try:
        run = run_benchmark(options, out, pause, say, progress)
    except KeyboardInterrupt as stop:
        if (out / RUN_FILE).exists():
            stop.args = (f"Interrupted. What is measured is kept in {out}; the same command continues from there.",)
        raise

    found, compared = verdicts(run), differences(run)
    if short := left_out(run):
        say(
            f"left out: {short} prompts, because some output has fewer than {LEAST} tokens. --ignore-eos goes on after "
            "the model ends its text"
        )
    facts: dict[str, Any] = {"page": str(out / PAGE), "different": describe_differences(compared)}
    facts |= {"verdict": [verdict.sentence for verdict in found]}
    if as_json:
        results = [one.figures() for verdict in found for one in verdict.results]
        show({**facts, **compared, "blocks": len(run.blocks), "configurations": results}, as_json)
        return
    header, rows = summary_table(found)
    click.echo(table(header, rows) + "\n")
    show(facts, as_json)


def _drafter(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``--drafter``: a name for the tables, and the fields of a `DrafterSpec`."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if part == "history":
            found["history"] = True
        elif key == "dict" and value:
            found["dictionaries"] = (*found.get("dictionaries", ()), value)
        elif key in _KEYS and value:
            found[_KEYS[key]] = value
        else:
            expected = ", ".join(["history", *(f"{name}=…" for name in _KEYS)])
            raise click.UsageError(f"--drafter {text}: {part!r}: expected one of {expected}")
    name, model, dictionaries = found.pop("name", None), found.get("draft_model"), found.get("dictionaries", ())
    made_of = [Path(part).name for part in ([model] if model else []) + list(dictionaries)]
    made_of += ["history"] * ("history" in found)
    for holds, expected in (
        (made_of, "something that drafts: dict=…, history or model=…"),
        (model or "alignment" not in found, "a model=… with align=…"),
        (found.get("verify") in (None, *_WAYS), f"verify={' or verify='.join(_WAYS)}"),
        (model or found.get("verify") != "rejection", "a model=… with verify=rejection"),
        (AUTO not in dictionaries, "names of dictionaries, so that the run says what it measured"),
    ):
        if not holds:
            raise click.UsageError(f"--drafter {text}: expected {expected}")
    return name or " ".join(["+".join(made_of), *([found["verify"]] if "verify" in found else [])]), found
