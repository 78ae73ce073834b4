"""What the least entries of a dictionary without a limit gain on other text.

    python benchmarks/least_gain.py

For each language, dictionaries from the same counts keep all entries that gain more than some number of expected
accepted tokens. Of each: entries, bytes, and tokens per pass with the acceptance on held-out text. That is at three
least probabilities of a proposal, at most 8 draft tokens a cycle. Results go to
``benchmarks/results/least_gain.jsonl``; tokenizers and corpora come from the folder named by SPECTOOL_SHARED.
"""

import json
import tempfile
from functools import partial
from pathlib import Path
from unittest.mock import patch

import click
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts import Counts, Dictionary
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary import backoff
from spectool.build.dictionary.backoff_stage import build_backoff, prepare_backoff
from spectool.build.dictionary.held_out import split_off
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus
from spectool.measure.emulate import replay
from spectool.runtime.drafters.lookup import LookupDrafter

RESULTS = Path(__file__).parent / "results" / "least_gain.jsonl"
LEAST = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
PROBABILITIES = (0.0, 0.2, 0.4)


@click.command()
@click.option("--tokenizer", "name", default="bielik-11b-v2.5", show_default=True)
@click.option("--language", "languages", multiple=True, default=("crh", "pl", "uk"), show_default=True)
@click.option("--train-tokens", default=2_000_000, show_default=True, help="Tokens of text to count.")
@click.option("--tokens", default=60_000, show_default=True, help="Tokens to replay.")
def main(name: str, languages: tuple[str, ...], train_tokens: int, tokens: int) -> None:
    """Build, replay, save and print."""
    click.echo("| language | least gain | entries | MB | " + " | ".join(f"from {p:g}" for p in PROBABILITIES) + " |")
    click.echo("|---|---:|---:|---:|" + "---:|" * len(PROBABILITIES))
    for language in languages:
        for row in measured(name, language, train_tokens, tokens):
            with RESULTS.open("a") as file:
                file.write(json.dumps({"tokenizer": name, "language": language, **row}) + "\n")
            figures = " | ".join(f"{passes:.4f} ({share:.1%})" for passes, share in row["tokens per pass"])
            click.echo(f"| {language} | {row['least']} | {row['entries']:,} | {row['bytes'] / 1e6:.2f} | {figures} |")


def measured(name: str, language: str, train_tokens: int, tokens: int) -> list[dict]:
    """Build and replay the dictionaries of a language."""
    tokenizer = real_tokenizer(name)
    documents = list(encoded(tokenizer, real_corpus(language, "valid"), tokens))
    number = sum(1 for _ in encoded(tokenizer, real_corpus(language, "train"), train_tokens))
    options, rows, held_out = BackoffOptions(max_bytes=None), [], []
    with tempfile.TemporaryDirectory() as scratch:
        text, counted, out = (Path(scratch) / part for part in ("train.txt", "windows.counts", "one.dict"))
        with text.open("w", encoding="utf-8") as file:
            for document, _ in zip(real_corpus(language, "train"), range(number), strict=False):
                file.write(document.text.replace("\n", " ") + "\n")
        limits = CountOptions(orders=options.max_context + 1, workers=1)
        split = partial(split_off, held_out=held_out)
        count(open_corpus(str(text)), counted, limits, tokenizer, lambda step: None, split)
        counts = Counts(counted)
        prepared = prepare_backoff(tokenizer, counts, options, lambda step: None, held_out)
        for least in LEAST:
            with patch.object(backoff, "LEAST_GAIN", least):
                build_backoff(tokenizer, counts, out, options, lambda step: None, held_out, prepared)
            dictionary = Dictionary(out)
            found = [replay(documents, LookupDrafter(dictionary, min_probability=p)) for p in PROBABILITIES]
            rows.append(
                {
                    "least": least,
                    "entries": len(dictionary),
                    "bytes": sum(file.stat().st_size for file in out.iterdir()),
                    "tokens per pass": [(round(s.tokens_per_pass, 4), round(s.acceptance_rate, 4)) for s in found],
                }
            )
    return rows


if __name__ == "__main__":
    main()
