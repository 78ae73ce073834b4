"""The command ``demo``: from text to artifacts to generation, offline, on what the package bundles."""

import tempfile
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from spectool.artifacts.console import guarded, say, show, table

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
@click.option("--max-tokens", type=click.IntRange(1), default=96, show_default=True, help="Tokens for each prompt.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the artifacts there, to inspect them.",
)
@guarded
def demo(max_tokens: int, keep: Path | None) -> None:
    """Do the main job offline on what the package bundles, in about a minute.

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
        _generation(work, max_tokens)


def _artifacts(work: Path) -> None:
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.build.alignment.stage import build_alignment
    from spectool.build.counting.stage import CountOptions
    from spectool.build.dictionary.backoff_stage import BackoffOptions, count_and_build
    from spectool.corpora import open_corpus, sample_path
    from spectool.runtime.demo_models import demo_path

    samples = open_corpus(str(sample_path("pl").parent))
    target = open_tokenizer(demo_path("target"))
    # The models know the samples by heart: what occurred once is nearly as sure as what occurred often.
    options = BackoffOptions(discount=0.3)
    dictionary = count_and_build(
        target, samples, work / "demo.dict", options, CountOptions(min_count=1), lambda step: None
    )
    aligned = build_alignment(
        open_tokenizer(demo_path("other")), target, samples, work / "demo.align", lambda step: None
    )
    draft = aligned.statistics["draft"]["coverage"]
    facts = {
        "dictionary": f"{dictionary.statistics['entries']:,} entries, {dictionary.total_bytes:,} bytes",
        "alignment": f"{draft['by_vocabulary']:.0%} of another tokenizer's ids shared, "
        f"{draft['by_occurrence']:.0%} of its tokens in the samples",
    }
    show(facts, as_json=False)


def _generation(work: Path, max_tokens: int) -> None:
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.measure.side_by_side import pass_cost, run_side_by_side
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.drafters.draft_model import ModelDrafter
    from spectool.runtime.drafters.hybrid import HybridDrafter
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import open_dictionary
    from spectool.runtime.models import load_model

    model, loaded = load_model(str(demo_path("target")))
    tokenizer = open_tokenizer(loaded)

    dictionary = open_dictionary(work / "demo.dict", tokenizer)

    def draft_model() -> Any:
        return ModelDrafter(load_model(str(demo_path("draft")))[0])

    drafters = {
        "dictionary": LookupDrafter(dictionary, min_probability=_MIN_DRAFT_PROB),
        "history": LookupDrafter(history=True, min_probability=_MIN_DRAFT_PROB),
        "draft model": draft_model(),
        "hybrid of all": HybridDrafter([LookupDrafter(dictionary, True, _MIN_DRAFT_PROB), draft_model()]),
    }
    prompts = [loaded.encode(prompt) for prompt in _PROMPTS]
    with tqdm(total=len(prompts), desc="generating", disable=None) as bar:
        rows = run_side_by_side(
            model, prompts, drafters, max_tokens, frozenset(tokenizer.roles.eos), _DRAFT_TOKENS, bar.update
        )
    click.echo()
    lines = [
        [
            row.name,
            f"{row.statistics.tokens_per_pass:.2f}",
            f"{row.statistics.acceptance_rate:.0%}" if row.statistics.proposed else "",
            f"{row.statistics.tokens / row.seconds:.0f}",
            f"{rows[0].seconds / row.seconds:.2f}",
        ]
        for row in rows
    ]
    click.echo(table(["", "tokens per pass", "acceptance", "tokens per second", "speed-up"], lines))
    click.echo()
    cost = pass_cost(model, _DRAFT_TOKENS + 1)
    click.echo(
        f"a pass over {_DRAFT_TOKENS + 1} tokens takes {cost:.1f} times one over a single token on this machine: "
        "the nearer to 1, the more of the tokens per pass becomes speed"
    )
    differences = [(row.name, difference) for row in rows for difference in row.differences]
    total = len(drafters) * len(prompts)
    click.echo(f"output identical to plain decoding: {total - len(differences)} of {total} texts")
    for name, difference in differences:
        click.echo(
            f"  {name}, text {difference.prompt + 1}: differs at token {difference.position + 1}, where the two best "
            f"logits are {difference.gap:.2g} apart"
        )
