"""Real tokenizers that were not chosen by hand: joined ids must be those that the tokenizer itself writes.

Every tokenizer is opened as a file and, if it has a configuration, also as a directory that transformers loads.
A tokenizer that transformers rebuilds is checked once more. Two things are checked against whole-string encoding:

    joins     a text cut at random places, its pieces joined on ids and on bytes
    places    as `align` checks a pair (`build/alignment/check.py`), each tokenizer with the next two of the round:
              the draft's ids of the text so far, and a right draft after committed ids

Texts are the test strings, Polish, Ukrainian, Crimean Tatar, Python, JSON, Markdown, and adversarial ones. These are
made from the tokenizer's own patterns, tokens, added tokens and gaps. Texts that a tokenizer does not keep byte by byte
are counted separately. Sides that go through text are listed with their reasons; a mismatch of any other side ends the
benchmark with status 1. A line for each tokenizer and each pair goes to ``benchmarks/results``.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import click
from conformance_sources import fetched, sources
from real_data import real_corpus
from real_models import SHARED
from saving import RESULTS, json_lines
from tqdm import tqdm

from spectool import TokenizerError
from spectool.artifacts.alignment import SIDES
from spectool.build.alignment.check import check_joins
from spectool.build.alignment.replayed_text import written
from spectool.tokenization.incremental.adversarial import adversarial_texts
from spectool.tokenization.incremental.by_ids import IncrementalBPE, encoder_of
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

TOKENIZERS, PAIRS = RESULTS / "conformance_tokenizers.jsonl", RESULTS / "conformance_pairs.jsonl"
_ROOT = Path(__file__).resolve().parents[1]
_LONGEST = 200  # characters of a document: every prefix of it is encoded
_PAIRS_OF_EACH = 2  # partners of a tokenizer, the next ones in the round


@dataclass
class Variant:
    """One tokenizer as it is opened in one way.

    Attributes:
        name: Source, with ``/`` at the end where transformers has rebuilt it.
        tokenizer: The tokenizer.
        reasons: Why it goes through text; none if it claims ids.
        encoder: What joins its ids.
    """

    name: str
    tokenizer: Tokenizer
    reasons: tuple[str, ...]
    encoder: IncrementalBPE | TailReencoder


def variants(source: str, rows: list[dict[str, Any]]) -> Iterator[Variant]:
    """Open a tokenizer as a file and as a directory; record in ``rows`` what is refused or cannot be fetched."""
    seen: set[str] = set()
    try:
        directory = fetched(source)
    except Exception as error:  # of npm, pip or the network
        rows.append({"tokenizer": source, "how": f"not fetched: {str(error)[:80]}"})
        return
    paths = {source: directory / "tokenizer.json", f"{source}/": directory}
    for name, path in paths.items():
        if name.endswith("/") and not (directory / "tokenizer_config.json").exists():
            continue
        try:
            tokenizer = open_tokenizer(path)
            if tokenizer.fingerprint in seen:
                rows[-1]["directory"] = "same"
                continue
            seen.add(tokenizer.fingerprint)
            reasons = reasons_for_text(tokenizer)
        except TokenizerError as error:
            rows.append({"tokenizer": name, "how": f"refused: {str(error)[:200]}"})
            continue
        if name.endswith("/"):
            rows[-1]["directory"] = "rebuilt"
        how = "; ".join(reasons) or "ids"
        rows.append({"tokenizer": name, "kind": tokenizer.kind, "size": tokenizer.size, "how": how})
        yield Variant(name, tokenizer, reasons, encoder_of(tokenizer, not reasons))


def documents(seed: int) -> list[str]:
    """Real texts of all kinds, cut to `_LONGEST` characters, in an order that depends on the seed."""
    rng = random.Random(seed)
    found = [text for _, text in json.loads((SHARED / "tokenizers" / "test_strings.json").read_text()) if text]
    for language in ("pl", "uk", "crh"):
        found += islice(real_corpus(language, "valid"), 400)
    for pattern in ("*.py", "*.md", "*.jsonl"):
        files = sorted(path for path in _ROOT.rglob(pattern) if not path.name.startswith("."))
        texts = [path.read_text(encoding="utf-8") for path in files]
        found += [
            text[at : at + _LONGEST] for text in texts for at in rng.sample(range(len(text) + 1), 1) for _ in "12"
        ]
    rng.shuffle(found)
    return [text[:_LONGEST] for text in found if text]


def texts_for(first: Variant, second: Variant, real: list[str], rng: random.Random) -> Iterator[str]:
    """Endless texts: real ones, and adversarial ones of either tokenizer."""
    streams = [adversarial_texts(side.tokenizer, rng, real) for side in (first, second)]
    while True:
        yield from (rng.choice(real), next(streams[0])[:_LONGEST], rng.choice(real), next(streams[1])[:_LONGEST])


def cut_and_join(variant: Variant, texts: Iterator[str], rng: random.Random) -> Counter[str]:
    """Join texts cut at random and compare with whole-string encoding."""
    counts: Counter[str] = Counter()
    encoder, token_bytes = variant.encoder, variant.tokenizer.token_bytes
    prefix = " " * variant.tokenizer.leading_space
    assert isinstance(encoder, IncrementalBPE)
    for text in texts:
        ((whole, _),) = written(variant.tokenizer, [text])
        if b"".join(map(token_bytes.__getitem__, whole)) != (prefix + text).encode():
            counts["texts not kept"] += 1
            continue
        cuts = sorted({0, len(text), *rng.choices(range(len(text) + 1), k=1 + len(text) // 3)})
        ids: list[int] = []
        for low, high in pairwise(cuts):
            piece = text[low:high] if low else prefix + text[:high]
            start, tail = encoder.join(ids, piece.encode())
            ids[start:] = tail
        counts["joins"] += len(cuts) - 1
        if ids != whole:
            counts["wrong joins"] += 1
            tqdm.write(f"{variant.name}: joined otherwise than written: {text!r} cut at {cuts}")
    return counts


def check_pair(draft: Variant, target: Variant, real: list[str], count: int, seed: int) -> dict[str, Any]:
    """Check a number of texts in one direction, as `align` does."""
    rng, begun = random.Random(f"{seed} {draft.name} {target.name}"), time.process_time()
    texts, pair = list(islice(texts_for(draft, target, real, rng), count)), {"draft": draft, "target": target}
    row: dict[str, Any] = {"draft": draft.name, "target": target.name, "asked": count, "seed": seed}
    for role, source in SIDES:
        mine, other = pair[role], pair[source]
        found = check_joins(role, other.tokenizer, mine.tokenizer, mine.encoder, texts)
        row |= {f"{role} places": found.places, f"{role} different": found.different, role + " example": found.example}
        row |= {f"{role} through text": bool(mine.reasons)}
    return {**row, "processor seconds": round(time.process_time() - begun, 1)}


def wrong(row: dict[str, Any]) -> int:
    """Count the mismatches of sides that claim ids."""
    sides = (row.get(f"{side} different", 0) for side, _ in SIDES if not row.get(f"{side} through text"))
    return int(row.get("wrong joins", 0) + sum(sides))


def totals(tokenizers: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> str:
    """What was compared, in one line."""
    return (
        f"{len({row['tokenizer'].rstrip('/') for row in tokenizers})} tokenizers, {len(pairs)} directions, "
        f"{sum(row.get('joins', 0) for row in tokenizers):,} joins, "
        f"{sum(pair['draft places'] + pair['target places'] for pair in pairs):,} places: "
        f"{sum(map(wrong, [*tokenizers, *pairs])):,} mismatches of sides that claim ids"
    )


@click.command()
@click.option("--texts", default=250, show_default=True, help="For each direction of each pair.")
@click.option("--joined", default=1000, show_default=True, help="Texts joined for each tokenizer.")
@click.option("--only", multiple=True, metavar="SOURCE", help="Only these, such as npm:yi or a directory.")
@click.option("--quick", is_flag=True, help="Four tokenizers, a minute.")
@click.option("--seed", default=7, show_default=True)
@click.option("--resume", is_flag=True, help="Keep results of the same settings.")
def main(texts: int, joined: int, only: tuple[str, ...], quick: bool, seed: int, resume: bool) -> None:
    """Check every tokenizer by itself, and each with the next two of the round in both directions; save and print."""
    names = list(only) or sorted(sources(), key=lambda name: random.Random(f"{seed} {name}").random())
    if quick:
        texts, joined = 20, 60
        names = list(only) or [f"shared:{name}" for name in ("bielik-11b-v2.5", "phi-3-mini", "gpt2", "t5-small")]
    real, rows, pairs = documents(seed), [], []
    opened: list[Variant] = []
    files = [file for file in (TOKENIZERS, PAIRS) if resume and file.exists()]
    saved = [row for file in files for row in json_lines(file)]
    known = {tuple(map(row.get, ("tokenizer", "draft", "target", "asked", "seed"))): row for row in saved}

    def pair_up(variant: Variant) -> None:
        for other in opened:
            for draft, target in ((variant, other), (other, variant)):
                row = known.get((None, draft.name, target.name, texts, seed))
                pairs.append(row or check_pair(draft, target, real, texts, seed))
                if wrong(pairs[-1]):
                    tqdm.write(json.dumps(pairs[-1]))
        opened[:] = [*opened, variant][-_PAIRS_OF_EACH:]

    for name in tqdm(names):
        for variant in variants(name, rows):
            if not variant.reasons:
                rng = random.Random(f"{seed} {variant.name}")
                own = (text for text in texts_for(variant, variant, real, rng))
                row = known.get((variant.name, None, None, joined, seed))
                row = row or {"asked": joined, "seed": seed, **cut_and_join(variant, islice(own, joined), rng)}
                rows[-1].update(row)
            pair_up(variant)
            if not quick and not only:
                save(rows, pairs)
    click.echo(totals(rows, pairs))
    if not quick and not only:
        save(rows, pairs)
    sys.exit(any(map(wrong, [*rows, *pairs])))


def save(rows: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> None:
    """Write the results so far."""
    TOKENIZERS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    PAIRS.write_text("".join(json.dumps(row) + "\n" for row in pairs))


if __name__ == "__main__":
    main()
