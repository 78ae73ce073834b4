"""Whether texts stay the same with pretrained weights: every drafter and precision against mlx-lm's plain decoding.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 OPENBLAS_NUM_THREADS=1 \\
        python benchmarks/real_lossless.py --target smollm2-135m --draft gemma3-270m --language en

Greedy answers to the prompts of ``real_text.py`` are compared token by token. A pass over several tokens may round
differently from a pass over one, so a difference is judged: the true history is evaluated token by token and in
passes of several sizes. It is a near-tie if the gap between the two tokens is at most twice the largest change of a
log-probability between those evaluations. No tolerance is set by hand. Every other difference is printed as an error
and makes the exit status 1.

The drafters are dictionary and history, ``--draft`` through an alignment, and all of them together. A hundred prompts
take hours in each precision; ``--first`` lets several runs share them. Adds a line for each drafter and precision to
``benchmarks/results/real_lossless.jsonl``.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.generate import generate_step as plain_step
from mlx_lm.models.cache import make_prompt_cache
from real_data import alignment_of, dictionary_of
from real_models import real_model
from real_text import prompt_ids, real_prompts
from saving import BLAS, save
from tqdm import tqdm

from spectool.runtime import Drafter, DraftStatistics, generate_step, load_drafter
from spectool.runtime.loading import load_model

PRECISIONS = ("float32", "bfloat16", "8", "4")
SIZES = (2, 3, 5, 9)  # tokens of a pass when a difference is judged
GROUP = 32  # weights that are quantised together


@click.command()
@click.option("--target", default="smollm2-135m", show_default=True)
@click.option("--draft", default="gemma3-270m", show_default=True, help="Draft model with another tokenizer.")
@click.option("--language", default="en", show_default=True)
@click.option("--precision", "precisions", multiple=True, default=PRECISIONS, show_default=True)
@click.option("--prompts", "count", default=100, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first prompt.")
@click.option("--tokens", default=128, show_default=True, help="Tokens of each answer.")
@click.option("--num-draft-tokens", "length", default=4, show_default=True)
def main(
    target: str,
    draft: str,
    language: str,
    precisions: tuple[str, ...],
    count: int,
    first: int,
    tokens: int,
    length: int,
) -> None:
    """Compare, print and save."""
    made, wrong = drafters(target, draft, language), 0
    for precision in precisions:
        model, tokenizer = load_model(real_model(target))
        model = in_precision(model, precision)
        texts = (prompt_ids(tokenizer, target, text) for text in real_prompts(target, language, 10 * (first + count)))
        prompts = list(islice((ids for ids in texts if len(ids) < 200), first, first + count))
        rows = {name: {"compared": 0, "near-ties": 0, "widest gap": 0.0, "errors": 0} for name in made}
        statistics = {name: DraftStatistics() for name in made}
        for prompt in tqdm(prompts, desc=precision, mininterval=30):
            expected = [int(token) for token, _ in plain_step(mx.array(prompt), model, max_tokens=tokens)]
            for name, row in rows.items():
                for error in compare(model, made[name], prompt, expected, length, row, statistics[name]):
                    click.echo(f"ERROR: {precision}, {name}: {error}")
        for name, row in rows.items():
            line = {"target": target, "draft": draft, "language": language, "precision": precision, "drafter": name}
            line |= {"blas": BLAS, "prompts": len(prompts), "first": first, "k": length, **row}
            line |= {"proposed": statistics[name].proposed, "tokens per pass": statistics[name].tokens_per_pass}
            wrong += row["errors"] + (statistics[name].proposed == 0)
            click.echo(json.dumps(line))
            save("real_lossless", line)
    if wrong:
        raise click.ClickException(f"{wrong} answers are not plain decoding's, or drafters that proposed nothing")


def drafters(target: str, draft: str, language: str) -> dict[str, Drafter]:
    """The drafters by name."""
    where = real_model(target)
    look_ups = {"dictionary": dictionary_of(target, language)}
    pair = {"draft_model": load_model(real_model(draft)), "alignment": alignment_of(draft, target, language)}
    return {
        "dictionary and history": load_drafter(where, **look_ups),
        "draft model": load_drafter(where, **pair, history=False),
        "together": load_drafter(where, **look_ups, **pair),
    }


def in_precision(model: Any, precision: str) -> Any:
    """The model in a floating-point type, or quantised to a number of bits."""
    if precision.isdigit():
        nn.quantize(model, GROUP, int(precision))
    else:
        dtype = getattr(mx, precision)
        floating = lambda weight: weight.astype(dtype) if mx.issubdtype(weight.dtype, mx.floating) else weight  # noqa: E731
        model.update(tree_map(floating, model.parameters()))
    return model


def compare(
    model: Any,
    drafter: Drafter,
    prompt: Sequence[int],
    expected: Sequence[int],
    length: int,
    row: dict[str, Any],
    statistics: DraftStatistics,
) -> Iterator[str]:
    """Errors of an answer compared with plain decoding's; counts in ``row``. After a near-tie, drafting continues."""
    done = 0
    while done < len(expected):
        history = [*prompt, *expected[:done]]
        options = {"num_draft_tokens": length, "max_tokens": len(expected) - done, "statistics": statistics}
        got = [token for token, *_ in generate_step(mx.array(history), model, drafter=drafter, **options)]
        at = next((i for i, (one, other) in enumerate(zip(expected[done:], got, strict=True)) if one != other), None)
        row["compared"] += len(got) if at is None else at + 1
        if at is None:
            return
        one, other, history = expected[done + at], got[at], [*prompt, *expected[: done + at]]
        alone = after(model, history, 1)
        change = max(mx.max(mx.abs(after(model, history, size) - alone)).item() for size in SIZES)
        gap = (alone[one] - alone[other]).item()
        if gap > 2 * change:
            row["errors"] += 1
            yield f"token {done + at} is {other}, expected {one}; gap {gap}, rounding {change}; prompt {list(prompt)}"
            return
        row["near-ties"] += 1
        row["widest gap"] = max(row["widest gap"], gap)
        done += at + 1


def after(model: Any, history: Sequence[int], size: int) -> mx.array:
    """Log-probabilities [vocabulary] after a history fed in passes of ``size`` tokens, the first one shorter."""
    cache, first = make_prompt_cache(model), len(history) % size or size
    for start in (0, *range(first, len(history), size)):
        part = history[start : first if start == 0 else start + size]
        logits = model(mx.array(part)[None], cache=cache)[0, -1].astype(mx.float32)
        mx.eval(logits, [entry.state for entry in cache])
    return logits - mx.logsumexp(logits)


if __name__ == "__main__":
    main()
