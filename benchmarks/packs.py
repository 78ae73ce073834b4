"""Compares dictionaries compiled from packs with dictionaries built from the text itself.

    python benchmarks/packs.py --language pl --model gemma-3 --model qwen2.5 --model bielik-11b-v2.5
    python benchmarks/packs.py --language uk --model gemma-3 --held-out parlamint.txt --bundled

From the first bytes of the training text, one dictionary is built directly and one through a pack, for each tokenizer,
and held-out text is replayed with both. A dictionary may propose more than another. So what is made from a pack is
replayed again with the least probability at which it proposes as much as the direct one does, and the kept share of the
gain is that at equal drafting. The pack has all words and names, as for text that is not handed on. With ``--bundled``,
the bundled pack of the language is measured as well, and with ``--answers``, the text that a model wrote
(`real_text.py`).
Adds lines to ``benchmarks/results/packs.jsonl``.
"""

import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
from real_data import real_corpus, real_tokenizer
from real_text import read_text
from saving import save

from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import encode_text, quiet
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs import PackOptions
from spectool.build.packs.stage import build_pack, count_and_build, open_pack
from spectool.corpora import open_corpus
from spectool.measure.replay import replay
from spectool.runtime.drafters.lookup import LookupDrafter

FOLDER = Path(__file__).parent.parent / ".scratch" / "packs"
_PROBABILITY = 0.2  # from which on drafts are proposed
_LOWEST, _HIGHEST = 0.05, 0.6  # least probabilities between which both propose as much
_STEPS = 8  # trials of the least probability
_NEAR = 0.002  # of the drafts of the other dictionary


def beginning(language: str, most: int) -> Path:
    """The first documents of the training text, up to about this many bytes."""
    out = FOLDER / f"{language}.{most}.txt"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with out.open("w", encoding="utf-8") as stream:
            for document in real_corpus(language, "train"):
                stream.write(document + "\n")
                size += len(document.encode()) + 1
                if size >= most:
                    break
    return out


def replayed(
    path: Path, documents: Sequence[Sequence[int]], prompts: Any, history: bool, least: float = _PROBABILITY
) -> tuple[float, float]:
    """Tokens per pass, and draft tokens per pass."""
    drafter = LookupDrafter([Dictionary(path)], history, least)
    statistics = replay(documents, drafter, 16, prompts=prompts)
    return statistics.tokens_per_pass, statistics.proposed / max(1, statistics.passes)


def at_equal_drafting(proposed: float, measured: Callable[[float], tuple[float, float]]) -> tuple[float, float]:
    """Tokens per pass, and the least probability, where as much is proposed: between the two nearest trials."""
    below, above = (_LOWEST, *measured(_LOWEST)), (_HIGHEST, *measured(_HIGHEST))
    least = _PROBABILITY
    for _ in range(_STEPS):
        trial = (least, *measured(least))
        below, above = (trial, above) if trial[2] > proposed else (below, trial)
        if abs(trial[2] - proposed) < _NEAR * proposed:
            break
        share = (below[2] - proposed) / max(below[2] - above[2], 1e-9)
        least = below[0] + min(0.9, max(0.1, share)) * (above[0] - below[0])
    share = min(1.0, max(0.0, (below[2] - proposed) / max(below[2] - above[2], 1e-9)))
    return below[1] + share * (above[1] - below[1]), below[0] + share * (above[0] - below[0])


