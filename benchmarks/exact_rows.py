"""Do logits depend on how many tokens a pass has, and would passes of a fixed size make decoding exact?

    python benchmarks/exact_rows.py --model smollm2-135m --language en

A token's logits are computed three ways from the same text, behind the same tokens:

    single   in a pass of its own, as plain decoding does
    row j    as token j of a pass over ``--rows`` tokens, as verification does
    row 0    as the first token of a pass over ``--rows`` tokens: a plain pass, padded

``row j`` beside ``single`` says how often drafting can turn two tokens round. Each such place is printed with the gap
of the two best logits. ``row j`` beside ``row 0`` says whether an exact mode by padding is possible: only if all are
the same to the last bit. What it would cost is the cost of a pass over that many tokens.

With ``--stretch``, so many tokens are read behind each context by passes of one token, and once more by passes over
``--rows``. Each has a cache of its own. How often the best token is another one is the rate of near-ties that drafting
can turn round. `row 0` is left out then.

    python benchmarks/exact_rows.py --model smollm2-135m --text smollm2-135m --language en --stretch 120

Prints a Markdown table and adds to ``benchmarks/results/exact_rows.jsonl``.
"""

import copy
import json
import os
import platform
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import numpy as np
from lossless_models import PRECISIONS, in_precision
from mlx_lm.models.cache import trim_prompt_cache
from real_models import real_model
from real_text import read_text, text_path
from tqdm import tqdm

from spectool.measure.bench.timing import pass_cost
from spectool.runtime.loading import load_model
from spectool.runtime.mlx_lm_compat import make_prompt_cache

RESULTS = Path(__file__).parent / "results" / "exact_rows.jsonl"


def logits_of(model: Any, cache: list[Any], ids: list[int], fed: int, kept: int) -> np.ndarray:
    """Return logits of ``ids`` behind ``cache``, which stays as it is, float32 [about ids, vocabulary].

    Each pass feeds ``fed`` of them, and the first ``kept`` stay.
    """
    cache, found = copy.deepcopy(cache), []
    for at in range(0, len(ids) - fed + 1, kept):
        logits = model(mx.array([ids[at : at + fed]]), cache=cache)[0, :kept].astype(mx.float32)
        found.append(np.array(logits))
        trim_prompt_cache(cache, fed - kept)
    return np.concatenate(found)


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True)
@click.option("--text", "writer", default="qwen2.5-coder-1.5b", show_default=True, help="Whose text is read.")
@click.option("--language", default="en", show_default=True)
@click.option("--temperature", default=0.7, show_default=True)
@click.option("--precision", "precisions", multiple=True, default=PRECISIONS, show_default=True)
@click.option("--rows", default=5, show_default=True)
@click.option("--places", default=40, show_default=True, help="Contexts, each followed by so many tokens as rows.")
@click.option("--stretch", type=int, help="Tokens behind each context; a multiple of the rows.")
def main(
    model: str,
    writer: str,
    language: str,
    temperature: float,
    precisions: tuple[str, ...],
    rows: int,
    places: int,
    stretch: int | None,
) -> None:
    """Measure, print and save."""
    tokenizers = [load_model(real_model(name))[1] for name in (model, writer)]
    texts = [tokenizers[1].decode(text.output) for text in read_text(text_path(writer, language, temperature))]
    encoded = [tokenizers[0].encode(text) for text in texts]
    length = stretch or rows
    starts = [(ids, at) for ids in encoded for at in range(16, len(ids) - length - rows, length)][:places]
    lines = []
    for precision in precisions:
        loaded = in_precision(load_model(real_model(model))[0], precision)
        same = turned = padded_same = padded_turned = 0
        gaps: list[float] = []
        for ids, at in tqdm(starts, desc=precision):
            held, text = make_prompt_cache(loaded), ids[at : at + length + rows]
            mx.eval(loaded(mx.array([ids[:at]]), cache=held))
            single = logits_of(loaded, held, text[:length], 1, 1)
            several = logits_of(loaded, held, text[:length], rows, rows)
            padded = several if stretch else logits_of(loaded, held, text[:-1], rows, 1)
            same += int((single == several).all(axis=1).sum())
            padded_same += int((padded == several).all(axis=1).sum())
            padded_turned += int((padded.argmax(axis=1) != several.argmax(axis=1)).sum())
            for one, other in zip(single, several, strict=True):
                if one.argmax() != other.argmax():
                    turned += 1
                    gaps.append(float(np.ptp(np.sort(one)[-2:])))
        lines.append(
            {
                "model": model,
                "precision": precision,
                "blas": "OpenBLAS" if "openblas" in os.environ.get("LD_PRELOAD", "") else "reference",
                "device": str(mx.default_device()),
                "machine": platform.machine(),
                "rows": rows,
                "stretch": stretch,
                "tokens": len(starts) * length,
                "same bits": same,
                "turned round": turned,
                "widest gap": round(max(gaps, default=0.0), 5),
                "gaps": [round(gap, 5) for gap in sorted(gaps)],
                "padded: same bits": None if stretch else padded_same,
                "padded: turned round": None if stretch else padded_turned,
                "cost of a padded pass": round(pass_cost(loaded, rows, 7), 2),
            }
        )
        click.echo(json.dumps(lines[-1]))
    with RESULTS.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
