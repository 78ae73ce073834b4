"""Train a small Llama-type draft from scratch, on two cores and in minutes.

A draft to compare translation strategies with, where no pretrained one can be had. It is weak;
it says how strategies rank, not what a real draft gains.

Rare tokens share one row: ids seen fewer than ``--min-count`` times in the training text are one
class, inside which every id is equally likely. That is a full softmax with tied rows, so the
model is trained over the common ids only and stored over the whole vocabulary, with the same
probabilities in both; a rare id has 1/n of its class's and does not win.

The softmax is sampled: the frequent classes and the step's own targets are all there, and a
random choice of the others stands for the rest, weighted up. Exponentials are
(1 + x/1024)^1024, eight times as fast as MLX's on a CPU. MLX's CPU build links the reference
BLAS; preload another before Python starts where that is slow (matrix products about 50 times
faster). Processes share a step by MLX's ring; one process works as well, in twice the time:

    export LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 OPENBLAS_NUM_THREADS=1
    mlx.launch -n 2 --backend ring -- python benchmarks/train_small_draft.py \
        --tokenizer DIR --corpus pl.train.txt.zst --valid pl.valid.txt.zst --out DIR

The seed fixes weights and order of the text. The learning rate falls with the share of
``--minutes`` that has passed; ``--steps`` repeats a run exactly on as many processes.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import save_config
from numpy.typing import NDArray

from spectool.artifacts import Tokenizer, open_tokenizer
from spectool.corpora import open_corpus

STEP_TOKENS = 1024
SHORT, LONG = 128, 256  # tokens in a row; long ones in the last third, since attention is dear
CONTEXT = 4096
FREQUENT, SAMPLED = 2048, 3584  # classes of a step's softmax: always there, in all
WARM_UP = 0.03
BATCH = 1000  # documents


def token_stream(tokenizer: Tokenizer, texts: Sequence[str], boundary: int, limit: int) -> NDArray[np.int32]:
    """Return the ids of ``texts``, ``boundary`` before each, until there are ``limit``; int32 [ids]."""
    parts: list[list[int]] = []
    size = 0
    for first in range(0, len(texts), BATCH):
        for ids in tokenizer.encode_batch(texts[first : first + BATCH]):
            parts.append([boundary, *ids])
            size += len(ids) + 1
        if size >= limit:
            break
    return np.concatenate([np.array(part, dtype=np.int32) for part in parts])[:limit]


def classes_of(stream: NDArray[np.int32], size: int, min_count: int) -> tuple[NDArray[np.int32], int]:
    """Give the common ids classes by falling frequency, and all rare ones the class after them.

    Returns:
        The class of every id, int32 [size]; the number of classes.
    """
    counts = np.bincount(stream, minlength=size)
    common = np.flatnonzero(counts >= min_count)
    common = common[np.argsort(-counts[common], kind="stable")]
    classes = np.full(size, len(common), dtype=np.int32)
    classes[common] = np.arange(len(common), dtype=np.int32)
    return classes, len(common) + 1


@mx.compile
def _exponential(x: mx.array) -> mx.array:
    """exp(x) for -1024 < x <= 0, within 0.1% down to -1.4, 1.3% down to -5, 5% down to -10."""
    power = 1 + x * (1 / 1024)
    for _ in range(10):
        power = power * power
    return power


@mx.custom_function
def _log_normaliser(logits: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Return log of the sum of exponentials of every row, [rows]; and what the backward pass needs."""
    top = mx.max(logits, axis=-1, keepdims=True)
    weights = _exponential(logits - top)
    total = mx.sum(weights, axis=-1, keepdims=True)
    return (mx.log(total) + top)[:, 0], weights, total


@_log_normaliser.vjp
def _log_normaliser_vjp(logits: mx.array, cotangents: list[mx.array], outputs: list[mx.array]) -> mx.array:
    _, weights, total = outputs
    return weights * (cotangents[0][:, None] / total)


