"""The report of ``spectool align`` for pairs of real tokenizers: intersection, merge sites, ceiling.

    python benchmarks/alignments.py

Prints Markdown tables and saves ``benchmarks/results/alignments.jsonl``. Tokenizers and corpora
come from the folder named by SPECTOOL_SHARED.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import click
from real_data import real_corpus, real_tokenizer
from tqdm import tqdm

from spectool.build import build_alignment
from spectool.measure.ceiling import measure_ceiling

RESULTS = Path(__file__).parent / "results" / "alignments.jsonl"
PAIRS = [
    *(
        (draft, "bielik-11b-v2.5")
        for draft in ("qwen2.5", "llama-3.2", "gemma-3", "mistral-nemo", "bielik-4.5b-v3-apt4")
    ),
    ("qwen2.5", "gemma-3"),
    ("llama-3.2", "gemma-3"),
    ("qwen2.5", "llama-3.2"),
]


@click.command()
@click.option("--language", "languages", multiple=True, default=("uk", "pl"), show_default=True)
@click.option("--first", default=len(PAIRS), show_default=True, help="How many of the pairs, the first ones.")
def main(languages: tuple[str, ...], first: int) -> None:
    """Align every pair on every language, save and print."""
    rows = []
    for draft, target in tqdm(PAIRS[:first]):
        sides = [real_tokenizer(name) for name in (draft, target)]
        for language in languages:
            corpus = real_corpus(language, "valid")
            with tempfile.TemporaryDirectory() as scratch:
                started, path = time.perf_counter(), Path(scratch) / "pair"
                manifest = build_alignment(*sides, corpus, path, lambda step: None, measure=measure_ceiling)
                seconds = time.perf_counter() - started
            covered = {f"{side} coverage": manifest.statistics[side]["coverage"] for side in ("draft", "target")}
            report = {key: manifest.statistics[key] for key in ("draft_to_target", "target_to_draft", "ceiling")}
            row = {"draft": draft, "target": target, "language": language, "seconds": round(seconds, 1)}
            rows.append(row | covered | report)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    click.echo(
        "| draft → target | text | draft ids shared | draft tokens shared | target ids shared | target tokens shared |"
    )
    click.echo("|---|---|---:|---:|---:|---:|")
    for row in rows:
        shares = [
            f"{row[f'{s} coverage'][by]:.1%}" for s in ("draft", "target") for by in ("by_vocabulary", "by_occurrence")
        ]
        click.echo(f"| {row['draft']} → {row['target']} | {row['language']} | {' | '.join(shares)} |")
    click.echo(
        "\n| draft → target | text | several ids | merge sites | and back | string-free | and back "
        "| ceiling k = 2 | 4 | 8 | context, 4 | naive, 4 | intersection, 4 |"
    )
    click.echo("|---|---|" + "---:|" * 11)
    for row in rows:
        forth, back, ceiling = row["draft_to_target"], row["target_to_draft"], row["ceiling"]
        shares = (
            forth["several"],
            forth["merge_sites"],
            back["merge_sites"],
            forth["string_free"],
            back["string_free"],
        )
        cells = [f"{share:.1%}" for share in shares]
        cells += [f"{ceiling['anchored'][k]:.2f}" for k in ("2", "4", "8")]
        cells += [f"{ceiling[name]['4']:.2f}" for name in ("context", "naive", "intersection")]
        click.echo(f"| {row['draft']} → {row['target']} | {row['language']} | {' | '.join(cells)} |")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB on Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    click.echo(f"\npeak memory {peak:.0f} MB, slowest pair {max(row['seconds'] for row in rows)} s")


if __name__ == "__main__":
    main()
