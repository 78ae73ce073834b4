"""The command ``advise``."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.console import guarded, json_option, show, table, text_options
from spectool.artifacts.options import options_of
from spectool.measure.advise.options import AdviceOptions

if TYPE_CHECKING:
    from spectool.measure.advise.advice import Advice
    from spectool.measure.advise.expect import Expectation, Figure
    from spectool.measure.advise.recommend import Candidate, DraftModel


@click.command("advise")
@options_of(AdviceOptions)
@text_options
@json_option
@guarded
def advise(reads: dict[str, Any], as_json: bool, **options: Any) -> None:
    """Say whether to draft, with what, and how far ahead, before anything is downloaded or benchmarked.

    Tokenizers are enough: they say what translation leaves of a perfect draft, and the acceptance that it takes to
    gain. Directories of models say what passes cost, by their size. With --measure the models are loaded, passes are
    timed, and drafts are compared with what the target writes. A dictionary is replayed on the text: name one that it
    was not built from. Every figure says whether it was measured, stated, assumed or computed from others.

    \b
    Examples:
        spectool advise --target bielik/tokenizer.json --draft qwen/tokenizer.json --language pl
        spectool advise --target T --target-bytes 11320000000 --draft D --draft-bytes 800000000 --bandwidth 200
        spectool advise --target ./Bielik-11B --draft ./Qwen2.5-1.5B --alignment qwen-bielik.align \\
            --dict pl.dict --measure
    """
    asked = AdviceOptions(**options)

    from spectool.corpora import open_corpus
    from spectool.measure.advise.advice import advise as answer

    spec = asked.corpus or f"sample:{asked.language or 'pl'}"
    text = open_corpus(spec, **reads)
    found = answer(asked, spec, (document.text for document in text))
    if as_json:
        show(asdict(found), as_json=True)
    else:
        print_advice(found)


_LEGEND = """\
ceiling: target tokens per pass where k draft tokens are always right.
Computed, for as many proposals as it makes, and as often: perfect draft, tokens per pass if all of them were right;
needed, the acceptance that breaks even; speed-up, against plain decoding; at most, the same if all were right.
"""
_PERCENT, _DECIMAL = "{:.0%}".format, "{:.2f}".format


def print_advice(found: "Advice") -> None:
    """Print facts, tokenizers, expectations, and the recommendation."""
    machine = found.machine
    words = _said(found.fertility, "{:.2f} target tokens per word".format)
    streamed = _said(machine.bandwidth, lambda rate: f"{rate / 1e9:.0f} GB/s")
    facts = {
        "target": f"{found.target}, {_said(found.target_weights, _gigabytes)}",
        "text": f"{found.corpus}, {found.characters:,} characters, {words}",
        "machine": f"{machine.name}; {streamed}; memory {_said(machine.memory, _gigabytes)}",
        "plain decoding": _said(found.plain_tokens_per_second, "{:,.1f} tokens per second".format),
        "verification": _verification(found),
    }
    show(facts, as_json=False)
    drafts = [_draft_row(each, each.model) for each in found.candidates if each.model is not None]
    if drafts:
        click.echo()
        k = found.candidates[0].expectations[0].k
        header = ["draft", "shared ids", "… in the text", "string-free", f"ceiling, k = {k}", "fertility"]
        click.echo(table([*header, "weights", "r", "with the target"], drafts))
    click.echo()
    header = ["drafter", "k", "perfect draft", "acceptance", "needed", "tokens per pass", "speed-up", "at most"]
    click.echo(table(header, [_row(each.name, at) for each in found.candidates for at in each.expectations]))
    click.echo(_LEGEND)
    for candidate in found.candidates:
        for note in candidate.notes:
            click.echo(f"{candidate.name}: {note}")
    click.echo(found.recommendation.sentence)
    for command in found.recommendation.todo:
        click.echo(f"  {command}")


def _verification(found: "Advice") -> str:
    """Lay out what verifying costs: what was timed, and what is computed for lengths beyond."""
    costs, lengths = found.verification, sorted(each.k for each in found.candidates[-1].expectations)
    if not costs.passes:
        return _said(costs.beta, "1 + {:.2f} k² plain passes".format)
    passes = ", ".join(f"{cost:.2f} at k = {k}" for k, cost in sorted(costs.passes.items()))
    beyond = [_said(costs(k), f"{{:.2f}} at k = {k}".format) for k in lengths if k > max(costs.passes)]
    return "; ".join([f"{passes} plain passes ({costs.beta.origin})", *beyond])


def _draft_row(candidate: "Candidate", model: "DraftModel") -> list[str]:
    pair, perfect = model.tokenizers, model.tokenizers.perfect(candidate.expectations[0].k)
    return [
        candidate.name,
        *(_cell(share, _PERCENT) for share in (pair.by_vocabulary, pair.by_occurrence, pair.string_free)),
        "unknown" if perfect is None else f"{perfect:.2f} {'computed' if pair.same else 'measured'}",
        _cell(pair.fertility, _DECIMAL),
        _cell(model.weights, _gigabytes),
        _cell(model.r, "{:.3f}".format),
        _cell(candidate.memory, _gigabytes) + (" too large" if candidate.fits is False else ""),
    ]


def _row(name: str, at: "Expectation") -> list[str]:
    """Lay out what to expect at a draft length; the columns without a kind are computed, all of them."""
    needed, speeds = _cell(at.needed, _PERCENT, kind=False), (at.speedup, at.best)
    if (at.needed.value or 0.0) > 1:
        needed = "not reachable"
    told = [_cell(at.acceptance, _PERCENT), needed, _cell(at.tokens_per_pass, _DECIMAL)]
    return [name, str(at.k), f"{at.perfect:.2f}", *told, *(_cell(each, _DECIMAL, kind=False) for each in speeds)]


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _said(figure: "Figure", how: Callable[[float], str]) -> str:
    return figure.origin if figure.value is None else f"{how(figure.value)} ({figure.origin})"


def _cell(figure: "Figure", how: Callable[[float], str], kind: bool = True) -> str:
    return "unknown" if figure.value is None else how(figure.value) + (f" {figure.kind}" if kind else "")