def sample_classes(
    targets: NDArray[np.int32], number: int, log_rare: float, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Choose the classes that a step's softmax runs over.

    Args:
        targets: Classes that the step predicts.
        number: How many classes there are; the last one is that of ``exp(log_rare)`` rare ids.
        log_rare: Logarithm of how many ids are rare.
        rng: Random source.

    Returns:
        Classes, int32 [SAMPLED]; what to add to their logits so that the sum of exponentials
        estimates that over all ids without bias, float32 [SAMPLED].
    """
    if number <= SAMPLED:
        return np.arange(number, dtype=np.int32), np.append(np.zeros(number - 1), log_rare).astype(np.float32)
    fixed = np.zeros(number, dtype=bool)
    fixed[:FREQUENT] = fixed[targets] = fixed[-1] = True
    others = np.flatnonzero(~fixed)
    sample = rng.choice(others, SAMPLED - int(fixed.sum()), replace=False)
    offsets = np.full(number, math.log(len(others) / len(sample)), dtype=np.float32)
    offsets[fixed] = 0
    offsets[-1] = log_rare
    chosen = np.concatenate([np.flatnonzero(fixed), sample]).astype(np.int32)
    return chosen, offsets[chosen]


def batches(stream: NDArray[np.int32], seed: int, progress: Callable[[], float]) -> Iterator[NDArray[np.int32]]:
    """Yield rows ``(rows, length + 1)`` of ``STEP_TOKENS`` predictions in all, without end.

    The short rows are drawn from the first two thirds of the stream and the long ones from the
    rest, so that no text is seen twice before its part is used up.
    """
    rng = np.random.default_rng(seed)
    cut = len(stream) * 2 // 3
    while True:
        short = progress() < 2 / 3
        length, part = (SHORT, stream[:cut]) if short else (LONG, stream[cut:])
        rows = STEP_TOKENS // length
        starts = rng.permutation(np.arange(rng.integers(length), len(part) - length, length))
        for first in range(0, len(starts) - rows + 1, rows):
            if (progress() < 2 / 3) != short:
                break
            yield np.stack([part[start : start + length + 1] for start in starts[first : first + rows]])


def train(
    model: Model,
    feed: Iterator[NDArray[np.int32]],
    log_rare: float,
    peak: float,
    seed: int,
    progress: Callable[[], float],
    shown: Callable[[int, float], None],
) -> int:
    """Train in place with AdamW; linear warm-up and cosine decay over ``progress`` (0 to 1).

    Args:
        model: Classes in its vocabulary, the class of rare ids last.
        feed: Rows of classes; every process takes its share of them.
        log_rare: Logarithm of how many ids are rare.
        peak: The highest learning rate.
        seed: Seeds the choice of classes.
        progress: How much of the run is over; the same in all processes.
        shown: Told step and loss (nats per token).

    Returns:
        The number of steps.
    """
    group = mx.distributed.init()
    rng = np.random.default_rng([seed, group.rank()])
    optimizer = optim.AdamW(peak, betas=[0.9, 0.98], weight_decay=0.05)
    width = model.args.hidden_size

    def loss_of(rows: mx.array, classes: mx.array, offsets: mx.array) -> mx.array:
        hidden = model.model(rows[:, :-1]).reshape(-1, width)
        table = model.model.embed_tokens.weight
        right = mx.sum(hidden * table[rows[:, 1:].reshape(-1)], axis=-1)
        return mx.mean(_log_normaliser(hidden @ table[classes].T + offsets)[0] - right)

    state = [model.state, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def update(gradients: dict[str, Any]) -> None:
        clipped, _ = optim.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, clipped)

    optimizer.init(model.trainable_parameters())
    step_of = nn.value_and_grad(model, loss_of)
    step = 0
    while (done := progress()) < 1:
        rise = min(1.0, (done + 1e-4) / WARM_UP)
        fall = 0.5 * (1 + math.cos(math.pi * max(0.0, done - WARM_UP) / (1 - WARM_UP)))
        optimizer.learning_rate = mx.array(peak * rise * (0.02 + 0.98 * fall))
        rows = np.array_split(next(feed), group.size())[group.rank()]
        classes, offsets = sample_classes(rows[:, 1:].reshape(-1), model.args.vocab_size, log_rare, rng)
        loss, gradients = step_of(mx.array(rows), mx.array(classes), mx.array(offsets))
        update(nn.average_gradients(gradients, group))
        mx.eval(loss, state)
        step += 1
        shown(step, loss.item())
    return step


def held_out_loss(model: nn.Module, documents: Sequence[NDArray[np.int32]]) -> tuple[float, int, NDArray[np.int64]]:
    """Return mean loss in nats per token, the tokens, and the likeliest id everywhere; first ids are given."""
    total, tokens, likeliest = 0.0, 0, []
    for document in documents:
        for first in range(0, len(document) - 1, LONG):
            row = mx.array(document[first : first + LONG + 1])
            logits = model(row[None, :-1])[0]
            total += float(nn.losses.cross_entropy(logits, row[1:], reduction="sum").item())
            likeliest.append(np.array(mx.argmax(logits, axis=-1)))
            tokens += row.size - 1
    return total / tokens, tokens, np.concatenate(likeliest).astype(np.int64)


def save_whole(model: Model, config: dict[str, Any], classes: NDArray[np.int32], folder: Path) -> None:
    """Write ``model`` over all ids to ``folder``: every id gets the row of its class."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(model.parameters()))
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][mx.array(classes)]
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    save_config({**config, "vocab_size": len(classes)}, folder / "config.json")


