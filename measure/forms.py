"""The forms of a model's weights: as they are, float32 or bfloat16, or quantised to 8 or 4 bits.

And which of them is fastest for a draft model on this machine, among those that guess what the original does.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from spectool import RuntimeUnsupported
from spectool.measure.first_guesses import most_probable
from spectool.runtime.loading import load_model
from spectool.runtime.mlx_lm_compat import quantize_model
from spectool.runtime.policy.measuring import DEPTHS, Passes
from spectool.tokenization.opening import open_tokenizer

TYPES = {32: mx.float32, 16: mx.bfloat16}
FORMS = (*TYPES, 8, 4)
"""Bits of a weight: float32, bfloat16, or quantised in groups of `GROUP`, of which each has a scale and a bias."""
GROUP = 64  # weights, as in mlx-lm
EQUAL = 0.95  # share of first guesses that have to be the original's
_FASTER = 0.95  # of the time of a pass; less of a difference may be noise
_ROUNDS = 12  # passes of each form, of which the shortest counts
_LONGEST = 200  # tokens of a text at which guesses are compared


def quantised(model: Any) -> bool:
    """Whether some weights of a model are quantised."""
    return any(hasattr(module, "bits") for module in model.modules())


def convert(model: Any, bits: int) -> dict[str, Any]:
    """Give a model one of the `FORMS`, in place; return what its config.json has to say about it.

    Quantised matrices keep the type of their scales, and what has no rows of whole groups stays as it is.

    Raises:
        RuntimeUnsupported: The model is quantised already, or no matrix can be.
    """
    if quantised(model):
        raise RuntimeUnsupported("this model is quantised already. Leave --bits out, or take the original")
    if bits in TYPES:
        model.set_dtype(TYPES[bits])
        return {"torch_dtype": str(TYPES[bits]).removeprefix("mlx.core.")}
    with redirect_stdout(None):  # to which it says how many bits a weight has
        _, config = quantize_model(model, {}, GROUP, bits)
    if not quantised(model):
        raise RuntimeUnsupported(f"no matrix of this model has rows of whole groups of {GROUP} weights. Give --bits 16")
    return dict(config)


def save_weights(model: Any, form: Mapping[str, Any], directory: Path) -> int:
    """Replace the weights in a model's directory, and the ``form`` in its config.json; return the bytes of all tensors.

    The form is what `convert` returned.
    """
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    mx.eval(weights)
    for file in (*directory.glob("model*.safetensors"), *directory.glob("model*.safetensors.index.json")):
        file.unlink()
    mx.save_safetensors(str(directory / "model.safetensors"), weights, {"format": "mlx"})
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | form
    path.write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return sum(weight.nbytes for weight in weights.values())


def keep_fastest(directory: Path, texts: Sequence[str], progress: Callable[[str], object]) -> dict[str, Any]:
    """Give the weights in a draft model's directory the form in which its passes are fastest here.

    A form has to be at least 5% faster, and to guess the same token as the weights as they are at 95% of the places of
    ``texts``, of which the first 200 tokens are compared. Quantised weights stay as they are.

    Returns:
        The ``bits`` and ``bytes`` of new weights; nothing where they stay as they are.
    """
    model, loaded = load_model(str(directory))
    if quantised(model):
        return {}
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    own = {weight.dtype for weight in weights.values()}
    models: dict[int | None, Any] = {None: model}
    configs = dict[int | None, dict[str, Any]]()
    for form in FORMS:
        if own != {TYPES.get(form)}:
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

    original = guesses(None)
    faster = [bits for bits in sorted(models, key=times.__getitem__) if times[bits] <= _FASTER * times[None]]
    alike = (bits for bits in faster if sum(map(int.__eq__, guesses(bits), original)) >= EQUAL * len(original))
    kept = next(alike, None) if original else None
    way = f"at {kept} bits" if kept else "as they are"
    taken = ", ".join(f"{1e3 * time:.1f} ms{f' at {bits} bits' * bool(bits)}" for bits, time in times.items())
    progress(f"a pass of the draft model takes {taken}: its weights are kept {way}")
    return {"bits": kept, "bytes": save_weights(models[kept], configs[kept], directory)} if kept else {}
