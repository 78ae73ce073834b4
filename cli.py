"""The command line: parses and prints. Each package brings its own commands.

Command modules are light: what they need is imported when a command runs, so that
``spectool --help`` and the offline stages never import mlx. Commands that need both text
and the runtime are composed here.
"""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from spectool import __version__
from spectool.artifacts.console import guarded, say, show, table

_COMMANDS = {
    "build-dict": "spectool.build.dictionary.command:build_dict",
    "advise": "spectool.measure.advise.command:advise",
    "align": "spectool.build.alignment.command:align",
    "count": "spectool.build.counting.command:count",
    "emulate": "spectool.measure.emulate.command:emulate",
    "bench": "spectool.measure.bench.command:bench",
    "export-dict": "spectool.build.editing.commands:export_dict",
    "import-dict": "spectool.build.editing.commands:import_dict",
    "merge-dict": "spectool.build.editing.commands:merge_dict",
    "restrict-dict": "spectool.build.editing.commands:restrict_dict",
    "train-draft": "spectool.build.training.scratch.command:train_draft",
    "tune-draft": "spectool.build.training.tuning.command:tune_draft",
    "fairness": "spectool.measure.fairness.command:fairness",
    "generate": "spectool.runtime.commands.generate:generate",
    "chat": "spectool.runtime.commands.chat:chat",
    "report": "spectool.measure.report.command:report",
    "serve": "spectool.runtime.serve.command:serve",
    "inspect": "spectool.artifacts.commands:inspect",
    "verify": "spectool.artifacts.commands:verify",
}
_PURPOSES = {
    "Use": ("generate", "chat", "serve", "demo"),
    "Dictionaries": ("build-dict", "count", "merge-dict", "restrict-dict", "export-dict", "import-dict"),
    "Another tokenizer": ("align",),
    "Measure": ("emulate", "bench", "report", "fairness", "advise"),
    "Draft models": ("train-draft", "tune-draft"),
    "Any artifact": ("inspect", "verify"),
}
_DEMO_DRAFT_TOKENS = 4
_DEMO_MIN_DRAFT_PROB = 0.3  # a wrong draft token costs as much as a right one
_DEMO_PROMPTS = (
    "Most w Jaworowcu zamknięty do końca",
    "Jak naprawić przebitą dętkę w rowerze",
    "— Mamo, a dlaczego niebo jest",
    "Wczoraj wieczorem w domu kultury",
    "Старий млин у Долинівці перетворили на",
    "Як залатати велосипедну камеру в дорозі",
    "Негода на Приліщині: синоптики радять не",
    "Учора ввечері в міській бібліотеці",
)


class _LazyGroup(click.Group):
    """Imports the module of a command when it is needed."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for purpose, names in _PURPOSES.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(200)) for name, command in commands if command is not None]
            with formatter.section(purpose):
                formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _COMMANDS[cmd_name].partition(":")
        return _imported(module, name)


@guarded
def _imported(module: str, name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(module), name)
    return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spectool")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Faster local language models for the languages that tokenizers shred.

    \b
    Once:        spectool build-dict --tokenizer ./model --corpus wiki-pl -o pl.dict
    Every time:  spectool generate --model ./model --dict pl.dict --prompt "…"

    The output is what the model alone would give; only the number of passes changes.
    """


@main.command()
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
        _demo_artifacts(work)
        say(f"generating {len(_DEMO_PROMPTS)} texts of at most {max_tokens} tokens in every way")
        _demo_generation(work, max_tokens)


def _demo_artifacts(work: Path) -> None:
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


def _demo_generation(work: Path, max_tokens: int) -> None:
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
        "dictionary": LookupDrafter(dictionary, min_probability=_DEMO_MIN_DRAFT_PROB),
        "history": LookupDrafter(history=True, min_probability=_DEMO_MIN_DRAFT_PROB),
        "draft model": draft_model(),
        "hybrid of all": HybridDrafter([LookupDrafter(dictionary, True, _DEMO_MIN_DRAFT_PROB), draft_model()]),
    }
    prompts = [loaded.encode(prompt) for prompt in _DEMO_PROMPTS]
    with tqdm(total=len(prompts), desc="generating", disable=None) as bar:
        rows = run_side_by_side(
            model, prompts, drafters, max_tokens, frozenset(tokenizer.roles.eos), _DEMO_DRAFT_TOKENS, bar.update
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
    cost = pass_cost(model, _DEMO_DRAFT_TOKENS + 1)
    click.echo(
        f"a pass over {_DEMO_DRAFT_TOKENS + 1} tokens takes {cost:.1f} times one over a single token on this machine: "
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


if __name__ == "__main__":
    main()
