"""The command ``ngrams``: an n-gram draft of another tokenizer, replayed with every way to translate its drafts."""

from itertools import product
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import say, show
from spectool.commands.shared.options import Whole, command, draft_option, option
from spectool.lab.options import count_option
from spectool.lab.progress import progress
from spectool.lab.strategies import STRATEGIES
from spectool.measure.table import table

_RATIOS = ("tokens_per_pass", "acceptance", "without_proposal")


@command("ngrams")
@draft_option(metavar="T", help="Tokenizer of the draft: directory, tokenizer.json or hub id.")
@option("--target", "--tokenizer", "--model", "target", required=True, metavar="T", help="The target's tokenizer.")
@option("--count-on", required=True, metavar="C", help="Text to count the n-grams on, as --corpus.")
@option("--corpus", required=True, metavar="C", help="Text to replay, as for build-dict; another one than C.")
@option("--order", type=Whole(1, 8), default=5, show_default=True, help="Tokens of the longest n-gram.")
@option(
    "--alignment",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Alignment of the two tokenizers, from `spectool align`.",
)
@option(
    "--strategy",
    "strategies",
    type=click.Choice(STRATEGIES),
    multiple=True,
    default=STRATEGIES,
    help="How drafts are translated; may be repeated. All by default.",
)
@option(
    "--num-draft-tokens",
    "lengths",
    type=Whole(1, 64),
    multiple=True,
    default=(2, 4),
    show_default=True,
    help="Draft tokens of a pass; may be repeated.",
)
@count_option("--max-tokens", help="Replay only this many tokens of the text.")
def ngrams(
    draft: str,
    target: str,
    count_on: str,
    corpus: str,
    order: int,
    alignment: Path,
    strategies: tuple[str, ...],
    lengths: tuple[int, ...],
    max_tokens: int | None,
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
    from spectool.build.corpus_reading import encode_text, with_progress
    from spectool.commands.shared.tokenizers import tokenizer_with_notes
    from spectool.corpora import open_corpus
    from spectool.lab.ngram_model import NgramModel, NgramSource
    from spectool.lab.strategies import MOST_IDS_A_DRAFT_TOKEN, IntersectionTranslator, make_translator
    from spectool.measure.replay import replay
    from spectool.runtime.drafters.translated import TranslatedDrafter

    replayed, counted = (open_corpus(spec) for spec in (corpus, count_on))
    sides = tokenizer_with_notes(draft), tokenizer_with_notes(target)
    aligned = Alignment(find_artifact(alignment, ".align"))
    translators = {name: make_translator(name, aligned, *sides) for name in strategies}
    say(f"counting {order}-grams of {sides[0].name} on {counted.spec}")
    texts = (ids for _, ids in sides[0].encode_each(with_progress(counted)))
    model = NgramModel.count(texts, sides[0].size, order)
    documents = encode_text(sides[1], with_progress(replayed), max_tokens or 0)
    # Only the intersection says which draft ids it can translate.
    sources: dict[str, Any] = {
        name: NgramSource(model, each.within if isinstance(each, IntersectionTranslator) else None)
        for name, each in translators.items()
    }
    tokens, rows = sum(map(len, documents)), []
    with progress("replaying", tokens * len(lengths) * len(translators), "tokens") as done:
        for length, name in product(dict.fromkeys(lengths), translators):
            drafter = TranslatedDrafter(sources[name], translators[name], length)
            found = replay(documents, drafter, length * MOST_IDS_A_DRAFT_TOKEN, lambda tokens, cost: done(tokens))
            rows.append(
                {
                    "k": length,
                    "strategy": name,
                    "tokens": found.tokens,
                    "tokens_per_pass": round(found.tokens_per_pass, 4),
                    "acceptance": round(found.acceptance_rate, 4),
                    "without_proposal": round(1 - found.coverage, 4),
                }
            )
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
