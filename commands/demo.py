"""The command ``demo``: a text corrected, offline, with a bundled model."""

from typing import Any

import click

from spectool.commands.shared.options import command

# An answer is a paragraph.
_DRAFTING: dict[str, Any] = {"num_draft_tokens": 8, "max_tokens": 120, "stop_strings": ["\n"]}
# A paragraph of corpora/samples, with slips: wachaniom, przyżądem.
_HEADING = "Zegar wahadłowy"
_PARAGRAPH = (
    "Zegar wahadłowy odmierza czas dzięki regularnym wachaniom obciążnika zawieszonego na pręcie. Był "
    "najdokładniejszym przyżądem tego rodzaju przez z górą dwa i pół stulecia – aż do upowszechnienia się zegarów "
    "kwarcowych w pierwszej połowie XX w."
)
_BEGIN = "Zegar"  # of the answer


@command("demo", json=False)
def demo() -> None:
    """Show what spectool does, offline, in less than a minute.

    A small bundled model corrects a text, with drafts from the text so far, and once more without, to compare.

    \b
    Example:
        spectool demo
    """
    from spectool.commands.shared.display import Display
    from spectool.runtime.demo_models import demo_path
    from spectool.runtime.loading import load_drafter, load_model

    target, tokenizer = load_model(str(demo_path("target")))
    display = Display(tokenizer)
    click.echo(f"The prompt, with two spelling mistakes:\n\n{_HEADING}\n{_PARAGRAPH}\n")
    click.echo(f"The answer. Its colours show what became of each draft:\n{display.legend}\n")
    click.echo(f"{_HEADING}\n{_BEGIN}", nl=False)
    drafter = load_drafter(tokenizer, min_probability=0.3)  # a wrong draft token costs as much as a right one
    text, drafting = corrected(target, tokenizer, drafter=drafter, on_cycle=display.echo)
    click.echo(display.finish())
    plain_text, plain = corrected(target, tokenizer)
    each, same = f"{drafting.tokens_per_pass:.2f} in each", "the same" if text == plain_text else "another"
    click.echo(f"\n{drafting.tokens} tokens in {drafting.passes} passes of the model, {each}.")
    click.echo(f"Without drafts, it took {plain.passes} passes to write {same} text.")
    click.echo(
        "\nThe bundled model learnt a few short texts by heart, so it can correct this one. It is too small for\n"
        "drafts to save time. With a billion parameters or more, nearly all of the time goes into passes.\n"
        "To see what you would gain: spectool setup MODEL --language pl"
    )


def corrected(target: Any, tokenizer: Any, **options: Any) -> tuple[str, Any]:
    """What the model writes after the text with slips, its end, and the beginning of the same text; and the figures."""
    from spectool.runtime.decoding.streaming import stream_generate

    again = tokenizer.encode(f"{_HEADING}\n{_BEGIN}", add_special_tokens=False)
    prompt = [*tokenizer.encode(f"{_HEADING}\n{_PARAGRAPH}"), tokenizer.eos_token_id, *again]
    responses = list(stream_generate(target, tokenizer, prompt, **_DRAFTING, **options))
    return "".join(each.text for each in responses), responses[-1].drafting
