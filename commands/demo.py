"""The command ``demo``: from text to a dictionary to generation, offline, with what the package bundles."""

import tempfile
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import say, table
from spectool.commands.shared.options import Whole, command, option

_DRAFT_TOKENS = 4
_SHOWN_TOKENS = 48  # of the text that shows its drafts
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


@command("demo", json=False)
@option("--max-tokens", type=Whole(8), default=64, show_default=True, help="Tokens for each prompt.")
@option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the dictionary there. It replaces an earlier one.",
)
def demo(max_tokens: int, keep: Path | None) -> None:
    """Show what spectool does, offline, in less than a minute.

    Builds a dictionary from bundled texts, shows a text with its drafts, and counts the passes that each drafter
    saves. The bundled models know these texts by heart, so the figures say nothing about your model.

    \b
    Example:
        spectool demo --keep ./demo
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = (keep or Path(scratch)) / "demo.dict"
        say("building a dictionary from the bundled texts")
        _build_dictionary(path)
        _compare(path, max_tokens)


def _build_dictionary(path: Path) -> None:
    from spectool.build.corpus_reading import quiet
    from spectool.build.counting.options import CountOptions
    from spectool.build.dictionary.backoff_stage import count_and_build
    from spectool.build.dictionary.options import BackoffOptions
    from spectool.corpora import open_corpus, sample_path
    from spectool.runtime.demo_models import demo_path
    from spectool.tokenization.opening import open_tokenizer

    texts, target = open_corpus(str(sample_path("pl").parent)), open_tokenizer(demo_path("target"))
    # The models know the texts by heart: what occurred once is nearly as sure as what occurred often.
    options = BackoffOptions(discount=0.3)
    built = count_and_build(target, texts, path, options, CountOptions(min_count=1), quiet)
    click.echo(f"dictionary: {built.statistics['entries']:,} entries, {built.total_bytes:,} bytes")


def _compare(path: Path, max_tokens: int) -> None:
    """Show one text with its drafts, then generate all texts without drafts and with each drafter."""
    from spectool.runtime.batching.generate import batch_generate
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.loading import load_drafter, load_model

    target, tokenizer = load_model(str(demo_path("target")))
    dictionary, draft = {"dictionary": path}, {"draft_model": load_model(str(demo_path("draft")))}
    given: dict[str, dict[str, Any]] = {
        "dictionary": {**dictionary, "history": False},
        "history": {},
        "draft model": {**draft, "history": False},
        "all three": {**dictionary, **draft},
    }
    drafters = {name: load_drafter(tokenizer, min_probability=_MIN_DRAFT_PROB, **each) for name, each in given.items()}
    _show_drafts(target, tokenizer, drafters["all three"], min(max_tokens, _SHOWN_TOKENS))

    say(f"\ngenerating {len(_PROMPTS)} texts of at most {max_tokens} tokens, with each drafter and without")
    options: dict[str, Any] = {"rows": 1, "max_tokens": max_tokens, "num_draft_tokens": _DRAFT_TOKENS}
    written = [
        batch_generate(target, tokenizer, _PROMPTS, drafters=drafter, **options)
        for drafter in (None, *drafters.values())
    ]
    passes = [sum(each.passes for each in one.drafting) for one in written]
    per_pass = [sum(each.tokens for each in one.drafting) / count for one, count in zip(written, passes, strict=True)]
    rows = [
        [name, f"{count}", f"{1 - count / passes[0]:.0%}", f"{rate:.2f}"]
        for name, count, rate in zip(["none", *drafters], passes, per_pass, strict=True)
    ]
    click.echo(f"\n{table(['drafter', 'passes', 'saved', 'tokens per pass'], rows)}\n")
    plain, *others = (one.texts for one in written)
    pairs = [(text, mine) for texts in others for text, mine in zip(plain, texts, strict=True)]
    click.echo(f"output that differs from plain decoding: {sum(text != mine for text, mine in pairs)} of {len(pairs)}")
    click.echo(
        f"\nEach pass drafted {_DRAFT_TOKENS} tokens here. By default, spectool chooses that number by its own "
        "measurements, and drafts only while it pays.\nTo see what it saves for your model: "
        "spectool setup MODEL --language pl --corpus FILE, with some 20 MB of text"
    )


def _show_drafts(target: Any, tokenizer: Any, drafter: Any, max_tokens: int) -> None:
    from spectool.commands.shared.display import Display, legend, styles_of_output
    from spectool.runtime.decoding.streaming import encode_prompt, stream_generate

    prompt = _PROMPTS[0]
    styles = styles_of_output()
    encoded = encode_prompt(tokenizer, prompt)
    display = Display(tokenizer, styles)
    click.echo(
        f"\nThe target model continues a text, and each token shows what became of its draft:\n{legend(styles)}\n"
    )
    click.echo(click.style(prompt, bold=True), nl=False)
    drafting = {"drafter": drafter, "num_draft_tokens": _DRAFT_TOKENS}
    for _ in stream_generate(target, tokenizer, encoded, max_tokens=max_tokens, on_cycle=display.echo, **drafting):
        pass
    click.echo(display.finish())
