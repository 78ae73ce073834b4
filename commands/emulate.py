"""The command ``emulate``: a text replayed as if the target had written it, to count the passes that drafts save."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.commands.console import divided, guarded, progress, reading, say, say_notes, show, table
from spectool.commands.model_options import DraftLength, StrategyChoice, min_draft_prob_option
from spectool.commands.options import (
    SectionedCommand,
    json_option,
    path_option,
    section,
    text_options,
    tokenizer_option,
)
from spectool.runtime.translation.factory import STRATEGIES

if TYPE_CHECKING:
    from spectool.measure.emulate import StrategyRun

_DRAFT_LENGTHS = (2, 4)  # of a draft model
_RATIOS = {"tokens_per_pass", "acceptance", "without_proposal"}
_text, _drafting = section("Text"), section("Drafting")
_rare = section("Drafting", rare=True)


@click.command(cls=SectionedCommand)
@click.option("--corpus", metavar="C", required=True, help="Text to replay, as for build-dict.", **_text)
@tokenizer_option("--target", help="The target's tokenizer; by default that of the dictionary.", **_text)
@click.option("--max-tokens", type=click.IntRange(1), help="Replay this many tokens, not the whole text.", **_text)
@path_option(
    "--dict",
    "dictionaries",
    multiple=True,
    metavar="DIR",
    help="Dictionary to draft from; may be repeated.",
    **_drafting,
)
@click.option(
    "--history/--no-history", default=None, show_default="history", help="Draft from the text so far.", **_drafting
)
@click.option("--draft", "--draft-model", "draft", metavar="D", help="Draft model, instead of these two.", **_drafting)
@path_option("--alignment", metavar="DIR", help="Made by `spectool align`, or for this run.", **_drafting)
@click.option(
    "--num-draft-tokens",
    "lengths",
    type=DraftLength(0, 64),
    multiple=True,
    metavar="auto|N",
    help="Maximum number of tokens of a proposal. The default auto proposes what --min-draft-prob lets pass, up to 16. "
    "With --draft: draft tokens per pass, 2 and 4 by default; may be repeated.",
    **_rare,
)
@min_draft_prob_option(**_rare, default=None, show_default=f"{MIN_PROBABILITY:g}")
@click.option(
    "--strategy",
    "strategies",
    type=StrategyChoice(),
    multiple=True,
    help="With --draft: how drafts are translated; may be repeated. All strategies by default.",
    **_rare,
)
@text_options
@json_option
@guarded
def emulate(
    corpus: str,
    tokenizer: str | None,
    max_tokens: int | None,
    dictionaries: tuple[Path, ...],
    history: bool | None,
    draft: str | None,
    alignment: Path | None,
    lengths: tuple[int | None, ...],
    min_draft_prob: float | None,
    strategies: tuple[str, ...],
    reads: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Replay a text as if the target had written it, and count verification passes.

    Only the target's tokenizer is needed. Replay a text that the dictionary was not built from. Each document
    is a generation of its own.

    \b
    tokens per pass       tokens of the text / passes: 1.0 is plain decoding
    coverage              passes with a proposal / passes
    mean accepted length  accepted draft tokens / passes with a proposal
    acceptance            accepted draft tokens / proposed ones
    fertility             tokens / words of the text

    \b
    Examples:
        spectool emulate --dict pl.dict --corpus news.txt
        spectool emulate --draft ./Qwen2.5-1.5B --tokenizer ./Bielik-11B --corpus news.txt
    """
    from spectool.corpora import open_corpus

    text = open_corpus(corpus, **reads)
    if draft is not None:
        if dictionaries or history is not None or min_draft_prob is not None:
            raise click.UsageError("--draft is replayed by itself: leave out --dict, --history and --min-draft-prob")
        numbers = [length for length in lengths if length]
        if len(numbers) < len(lengths):
            raise click.UsageError("with --draft, --num-draft-tokens takes numbers from 1 on")
        if tokenizer is None:
            raise click.UsageError("with --draft, name the target's tokenizer: --tokenizer T")
        _replay_model(
            text, max_tokens, tokenizer, draft, alignment, strategies or STRATEGIES, numbers or _DRAFT_LENGTHS, as_json
        )
    else:
        if alignment or strategies:
            raise click.UsageError("--alignment and --strategy translate drafts of a model: give one with --draft D")
        if len(lengths) > 1:
            raise click.UsageError("--num-draft-tokens may be repeated only with --draft")
        if not dictionaries and history is False:
            raise click.UsageError("nothing to draft from: give --draft D or --dict DIR, or leave out --no-history")
        if not dictionaries and tokenizer is None:
            raise click.UsageError("without --dict, name the target's tokenizer: --tokenizer T")
        probability = MIN_PROBABILITY if min_draft_prob is None else min_draft_prob
        length = lengths[0] if lengths else None
        _replay_look_ups(text, max_tokens, tokenizer, dictionaries, history is not False, probability, length, as_json)


