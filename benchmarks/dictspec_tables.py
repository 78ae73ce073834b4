"""The paper's Tables 3 and 4 on real tokenizers and corpora: fertility, and DictSpec dictionaries replayed.

    python benchmarks/dictspec_tables.py                  # everything that is not measured yet
    python benchmarks/dictspec_tables.py --language uk --tokenizer bielik-11b-v2.5
    python benchmarks/dictspec_tables.py --tables         # only print what is saved

Every run is one line of ``benchmarks/results/dictspec.jsonl``; finished runs are not repeated.
Tokenizers and corpora come from the folder named by SPECTOOL_SHARED.
"""

import json
import tempfile
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from real_data import real_corpus, real_tokenizer
from tqdm import tqdm

from spectool.artifacts import Dictionary, Tokenizer
from spectool.build import CountedCorpus, DictSpecOptions, build_dictspec, count_corpus
from spectool.corpora import Corpus, Document
from spectool.runtime.dictionary_drafter import DictionaryDrafter
from spectool.runtime.emulator import replay

RESULTS = Path(__file__).parent / "results" / "dictspec.jsonl"
TOKENIZERS = ("bielik-11b-v2.5", "llama-3.2", "gemma-3", "mistral-nemo", "qwen2.5")
LANGUAGES = ("uk", "pl", "crh-cyrl", "crh-latn")
GRID = (
    DictSpecOptions(entries=200_000, min_probability=0.2, reading="whole"),
    DictSpecOptions(entries=200_000, min_probability=0.8, reading="whole"),
    DictSpecOptions(entries=200_000, min_probability=0.2, reading="path"),
    DictSpecOptions(entries=200_000, min_probability=0.8, reading="path"),
    DictSpecOptions(entries=1_000_000, min_probability=0.2, reading="whole"),
    DictSpecOptions(entries=1_000_000, min_probability=0.2, reading="path"),
)
PAPER = {  # Table 3 (fertility) and Table 4 (best of the sweep), Ukrainian and Crimean Tatar
    ("bielik-11b-v2.5", "uk"): (3.18, 1.43, 0.70, 0.61, 0.17),
    ("bielik-11b-v2.5", "crh-cyrl"): (4.20, 1.65, 0.77, 0.84, 0.18),
    ("bielik-11b-v2.5", "crh-latn"): (3.92, 1.35, 0.69, 0.50, 0.08),
    ("llama-3.2", "uk"): (2.38, 1.28, 0.61, 0.46, 0.18),
    ("llama-3.2", "crh-cyrl"): (3.89, 1.61, 0.77, 0.79, 0.18),
    ("llama-3.2", "crh-latn"): (2.94, 1.22, 0.62, 0.36, 0.07),
    ("gemma-3", "uk"): (2.38, 1.26, 0.59, 0.44, 0.17),
    ("gemma-3", "crh-cyrl"): (3.30, 1.45, 0.71, 0.63, 0.18),
    ("gemma-3", "crh-latn"): (2.98, 1.19, 0.57, 0.33, 0.10),
    ("mistral-nemo", "uk"): (2.62, 1.34, 0.64, 0.53, 0.18),
    ("mistral-nemo", "crh-cyrl"): (3.51, 1.51, 0.73, 0.70, 0.18),
    ("mistral-nemo", "crh-latn"): (3.07, 1.21, 0.61, 0.34, 0.07),
    ("qwen2.5", "uk"): (2.59, 1.34, 0.63, 0.53, 0.18),
    ("qwen2.5", "crh-cyrl"): (3.51, 1.51, 0.72, 0.71, 0.19),
    ("qwen2.5", "crh-latn"): (3.01, 1.21, 0.58, 0.36, 0.11),
}


def texts_of(language: str, part: str) -> tuple[Corpus, Any]:
    """Open a corpus and the reader that keeps one script of it (``crh-cyrl``, ``crh-latn``)."""
    name, _, script = language.partition("-")
    corpus = real_corpus(name, part)

    def reader(source: Corpus) -> Iterator[Document]:
        return (document for document in source if not script or script_of(document.text) == script)

    return corpus, reader


def script_of(text: str) -> str:
    """Tell whether most letters are Cyrillic (``cyrl``) or Latin (``latn``)."""
    names = [unicodedata.name(char, "") for char in text if char.isalpha()]
    cyrillic = sum(name.startswith("CYRILLIC") for name in names)
    return "cyrl" if 2 * cyrillic > len(names) else "latn"


