"""Merged dictionaries beside those they are merged from, beside one built anew, and restricted to an alphabet.

    python benchmarks/merging.py
    python benchmarks/merging.py --general 180000 --law 120000 --max-bytes 5000000     # all of the text

There are two genres of the Polish text, told apart by words that are typical of them. One is law (articles, paragraphs,
ministers). The general one is what is neither law nor about software (novels and web text). One paragraph of 25 is held
out and replayed, drafts of at most 8 tokens. A dictionary is built from each genre, then the two are merged with
several weights, and a third is built from the text of both. Last, the general dictionary is restricted to the letters
of Polish. MB: files of the dictionary.

Prints a Markdown table and saves ``benchmarks/results/merging.jsonl``. Tokenizers and corpora come
from the folder named by SPECTOOL_SHARED.
"""

import json
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from real_data import real_corpus, real_tokenizer

from spectool.artifacts import Dictionary
from spectool.build.counting.options import CountOptions
from spectool.build.dictionary.backoff_stage import count_and_build
from spectool.build.dictionary.options import BackoffOptions, Limits
from spectool.build.editing.merging import merge_dictionaries
from spectool.build.editing.restriction import restrict_dictionary
from spectool.corpora import open_corpus
from spectool.measure.emulate import replay
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.tokenization import Tokenizer

RESULTS = Path(__file__).parent / "results" / "merging.jsonl"
_DRAFT = 8
_HELD_OUT = 25
_DISCOUNT = 0.9
_WEIGHTS = ((1.0, 1.0), (1.0, 2.0), (1.0, 4.0))
_LAW = re.compile(
    r"\b[Aa]rt\. ?\d|\bust\. ?\d|§|\bustaw(y|a|ie|ę)\b|\bMinist(er|ra|rów)\b|^\d+[a-z]?\)"
    r"|\bRozporządz|\bprzepis(y|ów|ami)\b"
)
_SOFTWARE = re.compile(
    r"Microsoft|Visual Studio|Azure|[Kk]likn|\bplik|\bokn|\bokien|użytkownik|[Aa]plikacj|\bdanych\b|projek|program"
    r"|SQL|\.NET|serwer|[Kk]onfigur|domyśln|moduł|metod|funkcj|faktur|parametr|[Ww]ybierz"
)
_PROSE = re.compile(r"—|–|„|\"|!|\?|\b(się|mi|mnie|ja|pan|pani|rzekł|oczy|była|był)\b")
_SHORTEST_PROSE = 61  # characters


@dataclass
class Genre:
    """Paragraphs of a genre: ``train`` to count, ``valid`` to replay."""

    wanted: int
    train: list[str] = field(default_factory=list)
    valid: list[str] = field(default_factory=list)


@click.command()
@click.option("--tokenizer", "name", default="bielik-11b-v2.5", show_default=True)
@click.option("--general", default=45_000, show_default=True, help="Paragraphs of general text to count.")
@click.option("--law", default=30_000, show_default=True, help="Paragraphs of law to count.")
@click.option("--max-bytes", default=1_500_000, show_default=True, help="Of every dictionary that is limited.")
def main(name: str, general: int, law: int, max_bytes: int) -> None:
    """Measure, save and print."""
    tokenizer = real_tokenizer(name)
    genres = _genres(general, law)
    texts = {label: tokenizer.encode_batch(genre.valid) for label, genre in genres.items()}
    rows: list[dict[str, Any]] = []
    columns = ("dictionary", "entries", "MB", "law", "general", "seconds")
    click.echo("| " + " | ".join(columns) + " |\n|---|" + "---:|" * 5)
    with tempfile.TemporaryDirectory() as scratch:
        for label, out, seconds in _made(tokenizer, genres, max_bytes, Path(scratch)):
            dictionary = Dictionary(out)
            row = {
                "dictionary": label,
                "tokenizer": name,
                "words": {label: sum(len(text.split()) for text in genre.train) for label, genre in genres.items()},
                "entries": len(dictionary),
                "MB": round(dictionary.manifest.total_bytes / 1e6, 2),
                "seconds": round(seconds),
            }
            for genre, documents in texts.items():
                drafter = LookupDrafter(dictionary, history=False, min_probability=0.0)
                row[genre] = round(replay(documents, drafter, _DRAFT).tokens_per_pass, 4)
            rows.append(row)
            click.echo("| " + " | ".join(str(row[column]) for column in columns) + " |")
    words = ", ".join(f"{count:,} of {label}" for label, count in rows[0]["words"].items())
    held_out = ", ".join(f"{sum(map(len, documents)):,} of {label}" for label, documents in texts.items())
    click.echo(f"\nWords counted: {words}. Tokens replayed: {held_out}.")
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _genres(general: int, law: int) -> dict[str, Genre]:
    """Split the Polish text until there is enough of both."""
    genres = {"general": Genre(general), "law": Genre(law)}
    seen = dict.fromkeys(genres, 0)
    for document in real_corpus("pl", "train"):
        label = _genre_of(document.text)
        if label is None:
            continue
        genre = genres[label]
        if len(genre.train) < genre.wanted:
            seen[label] += 1
            (genre.train if seen[label] % _HELD_OUT else genre.valid).append(document.text)
        elif all(len(each.train) == each.wanted for each in genres.values()):
            break
    return genres


def _genre_of(text: str) -> str | None:
    if _LAW.search(text):
        return "law"
    if _SOFTWARE.search(text) or len(text) < _SHORTEST_PROSE or not _PROSE.search(text):
        return None
    return "general"


def _made(
    tokenizer: Tokenizer, genres: dict[str, Genre], max_bytes: int, scratch: Path
) -> Iterator[tuple[str, Path, float]]:
    """Yield name, path and seconds of every dictionary."""
    general, law = scratch / "general.dict", scratch / "law.dict"
    anew = {
        general: ("general alone", genres["general"].train),
        law: ("law alone", genres["law"].train),
        scratch / "both.dict": ("built anew on both texts", genres["general"].train + genres["law"].train),
    }
    for out, (label, texts) in anew.items():
        begun = time.perf_counter()
        _build(tokenizer, texts, max_bytes, out)
        yield label, out, time.perf_counter() - begun
    sources = [Dictionary(general), Dictionary(law)]
    cases = [(_WEIGHTS[0], Limits())] + [(weights, Limits(max_bytes=max_bytes)) for weights in _WEIGHTS]
    for number, (weights, limits) in enumerate(cases):
        out = scratch / f"merged-{number}.dict"
        begun = time.perf_counter()
        merge_dictionaries(sources, weights, out, limits, lambda step: None)
        label = "merged, weights " + " and ".join(f"{weight:g}" for weight in weights)
        yield label + (", limited" if limits.max_bytes else ""), out, time.perf_counter() - begun
    out = scratch / "polish.dict"
    begun = time.perf_counter()
    restrict_dictionary(sources[0], tokenizer, out, (), ("pl",), Limits(), lambda step: None)
    yield "general, restricted to Polish letters", out, time.perf_counter() - begun


def _build(tokenizer: Tokenizer, texts: list[str], max_bytes: int, out: Path) -> None:
    text = out.with_suffix(".txt")
    text.write_text("".join(text.replace("\n", " ") + "\n" for text in texts), encoding="utf-8")
    options = BackoffOptions(max_bytes=max_bytes, discount=_DISCOUNT)
    count_and_build(tokenizer, open_corpus(str(text)), out, options, CountOptions(workers=1), lambda step: None)


if __name__ == "__main__":
    main()
