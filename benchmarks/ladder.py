"""The ladder: what each step of anchored translation adds, from one and the same draft.

    python benchmarks/ladder.py                                       n-gram draft, Ukrainian
    python benchmarks/ladder.py --language pl --model DIR --tokens 4500   a small neural draft, Polish

The text is replayed as the target's output, k draft tokens a cycle. Rows: the published strategies,
then the anchored one step by step (translation by table without resync, canonical resync, healing,
head absorption, tail absorption). The n-gram model is counted on the first ``--train-tokens``
draft tokens of the training text; the neural one comes from ``spectool lab train-draft``.

Prints a Markdown table and adds to ``benchmarks/results/ladder.jsonl``. Tokenizers and corpora come
from the folder named by SPECTOOL_SHARED. MLX's CPU build links the reference BLAS; preload another
for neural drafts, as ``spectool lab train-draft --help`` says.
"""

import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import click
from real_data import encoded, real_corpus, real_tokenizer
from tqdm import tqdm

from spectool.artifacts import Alignment
from spectool.build import build_alignment
from spectool.lab.ngram_model import NgramModel, NgramSource
from spectool.measure.emulate.strategies import anchored_steps, compare_strategies
from spectool.runtime.translation.factory import make_translator
from spectool.tokenization import Tokenizer, open_tokenizer

RESULTS = Path(__file__).parent / "results" / "ladder.jsonl"
STRATEGIES = ("none", "naive", "context", "intersection")
_ALIGNED = 3000  # documents of the training text on which absorption is counted


@click.command()
@click.option("--draft", default="qwen2.5", show_default=True)
@click.option("--target", default="bielik-11b-v2.5", show_default=True)
@click.option("--language", default="uk", show_default=True)
@click.option("--model", type=click.Path(path_type=Path, exists=True), help="A small neural draft, instead of n-grams.")
@click.option("--train-tokens", default=20_000_000, show_default=True, help="Draft tokens to count n-grams on.")
@click.option("--tokens", default=30_000, show_default=True, help="Target tokens to replay.")
@click.option("--num-draft-tokens", "lengths", multiple=True, default=(4,), show_default=True)
@click.option("--strategy", "strategies", multiple=True, default=STRATEGIES, show_default=True)
def main(
    draft: str,
    target: str,
    language: str,
    model: Path | None,
    train_tokens: int,
    tokens: int,
    lengths: tuple[int, ...],
    strategies: tuple[str, ...],
) -> None:
    """Replay with every strategy and step; save and print."""
    sides = real_tokenizer(draft), real_tokenizer(target)
    source, kind = _neural(model) if model else _ngrams(sides[0], language, train_tokens)
    documents = list(encoded(sides[1], real_corpus(language, "valid"), tokens))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "pair.align"
        corpus = real_corpus(language, "train")
        build_alignment(*sides, corpus, path, tqdm.write, lambda corpus: islice(corpus, _ALIGNED))
        alignment = Alignment(path)
        translators = {name: make_translator(name, alignment, *sides) for name in strategies}
        translators |= anchored_steps(alignment, *sides)
        rows = []
        total = sum(map(len, documents)) * len(lengths) * len(translators)
        with tqdm(total=total, unit=" tokens", unit_scale=True) as bar:
            for run in compare_strategies(documents, translators, source, lengths, bar.update):
                rows.append(
                    {
                        "draft": draft,
                        "model": kind,
                        "target": target,
                        "language": language,
                        "tokens": run.statistics.tokens,
                        "k": run.num_draft_tokens,
                        "strategy": run.strategy,
                        "tokens per pass": round(run.statistics.tokens_per_pass, 4),
                        "acceptance": round(run.statistics.acceptance_rate, 4),
                        "without proposal": round(run.counts.without_proposal, 4),
                        "string-free": round(run.counts.string_free, 4),
                        "us per cycle": round(run.counts.microseconds_per_cycle, 1),
                    }
                )
                tqdm.write(json.dumps(rows[-1]))
    with RESULTS.open("a") as results:
        results.writelines(json.dumps(row) + "\n" for row in rows)
    columns = ("k", "strategy", "tokens per pass", "acceptance", "without proposal", "string-free", "us per cycle")
    click.echo("| " + " | ".join(columns) + " | gain / context's gain |")
    click.echo("|" + "---:|" * (len(columns) + 1))
    for row in rows:
        base = next((r for r in rows if r["strategy"] == "context" and r["k"] == row["k"]), None)
        ratio = (row["tokens per pass"] - 1) / (base["tokens per pass"] - 1) if base else float("nan")
        click.echo("| " + " | ".join(str(row[column]) for column in columns) + f" | {ratio:.2f} |")


def _ngrams(tokenizer: Tokenizer, language: str, most: int) -> tuple[Any, str]:
    documents = encoded(tokenizer, real_corpus(language, "train"), most)
    return NgramSource(NgramModel.count(documents, tokenizer.size)), f"5-grams of up to {most:,} tokens"


def _neural(path: Path) -> tuple[Any, str]:
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.models import load_model

    model, loaded = load_model(str(path))
    tokenizer = open_tokenizer(loaded)
    bos = tokenizer.vocabulary.get("<|endoftext|>", tokenizer.roles.bos)
    return ModelSource(model, bos=bos, size=tokenizer.size), "small neural model"


if __name__ == "__main__":
    main()
