"""How long a model of seven billion parameters takes to read a prompt here, beside what drafters take for it.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 python benchmarks/prefill.py

One layer of Mistral 7B's shape, with random float32 weights, reads the first steps of a prompt. All layers take as long
as one, and later steps longer than the first. Embedding and output matrix are left out. Prints JSON.
"""

import json
from time import perf_counter

import click
import mlx.core as mx
from mlx_lm.models.cache import KVCache
from mlx_lm.models.llama import Model, ModelArgs

LAYERS = 32
SHAPE = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
}


@click.command()
@click.option("--tokens", default=8000, show_default=True, help="Of the prompt.")
@click.option("--step", default=1000, show_default=True, help="Tokens that are read at once, and timed.")
@click.option(
    "--steps",
    default=2,
    show_default=True,
    help="The first steps of the prompt are timed, the others taken for as long.",
)
def main(tokens: int, step: int, steps: int) -> None:
    """Time a layer and print what all of them take."""
    model, cache, seconds = Model(ModelArgs(**SHAPE)), [KVCache()], []
    mx.eval(model.parameters())
    for _ in range(steps):
        began = perf_counter()
        mx.eval(model(mx.zeros((1, step), dtype=mx.int32), cache=cache))
        seconds.append(perf_counter() - began)
    whole = LAYERS * tokens / step * min(seconds)  # later steps take longer: they attend to more
    click.echo(json.dumps({"tokens": tokens, "layer_s": [round(s, 2) for s in seconds], "prefill_s": round(whole)}))


if __name__ == "__main__":
    main()
