"""What a model's passes cost on this machine: measured once, and kept in the user's cache.

Costs depend on the shapes and types of the weights, on the machine and on the version of MLX, and so does the key of a
measurement: a copy of a model has the same. `spectool doctor` measures thoroughly. Whoever has not run it gets a short
measurement when a model first drafts, and another one at each later start until two agree, because other programs
disturb it. The least of all their times counts.
"""

import hashlib
import logging
import sys
import weakref
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import ArtifactError, SpectoolError
from spectool.artifacts.atomic import require_writable
from spectool.runtime.drafters.drafter import Drafter, DrafterSet, members_of
from spectool.runtime.machine import blas_advice, machine_of, weight_bytes
from spectool.runtime.per_model import once_per_model
from spectool.runtime.policy.curve import ASSUMED, PassCurve
from spectool.runtime.policy.measuring import time_passes
from spectool.runtime.policy.pass_costs import PassCosts, costs_path, load_costs, save_costs
from spectool.runtime.policy.policy import Policy
from spectool.runtime.policy.record import DraftCost

SHORT = 40  # plain passes that the short measurement may take: the time of a sentence or two
SECONDS = 0.3  # that it may take in any case, for the more often it is repeated, the less noise is left
_HELD = "_spectool_policy"  # the attribute of a drafter: a weak reference to the model, and the policy for both
_warn_once = cache(logging.getLogger(__name__).warning)
_measured_here = set[Path]()  # where this process has kept measurements, or could not


@once_per_model
def model_key(model: Any) -> str:
    """A digest of an MLX model's class, its weights' shapes and types, and the machine: what its costs depend on."""
    weights: Any = tree_flatten(model.parameters())
    shapes = [(name, tuple(weight.shape), str(weight.dtype)) for name, weight in weights]
    described = repr((type(model).__module__, type(model).__name__, shapes, machine_of(model)))
    return hashlib.sha256(described.encode()).hexdigest()[:24]


def policy_for(model: Any, drafter: Drafter | DrafterSet | None, *, fresh: bool = False) -> Policy:
    """The policy of ``model`` with ``drafter``, which keeps what it learns; a ``fresh`` one has learnt nothing."""
    if fresh:
        return new_policy(model, drafter)
    holder = vars(model if drafter is None else drafter)
    owner, policy = holder.get(_HELD, (None, None))
    if owner is None or owner() is not model:
        policy = new_policy(model, drafter)
        with suppress(TypeError):  # something that is called like a model: nothing is kept
            holder[_HELD] = weakref.ref(model), policy
    return cast(Policy, policy)


def new_policy(model: Any, drafter: Drafter | DrafterSet | None = None, *, measure: bool = True) -> Policy:
    """A policy that knows what passes of ``model`` cost, and those of the draft models in ``drafter``.

    What is not known yet is measured now, unless it is not to be (``measure``) or cannot be kept.
    """
    costs = costs_of(model, measure=measure)
    whole = costs if costs is not None and costs.whole else None
    policy, drafts = Policy(ASSUMED), [each for each in members_of(drafter) if each.costs_a_pass]
    if whole is not None:
        curve = PassCurve(whole.seconds, whole.plain, whole.final)
        keys = [model_key(model), *(model_key(each.cache.model) for each in drafts if each.cache is not None)]
        policy = Policy(curve, doubt=cache(lambda: list(map(_doubt, keys))))
    if costs is not None and costs.exact:
        policy.longest = costs.longest_exact
    for member in drafts:
        draft = None if member.cache is None else member.cache.model
        policy.records[member.name].begin_model(_draft_cost(draft, model, whole, measure), member.honesty)
    return policy


def known_costs(model: Any) -> PassCosts | None:
    """What was measured of a model on this machine; None if nothing, or if the file is damaged, which is logged."""
    if not hasattr(model, "parameters"):
        return None  # something that is called like a model
    try:
        return load_costs(model_key(model))
    except ArtifactError as error:
        _warn_once(f"ignoring {error}")
        return None


def costs_of(model: Any, *, measure: bool = True) -> PassCosts | None:
    """What passes of a model cost on this machine; what is not known for sure is measured now where it may be."""
    found = known_costs(model)
    sure = found is not None and found.whole and found.final
    if sure or not measure or not hasattr(model, "parameters") or costs_path(model_key(model)) in _measured_here:
        return found
    return _measured(model, found)


def _doubt(key: str) -> None:
    """Have a model measured again at the next start, because its passes take another time than was measured."""
    with suppress(OSError, ArtifactError):
        costs = load_costs(key)
        if costs is not None and costs.final:
            save_costs(key, replace(costs, final=False))


def _measured(model: Any, before: PassCosts | None) -> PassCosts | None:
    """The short measurement, with what was measured ``before``; only this if it fails or cannot be kept."""
    from tqdm import tqdm

    key, kept = model_key(model), before
    try:
        require_writable(costs_path(key))
        often, why = ("once", "") if before is None else ("again", ", to be sure")
        print(f"measuring {often} what passes of this model cost on this machine{why}", file=sys.stderr)
        mx.eval(model.parameters())
        bar = tqdm(total=1.0, bar_format="{l_bar}{bar}| {elapsed}", desc="passes", leave=False, disable=None)
        with bar:
            seconds, plain, _ = time_passes(
                model, lambda each: max(SHORT * each, SECONDS), progress=lambda at: bar.update(at - bar.n)
            )
        name = type(model).__module__.rpartition(".")[2]
        costs = PassCosts(name, machine_of(model), seconds, plain, (), final=False)
        if before is not None:
            costs = before.with_another(costs)
        save_costs(key, costs)
        kept = costs
        if advice := blas_advice(model):
            print(advice, file=sys.stderr)
    except (SpectoolError, OSError, ValueError, RuntimeError) as error:
        logging.getLogger(__name__).warning("what passes cost was not measured: %s", error)
    _measured_here.add(costs_path(key))
    return kept


def _draft_cost(draft: Any, target: Any, known: PassCosts | None, measure: bool) -> DraftCost:
    """What passes of a draft model take in plain passes of its target; by the size of both where neither is known."""
    if draft is None:  # a drafter of another kind, which is taken to be a small model
        return DraftCost(0.1, 0.0)
    costs = costs_of(draft, measure=measure)
    if costs is None or known is None or not costs.whole:
        share = weight_bytes(draft) / max(1, weight_bytes(target))
        return DraftCost(share, share / 8)
    return measured_draft_cost(costs, known)


def measured_draft_cost(draft: PassCosts, target: PassCosts) -> DraftCost:
    """What passes of a draft model take in plain passes of its target, both as measured."""
    plain = target.plain[min(target.plain)]
    reading = min(time / rows for rows, time in draft.curve.items())
    return DraftCost(draft.curve[1] / plain, reading / plain, PassCurve(draft.seconds, draft.plain, draft.final))