def _replay_look_ups(
    corpus: Any,
    max_tokens: int | None,
    tokenizer: str | None,
    dictionaries: Sequence[Path],
    history: bool,
    min_draft_prob: float,
    length: int | None,
    as_json: bool,
) -> None:
    """Replay with dictionaries, the document's own history, or both."""
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.commands.display import by_drafter, gains
    from spectool.measure.emulate import replay
    from spectool.runtime.draft_length.record import MAX_DRAFT_TOKENS
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import open_dictionaries
    from spectool.tokenization.opening import open_named

    recorded: Mapping[str, Any] = {}
    if tokenizer is None and dictionaries:
        recorded = Dictionary(find_artifact(dictionaries[0], ".dict")).tokenizer
    target = open_named(tokenizer, recorded, "the dictionary's")
    drafter = LookupDrafter(open_dictionaries(dictionaries, target), history, min_draft_prob)
    documents, fertility = _encoded(corpus, target, max_tokens)
    with progress("replaying", sum(map(len, documents)), "tokens") as update:
        statistics = replay(documents, drafter, MAX_DRAFT_TOKENS if length is None else length, update)
    drafters = by_drafter(statistics)
    facts = {
        "corpus": corpus.spec,
        **_documents(corpus, len(documents), as_json),
        "tokenizer": target.name,
        "tokens": statistics.tokens,
        "fertility": round(fertility, 4),
        "passes": statistics.passes,
        "tokens per pass": round(statistics.tokens_per_pass, 4),
        "coverage": round(statistics.coverage, 4),
        "mean accepted length": round(statistics.mean_accepted_length, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "accepted by source": drafters if as_json else gains(drafters) or "nothing was drafted",
    }
    show(facts, as_json)


def _replay_model(
    corpus: Any,
    max_tokens: int | None,
    tokenizer: str,
    draft: str,
    alignment: Path | None,
    strategies: Sequence[str],
    lengths: Sequence[int],
    as_json: bool,
) -> None:
    """Replay with a draft model and every strategy and draft length."""
    from spectool.artifacts.alignment import Alignment
    from spectool.artifacts.default_paths import find_artifact
    from spectool.build.alignment.stage import temporary_alignment
    from spectool.measure.emulate import compare_strategies
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.loading import load_model
    from spectool.runtime.translation.factory import make_translator
    from spectool.tokenization.opening import open_tokenizer

    drafting, target = open_tokenizer(draft), open_tokenizer(tokenizer)
    opened = None if alignment is None else Alignment(find_artifact(alignment, ".align"))
    if opened is not None:
        opened.require(drafting, target)
    model, _ = load_model(draft)
    source = ModelSource(model, bos=drafting.roles.bos, size=drafting.size)
    for side in (drafting, target):
        say_notes(side)
    lengths = list(dict.fromkeys(lengths))
    with nullcontext(opened) if opened else temporary_alignment(drafting, target, say) as aligned:
        translators = {each: make_translator(each, aligned, drafting, target) for each in strategies}
        documents, _ = _encoded(corpus, target, max_tokens)
        tokens = sum(map(len, documents))
        with progress("replaying", tokens * len(lengths) * len(translators), "tokens") as update:
            rows = [_row(run) for run in compare_strategies(documents, translators, source, lengths, update)]
    facts = {
        "corpus": corpus.spec,
        **_documents(corpus, len(documents), as_json),
        "tokens": tokens,
        "target": target.name,
        "draft": draft,
    }
    show({**facts, "runs": rows} if as_json else facts, as_json)
    if not as_json:
        lines = [[f"{value:.3f}" if name in _RATIOS else str(value) for name, value in row.items()] for row in rows]
        click.echo("\n" + table([name.replace("_", " ") for name in rows[0]], lines))


def _encoded(corpus: Any, target: Any, max_tokens: int | None) -> tuple[list[list[int]], float]:
    """The documents to replay, and their fertility."""
    from spectool.measure.emulate import encode_text

    text = encode_text(target, (document.text for document in reading(corpus)), max_tokens or 0)
    return text.cut(max_tokens or 0), text.fertility


def _documents(corpus: Any, number: int, as_json: bool) -> dict[str, Any]:
    """How many documents are replayed, and how plain text was divided into them."""
    division = dict(corpus.counts.plain_text)
    if as_json:
        return {"documents": number, "plain_text": division}
    return {"documents": divided(number, division) if division else number}


def _row(run: "StrategyRun") -> dict[str, Any]:
    statistics = run.statistics
    return {
        "k": run.num_draft_tokens,
        "strategy": run.strategy,
        "tokens": statistics.tokens,
        "tokens_per_pass": round(statistics.tokens_per_pass, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "without_proposal": round(1 - statistics.coverage, 4),
    }
