"""One controller for a session: generations with the same model and drafter go on from what the earlier ones learnt.

A controller serves one generation at a time. A generation that begins while another one runs, in another thread for
example, gets a controller of its own. The next generation goes on from the one that ended last.
"""

import weakref
from typing import Any

from spectool.runtime.draft_length.controller import Controller

# Of pairs of a model and a drafter that no generation is using, by their ids, with weak references to both.
_idle: dict[tuple[int, int], tuple[Any, Any, Controller]] = {}


def borrow(model: Any, drafter: Any) -> Controller:
    """Return the controller of ``model`` with ``drafter``; a new one where there is none, or where it is in use."""
    entry = _idle.pop(_key(model, drafter), None)
    # An id can have belonged to an object that is gone.
    if entry is None or entry[0]() is not model or entry[1]() is not drafter:
        return Controller()
    return entry[2]


def give_back_after(generation: Any, model: Any, drafter: Any, controller: Controller) -> None:
    """Keep ``controller`` for the next generation from the moment at which ``generation``, an object, is gone."""
    try:
        pair = weakref.ref(model), weakref.ref(drafter)
    except TypeError:  # an object without weak references: nothing is kept for it
        return
    weakref.finalize(generation, _give_back, _key(model, drafter), (*pair, controller)).atexit = False


def _give_back(key: tuple[int, int], entry: tuple[Any, Any, Controller]) -> None:
    for stale in [pair for pair, (model, drafter, _) in list(_idle.items()) if model() is None or drafter() is None]:
        _idle.pop(stale, None)
    _idle[key] = entry


def _key(model: Any, drafter: Any) -> tuple[int, int]:
    return id(model), id(drafter)
