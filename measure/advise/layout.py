"""How advice is shown: tables and a sentence, or JSON."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from spectool.artifacts.console import show, table
from spectool.measure.advise.advice import Advice, Question
from spectool.measure.advise.candidate import Candidate, DraftModel
from spectool.measure.advise.expect import Verification
from spectool.measure.advise.figures import Figure

_LEGEND = """\
ceiling: target tokens per pass where k draft tokens are always right.
Computed, for as many proposals as it makes, and as often: perfect draft, tokens per pass if all of them were right;
needed, the acceptance that breaks even; speed-up, against plain decoding; at most, the same if all were right."""


def as_facts(question: Question, found: Advice) -> dict[str, Any]:
    """Return everything, as JSON has it."""
    machine, recommendation = question.machine, found.recommendation
    return {
        "target": question.source,
        "target_weights": question.sizes.weights.as_dict(),
        "target_cache": question.sizes.cache.as_dict(),
        "corpus": question.corpus,
        "characters": sum(map(len, question.texts)),
        "fertility": found.fertility.as_dict(),
        "machine": {
            "name": machine.name,
            "bandwidth": machine.bandwidth.as_dict(),
            "memory": machine.memory.as_dict(),
        },
        "plain_tokens_per_second": found.plain.as_dict(),
        "verification": found.verification.as_dict(),
        "candidates": [candidate.as_dict() for candidate in found.candidates],
        "recommendation": {name: getattr(recommendation, name) for name in recommendation.__slots__},
    }


def print_advice(question: Question, found: Advice) -> None:
    """Print facts, tokenizers, expectations, and the recommendation."""
    machine, costs = question.machine, found.verification
    facts = {
        "target": f"{question.source}, {_said(question.sizes.weights, _gigabytes)}",
        "text": f"{question.corpus}, {sum(map(len, question.texts)):,} characters, "
        f"{_said(found.fertility, '{:.2f} target tokens per word'.format)}",
        "machine": f"{machine.name}; {_said(machine.bandwidth, lambda b: f'{b / 1e9:.0f} GB/s')}; "
        f"memory {_said(machine.memory, _gigabytes)}",
        "plain decoding": _said(found.plain, "{:,.1f} tokens per second".format),
        "verification": _verification(costs, question.lengths),
    }
    show(facts, as_json=False)
    drafts = [(each.name, each.model, each) for each in found.candidates if each.model is not None]
    if drafts:
        click.echo()
        k = question.lengths[0]
        header = ["draft", "shared ids", "… in the text", "string-free", f"ceiling, k = {k}", "fertility"]
        click.echo(table([*header, "weights", "r", "with the target"], (_model_row(*draft, k) for draft in drafts)))
    click.echo()
    header = ["drafter", "k", "perfect draft", "acceptance", "needed", "tokens per pass", "speed-up", "at most"]
    rows = [row for candidate in found.candidates for row in _rows(candidate)]
    click.echo(table(header, rows))
    click.echo(_LEGEND)
    click.echo()
    for candidate in found.candidates:
        for note in candidate.notes:
            click.echo(f"{candidate.name}: {note}")
    click.echo(found.recommendation.sentence)
    for command in found.recommendation.todo:
        click.echo(f"  {command}")


def _verification(costs: Verification, lengths: Sequence[int]) -> str:
    """Lay out what verifying costs: what was timed, and what is computed for lengths beyond."""
    if not costs.passes:
        return _said(costs.beta, "1 + {:.2f} k² plain passes".format)
    passes = ", ".join(f"{cost:.2f} at k = {k}" for k, cost in sorted(costs.passes.items()))
    beyond = [_said(costs(k), f"{{:.2f}} at k = {k}".format) for k in sorted(lengths) if k > max(costs.passes)]
    return "; ".join([f"{passes} plain passes ({costs.beta.origin})", *beyond])


def _model_row(name: str, model: DraftModel, candidate: Candidate, k: int) -> list[str]:
    pair, perfect = model.pair, model.pair.perfect(k)
    return [
        name,
        _cell(pair.by_vocabulary, "{:.0%}".format),
        _cell(pair.by_occurrence, "{:.0%}".format),
        _cell(pair.string_free, "{:.0%}".format),
        "unknown" if perfect is None else f"{perfect:.2f} {'computed' if pair.same else 'measured'}",
        _cell(pair.fertility, "{:.2f}".format),
        _cell(model.sizes.weights, _gigabytes),
        _cell(model.r, "{:.3f}".format),
        _cell(candidate.memory, _gigabytes) + (" too large" if candidate.fits is False else ""),
    ]


def _rows(candidate: Candidate) -> list[list[str]]:
    return [
        [
            candidate.name,
            str(each.k),
            f"{each.perfect:.2f}",
            _cell(each.acceptance, "{:.0%}".format),
            _plain_cell(each.needed, "{:.0%}".format),
            _cell(each.tokens_per_pass, "{:.2f}".format),
            _plain_cell(each.speedup, "{:.2f}".format),
            _plain_cell(each.best, "{:.2f}".format),
        ]
        for each in candidate.expectations
    ]


def _plain_cell(figure: Figure, how: Callable[[float], str]) -> str:
    """Lay out a figure of a column that is computed, all of it."""
    return "unknown" if figure.value is None else how(figure.value)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _said(figure: Figure, how: Callable[[float], str]) -> str:
    return figure.origin if figure.value is None else f"{how(figure.value)} ({figure.origin})"


def _cell(figure: Figure, how: Callable[[float], str]) -> str:
    return "unknown" if figure.value is None else f"{how(figure.value)} {figure.kind}"
