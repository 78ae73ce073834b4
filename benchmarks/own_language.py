"""The languages that a model falls into by itself, and how well a draft serves each of them.

    pip install py3langid
    python benchmarks/own_language.py --model smollm2-135m --texts 200
    python benchmarks/own_language.py --model smollm2-135m --fairness RUN      RUN of `spectool fairness`, tasks by code

Texts are drawn at temperature 1 after the model's first token alone. The share of a language among them says how much
of it the model has read. Source: "Disparate Impacts of Speculative Decoding", section 8.2, Figure 6 (100,000 texts).

Prints a table: share of each language, and the acceptance of the first draft in RUN where a task has its code.
"""

from collections import Counter
from pathlib import Path

import click
import mlx.core as mx
from mlx_lm.generate import batch_generate
from mlx_lm.sample_utils import make_sampler
from py3langid import classify
from real_models import real_model

from spectool.commands.console import table
from spectool.lab.fairness.saved import Fairness
from spectool.runtime.loading import load_model


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True)
@click.option("--texts", default=200, show_default=True)
@click.option("--tokens", default=48, show_default=True, help="Of a text.")
@click.option("--fairness", type=click.Path(path_type=Path), help="Where `spectool fairness` wrote.")
@click.option("--seed", default=0, show_default=True)
def main(model: str, texts: int, tokens: int, fairness: Path | None, seed: int) -> None:
    """Draw, classify, and print."""
    mx.random.seed(seed)
    loaded, tokenizer = load_model(real_model(model))
    first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    drawn = batch_generate(
        loaded, tokenizer, [[first]] * texts, max_tokens=tokens, sampler=make_sampler(1.0), completion_batch_size=40
    ).texts
    shares = Counter(classify(text)[0] for text in drawn)
    tasks = next(iter(Fairness(fairness).figures["drafts"].values()))["tasks"] if fairness else {}
    accepted = {code: f"{at['acceptance']:.1%}" for code, at in tasks.items() if at["acceptance"] is not None}
    codes = [*dict(shares.most_common()), *(code for code in tasks if code not in shares)]
    rows = [[code, f"{shares[code] / texts:.1%}", accepted.get(code, "")] for code in codes]
    click.echo(table(["language", "share", "acceptance"], rows))


if __name__ == "__main__":
    main()
