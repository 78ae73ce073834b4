"""What each choice behind the backoff method gains: the method as it is, and with one choice made otherwise.

    python benchmarks/backoff_choices.py                                  # what is not measured yet
    python benchmarks/backoff_choices.py --tokenizer llama-3.2 --language uk --train-tokens 1000000

All dictionaries are built from the same counts, to the same number of bytes. They are replayed on text that was not
counted, at most 8 draft tokens a cycle. Results go to ``benchmarks/results/backoff_choices.jsonl``; tokenizers and
corpora come from the folder named by SPECTOOL_SHARED.

* absolute discounting: shorter contexts count occurrences, not different tokens before the window
* p - q alone: entries are kept for what they add without a threshold
* as smoothed: entries state the probability after an unseen longer context, not the conditional one
* not calibrated: no factors from held-out text
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts import Counts, Dictionary
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary import backoff_stage as backoff_dictionary
from spectool.build.dictionary import smoothing
from spectool.build.dictionary.backoff import CandidateEntries, Predictions
from spectool.build.dictionary.backoff_stage import build_backoff
from spectool.build.dictionary.held_out import Calibration, split_off
from spectool.build.dictionary.options import BackoffOptions
from spectool.corpora import open_corpus
from spectool.measure.emulate import replay
from spectool.runtime.drafters.lookup import LookupDrafter

RESULTS = Path(__file__).parent / "results" / "backoff_choices.jsonl"
FLOORS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
ORDERS = 8


class KeptWithoutThreshold(CandidateEntries):
    """Keeps entries for p - q."""

    def entries_gaining(self, least: float, by_threshold: bool = False) -> list[Predictions]:
        """Choose."""
        return super().entries_gaining(least, by_threshold=False)


class StatedAsSmoothed(KeptWithoutThreshold):
    """States what Kneser and Ney do."""

    def restated(self, chosen: Sequence[Predictions]) -> list[Predictions]:
        """Leave them as they are."""
        return list(chosen)


class NotCalibrated(Calibration):
    """Factors of one."""

    def __call__(self, length: int, count: np.ndarray, probability: np.ndarray) -> np.ndarray:
        """Return them as they are."""
        return probability.astype(np.float64)


AS_IT_IS = BackoffOptions()
CHOICES = {
    "as it is": (AS_IT_IS, []),
    "absolute discounting": (
        AS_IT_IS,
        [patch.object(smoothing, "_left_variety", lambda window, longer: window.count.astype(np.float64))],
    ),
    "D = 0.3": (replace(AS_IT_IS, discount=0.3), []),
    "D = 0.6": (replace(AS_IT_IS, discount=0.6), []),
    "contexts of 3": (replace(AS_IT_IS, max_context=3), []),
    "contexts of 4": (replace(AS_IT_IS, max_context=4), []),
    "contexts of 5": (replace(AS_IT_IS, max_context=5), []),
    "contexts of 7": (replace(AS_IT_IS, max_context=7), []),
    "p - q alone": (AS_IT_IS, [patch.object(backoff_dictionary, "CandidateEntries", KeptWithoutThreshold)]),
    "p - q alone, as smoothed": (AS_IT_IS, [patch.object(backoff_dictionary, "CandidateEntries", StatedAsSmoothed)]),
    "not calibrated": (AS_IT_IS, [patch.object(backoff_dictionary, "Calibration", NotCalibrated)]),
}


@click.command()
@click.option("--tokenizer", "names", multiple=True, default=("bielik-11b-v2.5", "llama-3.2"), show_default=True)
@click.option("--language", "languages", multiple=True, default=("uk", "pl"), show_default=True)
@click.option("--train-tokens", default=6_000_000, show_default=True, help="Tokens of text to count.")
@click.option("--tokens", default=40_000, show_default=True, help="Tokens to replay.")
@click.option("--max-bytes", default=3_000_000, show_default=True, help="Size of every dictionary.")
def main(names: tuple[str, ...], languages: tuple[str, ...], train_tokens: int, tokens: int, max_bytes: int) -> None:
    """Measure what is missing, save it, print a table."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for name in names:
        for language in languages:
            case = {"tokenizer": name, "language": language, "asked": train_tokens, "max_bytes": max_bytes}
            if not any(case.items() <= row.items() for row in rows):
                rows += [case | row for row in measured(name, language, train_tokens, tokens, max_bytes)]
                RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    click.echo(table([row for row in rows if row["asked"] == train_tokens and row["max_bytes"] == max_bytes]))


def measured(name: str, language: str, train_tokens: int, tokens: int, max_bytes: int) -> list[dict[str, object]]:
    """Build and replay a dictionary for every choice."""
    tokenizer = real_tokenizer(name)
    documents = list(encoded(tokenizer, real_corpus(language, "valid"), tokens))
    number = sum(1 for _ in encoded(tokenizer, real_corpus(language, "train"), train_tokens))
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        text, counts, out = (Path(scratch) / part for part in ("train.txt", "windows.counts", "one.dict"))
        with text.open("w", encoding="utf-8") as file:
            for document, _ in zip(real_corpus(language, "train"), range(number), strict=False):
                file.write(document.text.replace("\n", " ") + "\n")
        held_out: list[str] = []
        count(
            open_corpus(str(text)),
            counts,
            CountOptions(orders=ORDERS, workers=1),
            tokenizer,
            lambda step: None,
            partial(split_off, held_out=held_out),
        )
        for choice, (options, patches) in CHOICES.items():
            for one in patches:
                one.start()
            options = replace(options, max_bytes=max_bytes)
            build_backoff(tokenizer, Counts(counts), out, options, lambda step: None, held_out)
            for one in patches:
                one.stop()
            curve = {}
            for floor in FLOORS:
                statistics = replay(documents, LookupDrafter(Dictionary(out), min_probability=floor))
                curve[floor] = (statistics.tokens_per_pass, statistics.acceptance_rate)
            found.append({"choice": choice, "entries": len(Dictionary(out)), "curve": curve})
            click.echo(f"{name}, {language}, {choice}: {curve[0.0][0]:.4f}, {at_acceptance(curve):.4f}", err=True)
    return found


def at_acceptance(curve: dict, wanted: float = 0.45) -> float:
    """Return tokens per pass at an acceptance, between the nearest thresholds."""
    points = sorted((acceptance, passes) for passes, acceptance in curve.values())
    return float(np.interp(wanted, *zip(*points, strict=True)))


def table(rows: list[dict]) -> str:
    """Return the choices, and what each has over the method as it is, without a threshold and at 45% acceptance."""
    cases = list(dict.fromkeys((row["tokenizer"], row["language"]) for row in rows))
    lines = ["| choice | " + " | ".join(f"{name}, {language}" for name, language in cases) + " |"]
    lines.append("|---|" + "---:|" * len(cases))
    found = {(row["tokenizer"], row["language"], row["choice"]): row for row in rows}
    for choice in CHOICES:
        cells = []
        for case in cases:
            here, there = (found[*case, name]["curve"] for name in (choice, "as it is"))
            first, second = ((max(p for p, _ in curve.values()), at_acceptance(curve)) for curve in (here, there))
            same = choice == "as it is"
            cells.append(", ".join(f"{a:.3f}" if same else f"{a - b:+.3f}" for a, b in zip(first, second, strict=True)))
        lines.append(f"| {choice} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