@click.command()
@click.option("--language", default="pl", show_default=True)
@click.option("--model", "models", multiple=True, default=("gemma-3", "qwen2.5", "bielik-11b-v2.5"), show_default=True)
@click.option("--bytes", "size", default=20_000_000, show_default=True, help="Of training text.")
@click.option("--pack-bytes", default=1_700_000, show_default=True)
@click.option("--min-count", default=1, show_default=True, help="Of words and pairs in the pack of this text.")
@click.option("--min-names", default=0, show_default=True, help="Of names and numbers in it; by default it has all.")
@click.option("--held-out", help="Text to replay; by default LANGUAGE.valid.")
@click.option("--answers", type=click.Path(path_type=Path), help="Text of real_text.py to replay, for its model alone.")
@click.option("--tokens", default=20_000, show_default=True, help="Of the text that is replayed.")
@click.option("--bundled", is_flag=True, help="Measure the bundled pack as well.")
def main(
    language: str,
    models: Sequence[str],
    size: int,
    pack_bytes: int,
    min_count: int,
    min_names: int,
    held_out: str | None,
    answers: Path | None,
    tokens: int,
    bundled: bool,
) -> None:
    """Measure, print and keep."""
    text = beginning(language, size)
    built = FOLDER / f"{language}.{size}.{pack_bytes}.{min_count}.{min_names}.pack"
    if not built.exists():
        about = {"language": language, "credits": []}
        build_pack(
            [],
            [open_corpus(str(text))],
            about,
            built,
            PackOptions(max_bytes=pack_bytes, min_count=min_count, min_names=min_names),
            click.echo,
        )
    packs = {"pack": Pack(built)} | ({"bundled": open_pack(language)} if bundled else {})
    for name in models:
        tokenizer = real_tokenizer(name)
        options = BackoffOptions()
        prompts = None
        if answers:
            written = read_text(answers)
            documents, prompts = [each.output for each in written], [each.prompt for each in written]
        else:
            source = open_corpus(held_out) if held_out else real_corpus(language, "valid")
            documents = encode_text(tokenizer, islice(source, 100_000), tokens)
        paths = {"direct": FOLDER / f"{name}.{language}.{size}.dict"}
        paths |= {kind: FOLDER / f"{name}.{pack.path.name}.dict" for kind, pack in packs.items()}
        rows: dict[str, Any] = {}
        for kind, path in paths.items():
            began, used = time.perf_counter(), time.process_time()
            if kind == "direct" and not path.exists():
                count_and_build(tokenizer, open_corpus(str(text)), path, options, quiet)
            elif kind != "direct":
                count_and_build(tokenizer, None, path, options, quiet, [packs[kind]])
            rows[kind] = {
                "seconds": round(time.perf_counter() - began, 1),
                "processor_seconds": round(time.process_time() - used, 1),
            }
        for history in (False, True):
            _, drafts = direct = replayed(paths["direct"], documents, prompts, history)
            for kind, path in paths.items():
                found = replayed(path, documents, prompts, history)

                equal, least = at_equal_drafting(drafts, partial(replayed, path, documents, prompts, history))
                rows[kind]["with history" if history else "alone"] = {
                    "tokens_per_pass": round(found[0], 4),
                    "proposed_per_pass": round(found[1], 4),
                    "at_equal_drafting": round(equal, 4),
                    "min_draft_prob": round(least, 3),
                    "kept": round((equal - 1) / (direct[0] - 1), 3),
                }
        facts = {
            "language": language,
            "tokenizer": name,
            "text_bytes": text.stat().st_size,
            "min_count": min_count,
            "min_names": min_names,
            "packs": {kind: pack.path.stat().st_size for kind, pack in packs.items()},
            "replayed": (answers or Path(held_out or f"{language}.valid")).name,
            "tokens": sum(map(len, documents)),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "dictionaries": rows,
        }
        save("packs", facts)
        for kind, row in rows.items():
            alone, after = row["alone"], row["with history"]
            click.echo(
                f"{name:<18} {kind:<8} {row['processor_seconds']:>6.1f} s  "
                f"alone {alone['tokens_per_pass']:.3f} ({alone['proposed_per_pass']:.2f} drafted), "
                f"at equal drafting {alone['at_equal_drafting']:.3f}, kept {alone['kept']:.2f};  with history "
                f"{after['tokens_per_pass']:.3f}, {after['at_equal_drafting']:.3f}, {after['kept']:.2f}"
            )


if __name__ == "__main__":
    main()
