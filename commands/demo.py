"""The command ``demo``: two texts corrected and eight continued, offline, with the bundled models."""

from collections.abc import Sequence
from typing import Any

import click

from spectool.commands.shared.console import say
from spectool.commands.shared.options import command
from spectool.measure.table import table

_DRAFT_TOKENS = 8
_MIN_DRAFT_PROB = 0.3  # a wrong draft token costs as much as a right one
_TOKENS = 120  # of an answer, which ends sooner: with the paragraph that it corrects
_NEW_TOKENS = 64
# Paragraphs of corpora/samples, with slips: nażędzi, drewnianna, wachaniom, przyżądem.
_SLIPS = (
    "Ołówek\nOłówek należy do najprostszych i zarazem najtrwalszych nażędzi do pisania. Wbrew nazwie nie zawiera "
    "ołowiu. Jego rdzeń, zwany potocznie grafitem lub rysikiem, wykonuje się z mieszaniny grafitu i gliny, a osłona "
    "jest zwykle drewnianna.",
    "Zegar wahadłowy\nZegar wahadłowy odmierza czas dzięki regularnym wachaniom obciążnika zawieszonego na pręcie. Był "
    "najdokładniejszym przyżądem tego rodzaju przez z górą dwa i pół stulecia – aż do upowszechnienia się zegarów "
    "kwarcowych w pierwszej połowie XX w.",
)
_BEGINNINGS = (
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
def demo() -> None:
    """Show what spectool does, offline, in less than a minute.

    A small bundled model corrects two texts, with drafts from the text so far, and continues eight others, with drafts
    from a smaller model. Each text is also written without drafts, to compare.

    \b
    Example:
        spectool demo
    """
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.loading import load_drafter, load_model

    target, tokenizer = load_model(str(demo_path("target")))
    draft = load_model(str(demo_path("draft")))
    so_far = load_drafter(tokenizer, min_probability=_MIN_DRAFT_PROB)
    smaller = load_drafter(tokenizer, draft_model=draft, history=False, min_probability=_MIN_DRAFT_PROB)
    corrections = [_correction(tokenizer, text) for text in _SLIPS]
    _show_drafts(target, tokenizer, so_far, corrections[-1])

    say("\nwriting two corrected texts and eight new ones, with drafts and without")
    rows, differing = [], 0
    for kind, prompts, source, drafter, limit in (
        ("two corrected texts", corrections, "the text so far", so_far, _TOKENS),
        ("eight new texts", _BEGINNINGS, "a smaller model", smaller, _NEW_TOKENS),
    ):
        plain, drafted = (_written(target, tokenizer, prompts, each, limit) for each in (None, drafter))
        differing += sum(one != other for one, other in zip(plain.texts, drafted.texts, strict=True))
        for name, written in (("without drafts", plain), (f"drafts from {source}", drafted)):
            tokens, passes = (sum(getattr(each, of) for each in written.drafting) for of in ("tokens", "passes"))
            rows.append([f"{kind}, {name}", f"{tokens:,}", f"{passes:,}", f"{tokens / passes:.2f}"])
    click.echo(f"\n{table(['', 'tokens', 'passes', 'tokens per pass'], rows)}\n")
    click.echo(f"texts that differ from those written without drafts: {differing} of {len(_SLIPS + _BEGINNINGS)}")
    click.echo(
        "\nThe bundled models learnt a few short texts by heart, so they can correct these, and the figures for new "
        "texts say\nnothing about your model. They are too small for drafts to save time. With a model of a billion "
        "parameters or more,\nnearly all of the time goes into its passes.\n"
        "To see what you would gain: spectool setup MODEL --language pl"
    )


def _correction(tokenizer: Any, text: str) -> list[int]:
    """A prompt of a text with slips, the end of a text, and the heading and first word of the same text again."""
    heading, paragraph = text.split("\n")
    again = f"{heading}\n{paragraph.split()[0]}"
    return [*tokenizer.encode(text), tokenizer.eos_token_id, *tokenizer.encode(again, add_special_tokens=False)]


def _written(target: Any, tokenizer: Any, prompts: Sequence[Any], drafter: Any, limit: int) -> Any:
    from spectool.runtime.batching.generate import batch_generate

    stops = ["\n"] if limit == _TOKENS else []
    options: dict[str, Any] = {"rows": 1, "num_draft_tokens": _DRAFT_TOKENS, "stop_strings": stops}
    return batch_generate(target, tokenizer, prompts, drafters=drafter, max_tokens=limit, **options)


def _show_drafts(target: Any, tokenizer: Any, drafter: Any, prompt: list[int]) -> None:
    from spectool.commands.shared.display import Display, legend, styles_of_output
    from spectool.runtime.decoding.streaming import stream_generate

    heading, paragraph = _SLIPS[-1].split("\n")
    click.echo(f"The prompt, with two spelling mistakes:\n\n{heading}\n{paragraph}\n")
    styles = styles_of_output()
    display = Display(tokenizer, styles)
    click.echo(f"The answer. Its colours show what became of each draft:\n{legend(styles)}\n")
    click.echo(f"{heading}\n{paragraph.split()[0]}", nl=False)
    drafting = {"drafter": drafter, "num_draft_tokens": _DRAFT_TOKENS, "stop_strings": ["\n"]}
    for _ in stream_generate(target, tokenizer, prompt, max_tokens=_TOKENS, on_cycle=display.echo, **drafting):
        pass
    click.echo(display.finish())