@click.command()
@click.option("--tokenizer", "source", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--corpus", required=True, help="Training text.")
@click.option("--valid", required=True, help="Held-out text.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Directory of the model.")
@click.option("--minutes", default=15.0, show_default=True, help="Time to train for.")
@click.option("--steps", type=int, help=f"Train for so many steps of {STEP_TOKENS} tokens instead.")
@click.option("--tokens", default=5_000_000, show_default=True, help="Training tokens to take, in random order.")
@click.option("--boundary", default="<|endoftext|>", show_default=True, help="Token before every document.")
@click.option("--min-count", default=3, show_default=True, help="Ids seen less often share one row.")
@click.option("--hidden", default=224, show_default=True, help="Hidden size.")
@click.option("--layers", default=2, show_default=True)
@click.option("--heads", default=4, show_default=True)
@click.option("--intermediate", default=768, show_default=True, help="Intermediate size.")
@click.option("--rate", default=3e-3, show_default=True, help="Peak learning rate.")
@click.option("--valid-tokens", default=30_000, show_default=True, help="Held-out tokens to measure on.")
@click.option("--seed", default=0, show_default=True)
def main(
    source: Path,
    corpus: str,
    valid: str,
    out: Path,
    minutes: float,
    steps: int | None,
    tokens: int,
    boundary: str,
    min_count: int,
    hidden: int,
    layers: int,
    heads: int,
    intermediate: int,
    rate: float,
    valid_tokens: int,
    seed: int,
) -> None:
    """Train a small draft, store it for mlx-lm, and measure it on held-out text."""
    group = mx.distributed.init()

    def say(line: str) -> None:
        if group.rank() == 0:
            click.echo(line)

    tokenizer = open_tokenizer(source)
    start = tokenizer.vocabulary.get(boundary)
    if start is None:
        raise click.UsageError(f"--boundary: expected a token of {source}, got {boundary!r}.")
    texts = [document.text for document in open_corpus(corpus)]
    order = np.random.default_rng(seed).permutation(len(texts))
    stream = token_stream(tokenizer, [texts[place] for place in order], start, tokens)
    del texts
    classes, number = classes_of(stream, tokenizer.size, min_count)
    log_rare = math.log(len(classes) - number + 1)
    share = float(np.mean(classes[stream] == number - 1))
    say(f"{len(stream)} training tokens at hand, {number - 1} common ids, {share:.3%} of the text is rare ids")

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "vocab_size": number,
        "bos_token_id": start,
        "eos_token_id": start,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict(config))
    parameters = sum(weights.size for _, weights in tree_flatten(model.parameters()))
    say(f"{parameters} parameters, {group.size()} processes")

    begun = time.perf_counter()
    made, past = 0, 0.0

    def progress() -> float:
        return made / steps if steps else past / 60 / minutes

    def shown(step: int, loss: float) -> None:
        nonlocal made, past
        made = step
        # All processes must agree on the time.
        past = mx.distributed.all_max(mx.array(time.perf_counter() - begun)).item()
        if step % 100 == 0:
            say(f"step {step}, {past / 60:.1f} min: {loss:.3f} nats/token")

    total = train(model, batches(classes[stream], seed, progress), log_rare, rate, seed, progress, shown)
    spent = (time.perf_counter() - begun) / 60
    say(f"{total * STEP_TOKENS} tokens trained in {total} steps, {spent:.1f} min")
    if group.rank() > 0:
        return

    save_whole(model, config, classes, out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile((source if source.is_dir() else source.parent) / name, out / name)

    texts = [document.text for document in open_corpus(valid)]
    documents = [np.array([start, *ids], dtype=np.int32) for ids in tokenizer.encode_batch(texts)]
    kept = int(np.searchsorted(np.cumsum([len(document) - 1 for document in documents]), valid_tokens)) + 1
    stored, *_ = load(str(out))
    loss, measured, likeliest = held_out_loss(stored, documents[:kept])
    _, _, pruned = held_out_loss(model, [classes[document] for document in documents[:kept]])
    agreed = int(np.sum(classes[likeliest] == pruned))
    rare = int(np.sum(pruned == number - 1))
    click.echo(f"held out: {loss:.3f} nats/token on {measured} tokens")
    click.echo(f"stored model = pruned model at {agreed} of {measured} positions; a rare id wins at {rare}")
    record = {"tokens": total * STEP_TOKENS, "minutes": round(spent, 1), "steps": total, "seed": seed}
    record |= {"parameters": parameters, "held_out_nats": round(loss, 4), "held_out_tokens": measured}
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