def measure(
    language: str, tokenizer: Tokenizer, counted: CountedCorpus, valid: list[str], options: DictSpecOptions
) -> dict[str, Any]:
    """Build one dictionary and replay the validation text."""
    documents = tokenizer.encode_batch(valid)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "dictionary"
        started = time.perf_counter()
        manifest = build_dictspec(tokenizer, counted, out, options, lambda step: None)
        built = time.perf_counter() - started
        statistics = replay(documents, DictionaryDrafter(Dictionary(out)))
    return {
        "language": language,
        "tokenizer": Path(tokenizer.name).name,
        **asdict(options),
        "stored": manifest.statistics["entries"],
        "before_pruning": manifest.statistics["entries_before_pruning"],
        "smallest_count": manifest.statistics["smallest_count"],
        "bytes": manifest.total_bytes,
        "build_seconds": round(built, 1),
        "fertility": round(statistics.tokens / sum(len(text.split()) for text in valid), 4),
        "tokens_per_pass": round(statistics.tokens_per_pass, 4),
        "coverage": round(statistics.coverage, 4),
        "mean_accepted_length": round(statistics.mean_accepted_length, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
    }


def saved() -> list[dict[str, Any]]:
    """Read the finished runs."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def is_done(runs: list[dict[str, Any]], language: str, tokenizer: str, options: DictSpecOptions) -> bool:
    """Whether a run with these settings is saved."""
    wanted = {"language": language, "tokenizer": tokenizer, **asdict(options)}
    return any(all(run.get(key) == value for key, value in wanted.items()) for run in runs)


def markdown(runs: list[dict[str, Any]]) -> str:
    """Lay the runs out as the tables of docs/results.md."""
    lines: list[str] = []
    for language in LANGUAGES:
        rows = [run for run in runs if run["language"] == language]
        if not rows:
            continue
        lines += [
            f"\n### {language}\n",
            "| tokenizer | fertility | n-grams | p_min of | stored | MB | tokens per pass | coverage | MAL "
            "| acceptance | paper: fertility, best speed-up, coverage, MAL, acceptance |",
            "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---|",
        ]
        for run in rows:
            paper = PAPER.get((run["tokenizer"], language))
            lines.append(
                f"| {run['tokenizer']} | {run['fertility']:.2f} | {run['entries'] // 1000}k "
                f"| {run['min_probability']} {run['reading']} | {run['stored'] // 1000}k | {run['bytes'] / 1e6:.2f} "
                f"| **{run['tokens_per_pass']:.3f}** | {run['coverage']:.2f} | {run['mean_accepted_length']:.2f} "
                f"| {run['acceptance']:.2f} | {', '.join(map(str, paper)) if paper else '—'} |"
            )
    return "\n".join(lines)


@click.command()
@click.option("--language", "languages", multiple=True, type=click.Choice(LANGUAGES), default=LANGUAGES)
@click.option("--tokenizer", "names", multiple=True, type=click.Choice(TOKENIZERS), default=TOKENIZERS)
@click.option("--tables", is_flag=True, help="Only print the tables of the saved runs.")
def main(languages: tuple[str, ...], names: tuple[str, ...], tables: bool) -> None:
    """Measure what is missing, save each run, print the tables."""
    RESULTS.parent.mkdir(exist_ok=True)
    runs = saved()
    todo = [(lang, name, o) for lang in languages for name in names for o in GRID if not is_done(runs, lang, name, o)]
    if not tables:
        counted: dict[str, CountedCorpus] = {}
        valid: dict[str, list[str]] = {}
        with RESULTS.open("a") as file:
            for language, name, options in tqdm(todo, desc="dictionaries"):
                if language not in counted:
                    counted.clear()
                    corpus, reader = texts_of(language, "train")
                    counted[language] = count_corpus(corpus, reader=reader)
                    corpus, reader = texts_of(language, "valid")
                    valid[language] = [document.text for document in reader(corpus)]
                tokenizer = real_tokenizer(name)
                run = measure(language, tokenizer, counted[language], valid[language], options)
                run["tokenizer"] = name
                runs.append(run)
                file.write(json.dumps(run) + "\n")
                file.flush()
    click.echo(markdown(runs))


if __name__ == "__main__":
    main()
