"""The command ``ngrams``: an n-gram draft of another tokenizer, replayed with every way to translate its drafts."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.commands.console import guarded, progress, reading, say, say_notes, show, table
from spectool.commands.options import draft_option, json_option, text_options
from spectool.lab.options import count_option
from spectool.lab.strategies import STRATEGIES

if TYPE_CHECKING:
    from spectool.artifacts.alignment import Alignment
    from spectool.tokenization.tokenizer import Tokenizer

_RATIOS = ("tokens_per_pass", "acceptance", "without_proposal")


@click.command()
@draft_option(metavar="T", help="Tokenizer of the draft: directory, tokenizer.json or hub id.")
@click.option(
    "--target", "--tokenizer", "--model", "target", required=True, metavar="T", help="The target's tokenizer."
)
@click.option("--count-on", required=True, metavar="C", help="Text to count the n-grams on, as --corpus.")
@click.option("--corpus", required=True, metavar="C", help="Text to replay, as for build-dict; another one than C.")
@click.option("--order", type=click.IntRange(1, 8), default=5, show_default=True, help="Tokens of the longest n-gram.")
@click.option(
    "--alignment",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Alignment of the two tokenizers, from `spectool align`; made for this run if not given.",
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(STRATEGIES),
    multiple=True,
    default=STRATEGIES,
    help="How drafts are translated; may be repeated. All by default.",
)
@click.option("--steps", is_flag=True, help="Add the steps of the byte-aligned strategy, one by one.")
@click.option(
    "--num-draft-tokens",
    "lengths",
    type=click.IntRange(1, 64),
    multiple=True,
    default=(2, 4),
    show_default=True,
    help="Draft tokens of a pass; may be repeated.",
)
@count_option("--max-tokens", help="Replay only this many tokens of the text.")
@text_options
@json_option
@guarded
def ngrams(
    draft: str,
    target: str,
    count_on: str,
    corpus: str,
    order: int,
    alignment: Path | None,
    strategies: tuple[str, ...],
    steps: bool,
    lengths: tuple[int, ...],
    max_tokens: int | None,
    reads: dict[str, Any],
    as_json: bool,
) -> None:
    """Replay a text with an n-gram draft of another tokenizer, once for each strategy and draft length.

    An n-gram model takes a minute to count and drafts the same in every strategy, so it shows what the translation
    between two tokenizers is worth. It drafts best on the text that it was counted on: replay another one.

    \b
    Example:
        spectool lab ngrams --draft ./Qwen2.5-1.5B --target ./Bielik-11B --count-on wiki.txt --corpus news.txt \\
            --alignment qwen-bielik.align --max-tokens 20000
    """
    from spectool.artifacts.alignment import Alignment
    from spectool.artifacts.default_paths import find_artifact
    from spectool.build.corpus_reading import encoded
    from spectool.corpora import open_corpus
    from spectool.lab.ngram_model import NgramModel, NgramSource
    from spectool.lab.strategies import (
        IntersectionTranslator,
        byte_aligned_steps,
        compare_strategies,
        make_translator,
    )
    from spectool.measure.emulate import encode_text
    from spectool.tokenization.opening import open_tokenizer

    replayed, counted = (open_corpus(spec, **reads) for spec in (corpus, count_on))
    sides = open_tokenizer(draft), open_tokenizer(target)
    opened = None if alignment is None else Alignment(find_artifact(alignment, ".align"))
    if opened is not None:
        opened.require(*sides)
    for side in sides:
        say_notes(side)
    say(f"counting {order}-grams of {sides[0].name} on {counted.spec}")
    texts = (ids for _, ids in encoded(sides[0], (document.text for document in reading(counted))))
    model = NgramModel.count(texts, sides[0].size, order)
    documents = encode_text(sides[1], (document.text for document in reading(replayed)), max_tokens or 0).cut(
        max_tokens or 0
    )
    with _temporary_alignment(*sides) if opened is None else nullcontext(opened) as aligned:
        translators = {name: make_translator(name, aligned, *sides) for name in strategies}
        translators |= byte_aligned_steps(aligned, *sides) if steps else {}
        # Only the intersection says which draft ids it can translate.
        drafting = {
            name: (NgramSource(model, each.within if isinstance(each, IntersectionTranslator) else None), each)
            for name, each in translators.items()
        }
        tokens = sum(map(len, documents))
        with progress("replaying", tokens * len(lengths) * len(translators), "tokens") as done:
            runs = list(compare_strategies(documents, drafting, tuple(dict.fromkeys(lengths)), done))
    rows = [
        {
            "k": run.num_draft_tokens,
            "strategy": run.strategy,
            "tokens": run.statistics.tokens,
            "tokens_per_pass": round(run.statistics.tokens_per_pass, 4),
            "acceptance": round(run.statistics.acceptance_rate, 4),
            "without_proposal": round(1 - run.statistics.coverage, 4),
        }
        for run in runs
    ]
    facts: dict[str, Any] = {
        "corpus": replayed.spec,
        "documents": len(documents),
        "tokens": tokens,
        "target": sides[1].name,
        "draft": f"{order}-gram model counted on {counted.spec}, tokens of {draft}",
    }
    show({**facts, "runs": rows} if as_json else facts, as_json)
    if not as_json:
        lines = [[f"{value:.3f}" if name in _RATIOS else str(value) for name, value in row.items()] for row in rows]
        click.echo("\n" + table([name.replace("_", " ") for name in rows[0]], lines))


@contextmanager
def _temporary_alignment(draft: "Tokenizer", target: "Tokenizer") -> Iterator["Alignment"]:
    """An alignment of two tokenizers that exists until the block ends; nothing is counted on text."""
    from spectool.artifacts.alignment import Alignment
    from spectool.build.alignment.stage import build_alignment
    from spectool.build.corpus_reading import quiet
    from spectool.corpora import open_corpus

    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        say("aligning the two tokenizers; `spectool align` keeps the result for later runs")
        path = Path(scratch) / "pair.align"
        build_alignment(draft, target, open_corpus("sample:pl"), path, quiet, sample=0)
        yield Alignment(path)
