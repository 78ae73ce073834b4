"""Which form of a draft model's weights is fastest on this machine, among those that guess what the original does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from spectool.measure.first_guesses import most_probable
from spectool.runtime.loading import load_model
from spectool.runtime.policy.measuring import DEPTHS, Passes
from spectool.runtime.weight_forms import FORMS, convert, quantised, save_weights
from spectool.tokenization.opening import open_tokenizer

EQUAL = 0.95  # share of first guesses that have to be the original's
_FASTER = 0.95  # of the time of a pass; less of a difference may be noise
_ROUNDS = 12  # passes of each form, of which the shortest counts


def keep_fastest(directory: Path, texts: Sequence[str], progress: Callable[[str], object]) -> dict[str, Any]:
    """Give the weights in a draft model's directory the form in which its passes are fastest here.

    A form has to guess the same token as the weights as they are at 95% of the places of ``texts``, and to be at least
    5% faster. Quantised weights stay as they are.

    Returns:
        ``forms``: of each that was measured the ``bits``, None for the weights as they are, the ``milliseconds`` of a
        pass and the share of ``equal`` first guesses. And ``bits`` and ``bytes`` of the new weights, if they are new.
    """
    model, loaded = load_model(str(directory))
    if quantised(model):
        return {"forms": []}
    tokenizer = open_tokenizer(loaded)
    documents = [tokenizer.encode(text) for text in texts]
    models: dict[int | None, Any] = {None: model}
    for form in FORMS:
        models[form] = load_model(str(directory))[0]
        convert(models[form], form)
        mx.eval(models[form].parameters())
    guesses = {
        bits: [most for ids in documents if ids for most in most_probable(each, tokenizer, ids)]
        for bits, each in models.items()
    }
    passes = {bits: Passes(each, min(DEPTHS)) for bits, each in models.items()}
    times = dict.fromkeys(models, float("inf"))
    for _ in range(_ROUNDS):  # in turns, so that other programs disturb all of them
        for bits, each in passes.items():
            times[bits] = min(times[bits], each.run(1))
    places = max(1, len(guesses[None]))
    equal = {bits: sum(map(int.__eq__, each, guesses[None])) / places for bits, each in guesses.items()}
    fastest = min((bits for bits in models if equal[bits] >= EQUAL), key=times.__getitem__)
    kept = fastest if times[fastest] <= _FASTER * times[None] else None
    progress(
        "a pass of the draft model takes "
        + ", ".join(f"{1e3 * times[bits]:.1f} ms {_name(bits)} ({equal[bits]:.0%} equal guesses)" for bits in models)
        + f": its weights are kept {_name(kept)}"
    )
    forms = [{"bits": b, "milliseconds": round(1e3 * times[b], 2), "equal": round(equal[b], 4)} for b in models]
    return {"forms": forms} | ({"bits": kept, "bytes": save_weights(models[kept], kept, directory)} if kept else {})


def _name(bits: int | None) -> str:
    return "as they are" if bits is None else "in bfloat16" if bits == 16 else f"at {bits} bits"
