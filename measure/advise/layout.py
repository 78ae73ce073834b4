"""How advice is shown: tables and a sentence."""

from collections.abc import Callable

import click

from spectool.artifacts.console import show, table
from spectool.measure.advise.advice import Advice
from spectool.measure.advise.candidate import Candidate, DraftModel
from spectool.measure.advise.figures import Figure

_LEGEND = """\
ceiling: target tokens per pass where k draft tokens are always right.
Computed, for as many proposals as it makes, and as often: perfect draft, tokens per pass if all of them were right;
needed, the acceptance that breaks even; speed-up, against plain decoding; at most, the same if all were right."""
_Layout = Callable[[float], str]
_PERCENT, _DECIMAL = "{:.0%}".format, "{:.2f}".format


def print_advice(found: Advice) -> None:
    """Print facts, tokenizers, expectations, and the recommendation."""
    machine, bandwidth = found.machine, found.machine.bandwidth
    facts = {
        "target": f"{found.target}, {_said(found.target_weights, _gigabytes)}",
        "text": f"{found.corpus}, {found.characters:,} characters, "
        f"{_said(found.fertility, '{:.2f} target tokens per word'.format)}",
        "machine": f"{machine.name}; {_said(bandwidth, lambda b: f'{b / 1e9:.0f} GB/s')}; "
        f"memory {_said(machine.memory, _gigabytes)}",
        "plain decoding": _said(found.plain_tokens_per_second, "{:,.1f} tokens per second".format),
        "verification": _verification(found),
    }
    show(facts, as_json=False)
    drafts = [_model_row(each, each.model) for each in found.candidates if each.model is not None]
    if drafts:
        click.echo()
        k = found.candidates[0].expectations[0].k
        header = ["draft", "shared ids", "… in the text", "string-free", f"ceiling, k = {k}", "fertility"]
        click.echo(table([*header, "weights", "r", "with the target"], drafts))
    click.echo()
    header = ["drafter", "k", "perfect draft", "acceptance", "needed", "tokens per pass", "speed-up", "at most"]
    click.echo(table(header, [row for candidate in found.candidates for row in _rows(candidate)]))
    click.echo(_LEGEND + "\n")
    for candidate in found.candidates:
        for note in candidate.notes:
            click.echo(f"{candidate.name}: {note}")
    click.echo(found.recommendation.sentence)
    for command in found.recommendation.todo:
        click.echo(f"  {command}")


def _verification(found: Advice) -> str:
    """Lay out what verifying costs: what was timed, and what is computed for lengths beyond."""
    costs, lengths = found.verification, sorted(each.k for each in found.candidates[-1].expectations)
    if not costs.passes:
        return _said(costs.beta, "1 + {:.2f} k² plain passes".format)
    passes = ", ".join(f"{cost:.2f} at k = {k}" for k, cost in sorted(costs.passes.items()))
    beyond = [_said(costs(k), f"{{:.2f}} at k = {k}".format) for k in lengths if k > max(costs.passes)]
    return "; ".join([f"{passes} plain passes ({costs.beta.origin})", *beyond])


def _model_row(candidate: Candidate, model: DraftModel) -> list[str]:
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


def _rows(candidate: Candidate) -> list[list[str]]:
    return [
        [
            candidate.name,
            str(each.k),
            f"{each.perfect:.2f}",
            _cell(each.acceptance, _PERCENT),
            _cell(each.needed, _PERCENT, kind=False),
            _cell(each.tokens_per_pass, _DECIMAL),
            *(_cell(speed, _DECIMAL, kind=False) for speed in (each.speedup, each.best)),
        ]
        for each in candidate.expectations
    ]


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _said(figure: Figure, how: _Layout) -> str:
    return figure.origin if figure.value is None else f"{how(figure.value)} ({figure.origin})"


def _cell(figure: Figure, how: _Layout, kind: bool = True) -> str:
    """Lay out a figure, with its kind but in columns all of which is computed."""
    return "unknown" if figure.value is None else f"{how(figure.value)} {figure.kind if kind else ''}".rstrip()
