"""The command ``demo``: from text to artifacts to generation, offline, on what the package bundles."""

import tempfile
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.console import guarded, say, show

_DRAFT_TOKENS = 4
_MIN_DRAFT_PROB = 0.3  # a wrong draft token costs as much as a right one
_PROMPTS = (
    "Most w Jaworowcu zamknięty do końca",
    "Jak naprawić przebitą dętkę w rowerze",
    "— Mamo, a dlaczego niebo jest",
    "Wczoraj wieczorem w domu kultury",
    "Старий млин у Долинівці перетворили на",
    "Як залатати велосипедну камеру в дорозі",
    "Негода на Приліщині: синоптики радять не",
    "Учора ввечері в міській бібліотеці",
)


@click.command()
@click.option("--max-tokens", type=click.IntRange(8), default=96, show_default=True, help="Tokens for each prompt.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the artifacts there, to inspect them."
)
@guarded
def demo(max_tokens: int, keep: Path | None) -> None:
    """Do the main job offline on what the package bundles, in a minute or two.

    A tiny target and a tinier draft, trained on the bundled samples, show the way from text to
    artifacts to generation. They have learned the samples by heart: the figures say that the path
    works and nothing about your model.

    \b
    Example:
        spectool demo --keep ./demo
    """
    with tempfile.TemporaryDirectory() as scratch:
        work = keep or Path(scratch)
        say("building a dictionary and an alignment from the bundled samples")
        _artifacts(work)
        say(f"generating {len(_PROMPTS)} texts of at most {max_tokens} tokens with every drafter")
        _generation(work, Path(scratch), max_tokens)


def _artifacts(work: Path) -> None:
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.build.alignment.stage import build_alignment
    from spectool.build.counting.options import CountOptions
    from spectool.build.dictionary.backoff_stage import count_and_build
    from spectool.build.dictionary.options import BackoffOptions
    from spectool.build.inputs import quiet
    from spectool.corpora import open_corpus, sample_path
    from spectool.runtime.demo_models import demo_path

    samples = open_corpus(str(sample_path("pl").parent))
    target = open_tokenizer(demo_path("target"))
    # The models know the samples by heart: what occurred once is nearly as sure as what occurred often.
    options = BackoffOptions(discount=0.3)
    dictionary = count_and_build(target, samples, work / "demo.dict", options, CountOptions(min_count=1), quiet)
    aligned = build_alignment(open_tokenizer(demo_path("other")), target, samples, work / "demo.align", quiet)
    draft = aligned.statistics["draft"]["coverage"]
    facts = {
        "dictionary": f"{dictionary.statistics['entries']:,} entries, {dictionary.total_bytes:,} bytes",
        "alignment": f"{draft['by_vocabulary']:.0%} of another tokenizer's ids shared, "
        f"{draft['by_occurrence']:.0%} of its tokens in the samples",
    }
    show(facts, as_json=False)


def _generation(work: Path, scratch: Path, max_tokens: int) -> None:
    from spectool.measure.bench.command import differences, figures_table
    from spectool.measure.bench.experiment import make_experiment
    from spectool.measure.bench.running import run_experiment
    from spectool.measure.bench.timing import pass_cost
    from spectool.measure.report.summary import main_figures
    from spectool.measure.report.trials import read_trials
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.models import load_model

    target, dictionary, draft = str(demo_path("target")), str(work / "demo.dict"), str(demo_path("draft"))
    drafters: dict[str, dict[str, Any]] = {
        "dictionary": {"dictionary": dictionary},
        "history": {"history": True},
        "draft model": {"draft_model": draft},
        "hybrid of all": {"dictionary": dictionary, "draft_model": draft, "history": True},
    }
    named = [{"name": name, "min_draft_prob": _MIN_DRAFT_PROB, **made} for name, made in drafters.items()]
    model = {"name": "demo", "path": target, "drafters": named}
    texts = scratch / "prompts.txt"
    texts.write_text("\n".join(_PROMPTS) + "\n", encoding="utf-8")
    prompts = {"source": str(texts), "language": "pl, uk"}
    keys = {"models": [model], "prompts": [prompts], "num_draft_tokens": [_DRAFT_TOKENS], "tokens": max_tokens}
    run = run_experiment(make_experiment(keys), scratch / "demo.bench", None)
    click.echo(f"\n{figures_table(main_figures(read_trials(run)))}\n")
    cost = pass_cost(load_model(target)[0], _DRAFT_TOKENS + 1)
    click.echo(
        f"a pass over {_DRAFT_TOKENS + 1} tokens takes {cost:.1f} times one over a single token on this machine: "
        "the nearer to 1, the more of the tokens per pass becomes speed"
    )
    click.echo(f"output that differs from plain decoding: {differences(run.manifest.statistics)}")
