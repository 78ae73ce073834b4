"""What tests of drawn target tokens share: the tokens at a frontier, and which cases are quick."""

from collections.abc import Iterable
from typing import Any

import pytest

from spectool.lab.drawing.drafter import DrawingTranslator
from spectool.lab.drawing.next_tokens import NextTokens
from spectool.runtime.sampling.samplers import Sampling
from spectool.runtime.sampling.verification import Draw
from spectool.tests.lab.drawing.toy_pairs import TableScorer, ToyPair

SAMPLING = Sampling(temp=0.9)
LENGTH = 3  # tokens that are drawn


def first(every: Iterable[Any], *quick: object, slow: object = None) -> list[Any]:
    """Return cases of which all but the ``quick`` ones are left to the system tier, and one to the slow tier."""
    marks = {each: () if each in quick else pytest.mark.slow if each == slow else pytest.mark.nightly for each in every}
    return [pytest.param(each, marks=mark) for each, mark in marks.items()]


def following(
    pair: ToyPair,
    translator: DrawingTranslator,
    kind: type[NextTokens] = NextTokens,
    sampling: Sampling = SAMPLING,
    passes: int = 8,
    least: float = 0.0,
) -> NextTokens:
    """Return what the draft says at the translator's frontier."""
    rows = translator.token_rows()
    assert rows is not None
    draw = Draw(sampling, (), pair.target.size)
    context, constraint = translator.draft_context(), translator.constraint()
    return kind(TableScorer(pair.draft_model), rows, context, constraint, draw, (), passes, least)
