"""Which form of a draft model's weights is fastest on this machine, among those that guess what the original does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool.measure.first_guesses import most_probable
from spectool.runtime.loading import load_model
from spectool.runtime.policy.measuring import DEPTHS, Passes
from spectool.runtime.weight_forms import FORMS, TYPES, convert, quantised, save_weights
from spectool.tokenization.opening import open_tokenizer

EQUAL = 0.95  # share of first guesses that have to be the original's
_FASTER = 0.95  # of the time of a pass; less of a difference may be noise
_ROUNDS = 12  # passes of each form, of which the shortest counts
_LONGEST = 200  # tokens of a text at which guesses are compared


def keep_fastest(directory: Path, texts: Sequence[str], progress: Callable[[str], object]) -> dict[str, Any]:
    """Give the weights in a draft model's directory the form in which its passes are fastest here.

    A form has to be at least 5% faster, and to guess the same token as the weights as they are at 95% of the places of
    ``texts``, of which the first 200 tokens are compared. Quantised weights stay as they are.

    Returns:
        ``forms``: of each the ``bits``, None for the weights as they are, the ``milliseconds`` of a pass, and the share
        of ``equal`` first guesses, None where they were not compared. And ``bits`` and ``bytes`` of new weights.
    """
    model, loaded = load_model(str(directory))
    if quantised(model):
        return {"forms": []}
    models: dict[int | None, Any] = {None: model}
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    own = {weight.dtype for weight in weights.values()}
    others = [form for form in FORMS if own != {TYPES.get(form)}]
    configs = dict[int, dict[str, Any]]()
    for form in others:
        models[form] = load_model(str(directory))[0]
        configs[form] = convert(models[form], form)
        mx.eval(models[form].parameters())
    passes = {bits: Passes(each, min(DEPTHS)) for bits, each in models.items()}
    times = dict.fromkeys(models, float("inf"))
    for _ in range(_ROUNDS):  # in turns, so that other programs disturb all of them
        for bits, each in passes.items():
            times[bits] = min(times[bits], each.run(1))
    tokenizer = open_tokenizer(loaded)
    documents = [tokenizer.encode(text)[:_LONGEST] for text in texts]

    def guesses(bits: int | None) -> list[int]:
        return [guess for ids in documents for guess in most_probable(models[bits], tokenizer, ids)]

    equal, original, kept = dict[int | None, float](), guesses(None), None
    for bits in sorted(others, key=times.__getitem__):
        if kept is None and times[bits] <= _FASTER * times[None]:
            equal[bits] = sum(map(int.__eq__, guesses(bits), original)) / max(1, len(original))
            kept = bits if equal[bits] >= EQUAL else None
    name = "as they are" if kept is None else f"at {kept} bits"
    taken = ", ".join(f"{1e3 * time:.1f} ms{f' at {bits} bits' * bool(bits)}" for bits, time in times.items())
    progress(f"a pass of the draft model takes {taken}: its weights are kept {name}")
    forms = [{"bits": b, "milliseconds": round(1e3 * times[b], 2), "equal": equal.get(b)} for b in models]
    if kept is None:
        return {"forms": forms}
    return {"forms": forms, "bits": kept, "bytes": save_weights(models[kept], configs[kept], directory)}
