"""What translation costs per cycle, compared with the string round trip of the published scheme on the same drafts.

    python benchmarks/translation_speed.py

An n-gram draft is replayed once and its drafts are recorded. Then both translators process the same record in turns.
The byte-aligned one commits, updates the draft's view and translates. The string round trip decodes the draft, encodes
it after its window, encodes the window alone, and translates back what was committed. Times are processor times of this
thread, medians over the turns. Python's garbage collector ignores what was loaded before (gc.freeze). The first turn of
the byte-aligned translator, with empty caches, is shown separately.

Prints a Markdown table and saves ``benchmarks/results/translation_speed.jsonl``. Tokenizers and corpora come from the
folder named by SPECTOOL_SHARED.
"""

import gc
import json
import statistics
import tempfile
from pathlib import Path
from time import thread_time_ns

import click
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts.alignment import Alignment
from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.lab.ngram_model import NgramModel, NgramSource
from spectool.lab.strategies import ContextTranslator
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.translation.byte_aligned import ByteAlignedTranslator
from spectool.runtime.translation.protocol import Translator

RESULTS = Path(__file__).parent / "results" / "translation_speed.jsonl"
PAIRS = [("qwen2.5", "bielik-11b-v2.5"), ("llama-3.2", "bielik-11b-v2.5"), ("gemma-3", "bielik-11b-v2.5")]
PAIRS += [("bielik-4.5b-v3-apt4", "bielik-11b-v2.5"), ("qwen2.5", "llama-3.2")]
_Record = list[tuple[bool, list[int], bool, list[int]]]  # a text begins, drafts, healed, committed


@click.command()
@click.option("--train-tokens", default=1_000_000, show_default=True, help="Draft tokens to count n-grams on.")
@click.option("--tokens", default=30_000, show_default=True, help="Target tokens to replay.")
@click.option("--turns", default=5, show_default=True)
@click.option("--language", "languages", multiple=True, default=("uk", "pl"), show_default=True)
def main(train_tokens: int, tokens: int, turns: int, languages: tuple[str, ...]) -> None:
    """Time every pair; save and print."""
    rows = []
    for names in PAIRS:
        draft, target = map(real_tokenizer, names)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "pair"
            build_alignment(draft, target, open_corpus("sample:pl"), path, lambda step: None, sample=0)
            alignment = Alignment(path)
            for language in languages:
                counted = encoded(draft, real_corpus(language, "train"), train_tokens)
                source = NgramSource(NgramModel.count(counted, draft.size))
                documents = list(encoded(target, real_corpus(language, "valid"), tokens))
                record = _record(ByteAlignedTranslator(alignment, draft, target), source, documents)
                byte_aligned, strings = (
                    ByteAlignedTranslator(alignment, draft, target),
                    ContextTranslator(draft, target),
                )
                gc.collect()
                gc.freeze()
                cold = _time(byte_aligned, record)
                pairs = [(_time(byte_aligned, record), _time(strings, record)) for _ in range(turns)]
                gc.unfreeze()
                row = {"draft": names[0], "target": names[1], "language": language, "cycles": len(record)}
                figures = {
                    "cold us": round(cold, 2),
                    "byte-aligned us": round(statistics.median(a for a, _ in pairs), 2),
                    "strings us": round(statistics.median(s for _, s in pairs), 2),
                    "ratio": round(statistics.median(a / s for a, s in pairs), 3),
                    "cold ratio": round(cold / statistics.median(s for _, s in pairs), 3),
                }
                rows.append(row | figures)
                click.echo(json.dumps(rows[-1]), err=True)
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = ("language", "cycles", "cold us", "byte-aligned us", "strings us", "ratio", "cold ratio")
    click.echo("| draft → target | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns))
    for row in rows:
        click.echo(f"| {row['draft']} → {row['target']} | " + " | ".join(str(row[c]) for c in columns) + " |")


def _record(translator: ByteAlignedTranslator, source: NgramSource, documents: list[list[int]]) -> _Record:
    record: _Record = []
    for document in documents:
        translator.start()
        source.start()
        place = 0
        while place < len(document):
            drafts, healed = source.draft(translator.draft_context(), translator.constraint(), 4)
            accepted = accepted_length(translator.translate(drafts, healed), document[place:])
            committed = document[place : place + accepted + 1]
            record.append((place == 0, drafts, healed, committed))
            translator.commit(committed)
            place += len(committed)
    return record


def _time(translator: Translator, record: _Record) -> float:
    """Microseconds of processor time per cycle."""
    heals = isinstance(translator, ByteAlignedTranslator)
    begun = thread_time_ns()
    for first, drafts, healed, committed in record:
        if first:
            translator.start()
        translator.draft_context()
        translator.translate(drafts, healed and heals)
        translator.commit(committed)
    return (thread_time_ns() - begun) / len(record) / 1000


if __name__ == "__main__":
    main()
