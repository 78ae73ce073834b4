"""What a pass of a model costs on this machine by the number of tokens in it, and where that leaves drafts.

Verifying k draft tokens takes a pass over 1 + k rows. Up to some number of rows it takes hardly longer than one over a
single row, and then rises in steps, which differ from machine to machine and from model to model.
"""

import copy
import math
from collections.abc import Sequence
from itertools import islice
from time import perf_counter
from typing import Any

import mlx.core as mx

from spectool.corpora import open_corpus
from spectool.runtime.caches.own import prefill
from spectool.runtime.groups.rank_0 import forward, make_prompt_cache
from spectool.runtime.machine import machine_of
from spectool.runtime.policy.measuring import DEPTHS, time_passes
from spectool.runtime.policy.pass_costs import ALIKE, PassCosts

SECONDS = 10.0  # for a model, unless it is slow
_ENOUGH = 80  # plain passes that a slow one gets: twice as many as the short measurement
INPUTS = 3  # texts on which the bits of logits are compared
_DOCUMENTS = 2  # of which these are
_PASSES, _BITS = 0.75, 0.9  # of the time, when timing passes and comparing bits end


def measure_costs(model: Any, tokenizer: Any, name: str, seconds: float | None = None) -> PassCosts:
    """Measure passes of an mlx-lm model that the user calls ``name``.

    In too few ``seconds`` for a slow model, by default `SECONDS` or as long as it needs, fewer sizes are measured, and
    none in a long context. Where the shortest passes of a size differ, other programs disturbed it, and it is not
    final.
    """
    began = perf_counter()
    found, plain, apart = time_passes(model, lambda each: _PASSES * (seconds or max(SECONDS, _ENOUGH * each)))
    until = began + _BITS * (seconds or max(SECONDS, _ENOUGH * plain[min(plain)]))
    text = "\n".join(islice(open_corpus("sample:pl"), _DOCUMENTS))
    same = _same_bits(model, list(tokenizer.encode(text)), sorted(found[min(found)]), until)
    return PassCosts(name, machine_of(model), found, plain, tuple(same), final=apart <= ALIKE)


def _same_bits(model: Any, tokens: Sequence[int], sizes: Sequence[int], until: float) -> list[int]:
    """The ``sizes`` at which all logits, and those of the token after the pass, have the bits that single tokens give.

    Sizes for which there is no time are left out. Further texts are compared if there is time for all of them.
    """
    same = [rows for rows in sizes if rows > 1]
    for number in range(INPUTS):
        began = perf_counter()
        if number and began > until:
            break
        depth, begun = min(DEPTHS) + number, make_prompt_cache(model)
        following = tokens[number * 7 + depth :]
        prefill(model, begun, tokens[number * 7 :][:depth])
        cache, single = copy.deepcopy(begun), list[mx.array]()
        for token in following[: max(same, default=0) + 1]:
            if number or perf_counter() < until:
                single.append(_logits(model, [token], cache)[0])
        for rows in same[:]:
            if rows < len(single) and (number or perf_counter() <= until):
                cache = copy.deepcopy(begun)
                several = [*_logits(model, following[:rows], cache), *_logits(model, following[rows : rows + 1], cache)]
                if all(map(mx.array_equal, several, single)):
                    continue
            same.remove(rows)
        until -= perf_counter() - began  # for another one
    return [1, *same]


def _logits(model: Any, tokens: Sequence[int], cache: list[Any]) -> mx.array:
    found = forward(model, mx.array([tokens], dtype=mx.int32), cache)[0]
    mx.eval(found)
    return found


def break_even(curve: dict[int, float], length: int, draft_pass: float = 0.0) -> float | None:
    """The acceptance of each draft token, 0..1, at which drafts of this length cost nothing; None if there is none.

    With acceptance a, a cycle of k draft tokens makes 1 + a + … + a^k tokens on average (Leviathan et al., "Fast
    Inference from Transformers via Speculative Decoding", equation 1). It pays when that is more than the number of
    plain passes that the cycle takes as long as.

    The ``curve`` has seconds of a pass of the target by rows, and ``draft_pass`` those of a draft model over one token.
    """
    wanted = (curve[length + 1] + length * draft_pass) / curve[1]
    thousandths = (each / 1000 for each in range(1001))
    return next((each for each in thousandths if math.fsum(each**i for i in range(length + 1)) >= wanted), None)
