"""Generations with the same model and drafter share a controller, one after the other.

A generation that begins while another one runs, in another thread for example, gets a new controller. The next one
continues with the controller of the generation that ended last. While nobody uses it, the drafter holds it.
"""

import weakref
from contextlib import suppress
from typing import Any, cast

from spectool.runtime.draft_length.controller import Controller
from spectool.runtime.draft_length.measured import keep_draft, known_costs, known_draft

_HELD = "_idle_controller"  # the attribute of a drafter: a weak reference to the model, and the controller for it


def acquire_controller(model: Any, drafter: Any) -> Controller:
    """The controller of ``model`` with ``drafter``; a new one where there is none or it is in use."""
    owner, controller = getattr(drafter, "__dict__", {}).pop(_HELD, (None, None))
    if controller is None or owner() is not model:
        return new_controller(model, drafter)
    return cast(Controller, controller)


def new_controller(model: Any, drafter: Any = None) -> Controller:
    """A controller that starts from what `spectool doctor` has measured of ``model``, if it has.

    A drafter with several members starts from what was learnt of them with this model.
    """
    controller = Controller()
    if (costs := known_costs(model)) is not None:
        controller.start_from(costs.curve, costs.processor_share)
        if costs.exact:
            controller.keep_exact(costs.longest_exact)
    for draft, record in getattr(drafter, "draft_models", ()):
        if not record.times.measured and (facts := known_draft(model, draft, drafter.name)) is not None:
            record.start_from(facts)
    return controller


def keep_learnt(model: Any, drafter: Any) -> None:
    """Keep what was learnt of the members of ``drafter``, where `spectool doctor` has measured ``model``."""
    for draft, record in getattr(drafter, "draft_models", ()):
        if record.is_news:
            keep_draft(model, draft, drafter.name, record.facts())


def release_controller(model: Any, drafter: Any, controller: Controller) -> None:
    """Keep ``controller`` for the next generation of ``model`` with ``drafter``, and what the drafter has learnt."""
    keep_learnt(model, drafter)
    with suppress(TypeError):  # a model without weak references, or a drafter without attributes: nothing is kept
        vars(drafter)[_HELD] = weakref.ref(model), controller
