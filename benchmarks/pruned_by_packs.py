"""What a draft model keeps if it is pruned by packs, against one that is pruned by text.

For Polish, Ukrainian and both, prunes the vocabulary by the bundled packs and by 20 MB of text, and replays held-out
text and the answers of a model: tokens per pass with four drafts, in the target's tokens. A draft guesses the most
probable token at every place, so one pass over each text tells which drafts would be right. Prints a table.

    python benchmarks/pruned_by_packs.py --draft gemma-3-270m --target bielik --train pl=pl.train.txt.zst \
        --train uk=uk.train.txt.zst --text pl=pl.valid.txt.zst --text uk=uk.valid.txt.zst --text pl=answers.jsonl
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer as Backend

from spectool.build.packs.stage import open_pack
from spectool.build.pruning.sources import Source, counted_pack, counted_text
from spectool.build.pruning.vocabulary import choose_ids, needed_ids, pruned_spec
from spectool.corpora import Corpus, open_corpus
from spectool.measure.first_guesses import right_guesses
from spectool.measure.table import table
from spectool.runtime.loading import load_model
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_TRAIN = 20_000_000  # bytes of text
_LONGEST, _SHORTEST = 1500, 200  # characters of a document that is replayed
_DRAFTS = 4


def _by_language(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> list[tuple[str, str]]:
    return [(language, path) for language, _, path in (each.partition("=") for each in given)]


def beginning(path: str, most: int, out: Path) -> Corpus:
    """The first documents of a corpus, ``most`` bytes of them, which are written to a file."""
    size = 0
    with out.open("w", encoding="utf-8") as file:
        for document in open_corpus(path):
            file.write(json.dumps({"text": document}) + "\n")
            size += len(document.encode())
            if size >= most:
                break
    return open_corpus(str(out))


def pruned(model: Any, rows: mx.array, whole: Tokenizer, sources: Sequence[Source]) -> Tokenizer:
    """The tokenizer that some sources need; the model gets the rows that belong to it."""
    characters = frozenset[str]().union(*(each.characters for each in sources))
    counts, coverage = [each.counts for each in sources], [each.coverage for each in sources]
    kept = choose_ids(whole, counts, needed_ids(whole, characters), coverage=coverage)
    spec, new = pruned_spec(json.loads(whole.backend.to_str()), kept)
    model.model.embed_tokens.weight = rows[mx.array([old for old in new if old < rows.shape[0]])]
    mx.eval(model.parameters())
    tokenizer = open_tokenizer(Backend.from_str(json.dumps(spec)))
    bos = whole.roles.bos
    return replace(tokenizer, roles=replace(tokenizer.roles, bos=None if bos is None else new[bos]))


def tokens_per_pass(right: Sequence[bool], drafts: int) -> float:
    """Tokens that a pass makes of a text if each verifies up to that many drafts, which end at the first wrong one."""
    at = passes = 0
    while at < len(right):
        accepted = 0
        while accepted < drafts and at + accepted < len(right) and right[at + accepted]:
            accepted += 1
        at, passes = at + accepted + 1, passes + 1
    return len(right) / max(1, passes)


@click.command()
@click.option("--draft", required=True)
@click.option("--target", required=True)
@click.option("--train", multiple=True, callback=_by_language, help="Text to prune by: LANGUAGE=CORPUS.")
@click.option("--text", "texts", multiple=True, callback=_by_language, help="Text to replay: LANGUAGE=CORPUS.")
@click.option("--tokens", default=3000, show_default=True, help="Of each text, in the target's ids, about.")
def main(draft: str, target: str, train: list[tuple[str, str]], texts: list[tuple[str, str]], tokens: int) -> None:
    """Compare drafts pruned by packs and by text."""
    (model, loaded), verifier = load_model(draft), open_tokenizer(target)
    whole, rows = open_tokenizer(loaded), model.model.embed_tokens.weight
    found: dict[str, dict[str, Source]] = {"pack": {}, "text": {}}
    for language, path in train:
        found["pack"][language] = counted_pack(open_pack(language), whole)
        with TemporaryDirectory() as folder:
            found["text"][language] = counted_text(beginning(path, _TRAIN, Path(folder) / "a.jsonl"), whole)
    languages = [language for language, _ in train]
    cells: list[list[str]] = []
    for chosen in [*([each] for each in languages), *([languages] if len(languages) > 1 else [])]:
        speeds: dict[tuple[str, str], dict[str, float]] = {}
        for kind, sources in found.items():
            small = pruned(model, rows, whole, [sources[each] for each in chosen])
            for language, path in texts:
                if language not in chosen:
                    continue
                documents, size = list[str](), 0
                for document in open_corpus(path):
                    if size < tokens and len(document) >= _SHORTEST:
                        documents.append(document[:_LONGEST])
                        size += len(verifier.encode(documents[-1]))
                right = list(right_guesses(model, small, verifier, documents))
                speeds.setdefault((language, path), {})[kind] = tokens_per_pass(right, _DRAFTS)
                cells.append([" and ".join(chosen), path.rpartition("/")[2], f"{len(right):,}", kind])
                cells[-1] += [f"{small.size:,}", f"{np.mean(right):.3f}", f"{speeds[language, path][kind]:.3f}"]
                click.echo(" ".join(cells[-1]), err=True)
        for (_, path), each in speeds.items():
            click.echo(f"{' and '.join(chosen)}, {path.rpartition('/')[2]}: {each['pack'] / each['text']:.4f}")
    heads = ["pruned to", "text", "tokens", "by", "ids", "first guesses right", "tokens per pass"]
    click.echo(table(heads, cells))


if __name__ == "__main__":
    main()
