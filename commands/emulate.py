"""The command ``emulate``: a text replayed as if the target had written it, to count the passes that drafts save."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.commands.console import guarded, progress, reading, say, say_notes, show, table
from spectool.commands.model_options import DraftLength, min_draft_prob_option
from spectool.commands.options import SectionedCommand, json_option, section, text_options, under
from spectool.runtime.translation.factory import STRATEGIES

if TYPE_CHECKING:
    from spectool.measure.emulate import StrategyRun

_DRAFT_LENGTHS = (2, 4)  # of a draft model
_RATIOS = {"tokens_per_pass", "acceptance", "without_proposal"}
_text, _lookup, _draft = (
    under("Text"),
    under("Drafts from a dictionary and the text so far"),
    under("Drafts from a model"),
)


@click.command(cls=SectionedCommand)
@_text("--corpus", metavar="C", required=True, help="Text to replay, as for build-dict.")
@_text(
    "--tokenizer",
    "--model",
    "--target",
    "tokenizer",
    metavar="T",
    help="The target's tokenizer; by default the one that the dictionary or alignment names.",
)
@_text("--max-tokens", type=click.IntRange(1), help="Maximum number of tokens to replay; by default the whole text.")
@_lookup("--dict", "dictionary", type=click.Path(path_type=Path), metavar="DIR", help="Dictionary to draft from.")
@_lookup(
    "--history/--no-history", default=None, show_default="history", help="Draft from what the document said before."
)
@min_draft_prob_option(
    **section("Drafts from a dictionary and the text so far"),
    default=None,
    show_default=f"{MIN_PROBABILITY:g}",
    help="End proposals before they get less probable than this: fewer and surer tokens.",
)
@_lookup(
    "--num-draft-tokens",
    "lengths",
    type=DraftLength(0, 64),
    multiple=True,
    metavar="auto|INTEGER",
    help="Maximum number of tokens of a proposal. The default auto proposes what --min-draft-prob lets pass, up to 16. "
    "For a draft model: draft tokens per pass, 2 and 4 by default; may be repeated.",
)
@_draft(
    "--draft", "--draft-model", "draft", metavar="D", help="Draft model whose tokenizer may differ from the target's."
)
@_draft(
    "--alignment",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Alignment of D with the target, from `spectool align`; made for this run if not given.",
)
@_draft(
    "--strategy",
    "strategies",
    type=click.Choice(STRATEGIES),
    multiple=True,
    help="How drafts are translated; may be repeated. All strategies by default.",
)
@text_options
@json_option
@guarded
def emulate(
    corpus: str,
    tokenizer: str | None,
    max_tokens: int | None,
    dictionary: Path | None,
    history: bool | None,
    min_draft_prob: float | None,
    lengths: tuple[int | None, ...],
    draft: str | None,
    alignment: Path | None,
    strategies: tuple[str, ...],
    reads: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Replay a text as if the target had written it, and count verification passes.

    No target model is needed, only its tokenizer. Each document is a generation of its own, and each line of a plain
    text file is a document. A dictionary does best on the text that it was built from, so replay another one. Drafts
    are verified by exact match. Ctrl-C ends a replay with the figures of what was replayed.

    \b
    tokens per pass       tokens of the text / passes: 1.0 is plain decoding
    coverage              passes with a proposal / passes
    mean accepted length  accepted draft tokens / passes with a proposal
    acceptance            accepted draft tokens / proposed ones
    fertility             tokens / words of the text

    \b
    Examples:
        spectool emulate --dict pl.dict --corpus news.txt
        spectool emulate --draft ./Qwen2.5-1.5B --tokenizer ./Bielik-11B --corpus news.txt --max-tokens 2000
    """
    from spectool.corpora import open_corpus

    text = open_corpus(corpus, **reads)
    if draft is None:
        if alignment or strategies:
            raise click.UsageError("--alignment and --strategy translate drafts of a model: give one with --draft D")
        if len(lengths) > 1:
            raise click.UsageError("--num-draft-tokens may be repeated only with --draft")
        if dictionary is None and history is False:
            raise click.UsageError("nothing to draft from: give --draft D or --dict DIR, or leave out --no-history")
        if dictionary is None and tokenizer is None:
            raise click.UsageError("without --dict, name the target's tokenizer: --tokenizer T")
        length = lengths[0] if lengths else None
        probability = MIN_PROBABILITY if min_draft_prob is None else min_draft_prob
        interrupted = _look_up(
            text, max_tokens, tokenizer, dictionary, history is not False, probability, length, as_json
        )
    else:
        if dictionary is not None or history is not None or min_draft_prob is not None:
            raise click.UsageError("--draft is replayed alone: leave out --dict, --history and --min-draft-prob")
        numbers = [length for length in lengths if length]
        if len(numbers) < len(lengths):
            raise click.UsageError("with --draft, --num-draft-tokens takes numbers from 1 on")
        if tokenizer is None and alignment is None:
            raise click.UsageError("without --alignment, name the target's tokenizer: --tokenizer T")
        interrupted = _draft_by_model(
            text, max_tokens, tokenizer, draft, alignment, strategies or STRATEGIES, numbers or _DRAFT_LENGTHS, as_json
        )
    if interrupted:
        click.get_current_context().exit(130)


def _look_up(
    corpus: Any,
    max_tokens: int | None,
    tokenizer: str | None,
    dictionary: Path | None,
    history: bool,
    min_draft_prob: float,
    length: int | None,
    as_json: bool,
) -> bool:
    """Replay with a dictionary, the document's own history, or both; whether that was interrupted."""
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.commands.display import by_source, spelled
    from spectool.measure.emulate import replay
    from spectool.runtime.decoding.statistics import DraftStatistics
    from spectool.runtime.draft_length.controller import MAX_DRAFT_TOKENS
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import open_dictionary
    from spectool.tokenization.opening import open_named

    recorded: Mapping[str, Any] = {}
    if tokenizer is None and dictionary is not None:
        recorded = Dictionary(find_artifact(dictionary, ".dict")).tokenizer
    target = open_named(tokenizer, recorded, "the dictionary's")
    opened = None if dictionary is None else open_dictionary(dictionary, target)
    drafter = LookupDrafter(opened, history, min_draft_prob)
    documents, fertility = _encoded(corpus, target, max_tokens)
    statistics = DraftStatistics()
    work = partial(replay, documents, drafter, MAX_DRAFT_TOKENS if length is None else length, statistics=statistics)
    interrupted = _run(work, sum(map(len, documents)), lambda: statistics.tokens)
    sources = by_source(statistics)
    facts = {
        "corpus": corpus.spec,
        "documents": len(documents),
        "tokenizer": target.name,
        "tokens": statistics.tokens,
        "fertility": round(fertility, 4),
        "passes": statistics.passes,
        "tokens per pass": round(statistics.tokens_per_pass, 4),
        "coverage": round(statistics.coverage, 4),
        "mean accepted length": round(statistics.mean_accepted_length, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "accepted by source": sources if as_json else spelled(sources) or "nothing was drafted",
    }
    show(facts | interrupted, as_json)
    return bool(interrupted)


def _draft_by_model(
    corpus: Any,
    max_tokens: int | None,
    tokenizer: str | None,
    draft: str,
    alignment: Path | None,
    strategies: Sequence[str],
    lengths: Sequence[int],
    as_json: bool,
) -> bool:
    """Replay with a draft model, once for every strategy and draft length; whether that was interrupted."""
    from spectool.artifacts.alignment import Alignment
    from spectool.artifacts.default_paths import find_artifact
    from spectool.build.alignment.stage import passing_alignment
    from spectool.measure.emulate import StrategyRun, compare_strategies
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.loading import load_model
    from spectool.runtime.translation.factory import make_translator
    from spectool.tokenization.opening import open_named, open_tokenizer

    recorded = None if alignment is None else Alignment(find_artifact(alignment, ".align"))
    drafting = open_tokenizer(draft)
    target = open_named(tokenizer, _recorded_target(recorded, drafting) if recorded else {}, "the target's")
    if recorded is not None:
        recorded.require(drafting, target)
    model, _ = load_model(draft)
    source = ModelSource(model, bos=drafting.roles.bos, size=drafting.size)
    for side in (drafting, target):
        say_notes(side)
    lengths = list(dict.fromkeys(lengths))
    runs: list[StrategyRun] = []
    with nullcontext(recorded) if recorded else passing_alignment(drafting, target, say) as aligned:
        translators = {each: make_translator(each, aligned, drafting, target) for each in strategies}
        documents, _ = _encoded(corpus, target, max_tokens)
        tokens = sum(map(len, documents))
        interrupted = _run(
            lambda done: list(compare_strategies(documents, translators, source, lengths, done, runs.append)),
            tokens * len(lengths) * len(translators),
            lambda: sum(run.statistics.tokens for run in runs),
        )
    facts = {
        "corpus": corpus.spec,
        "documents": len(documents),
        "tokens": tokens,
        "target": target.name,
        "draft": draft,
        **interrupted,
    }
    rows = [_row(run) for run in runs if run.statistics.tokens]
    show({**facts, "runs": rows} if as_json else facts, as_json)
    if not as_json:
        lines = [[f"{value:.3f}" if name in _RATIOS else str(value) for name, value in row.items()] for row in rows]
        click.echo("\n" + table([name.replace("_", " ") for name in rows[0]], lines))
    return bool(interrupted)


def _encoded(corpus: Any, target: Any, max_tokens: int | None) -> tuple[list[list[int]], float]:
    """The documents to replay, and their fertility."""
    from spectool.measure.emulate import encode_text

    text = encode_text(target, (document.text for document in reading(corpus)), max_tokens or 0)
    return text.cut(max_tokens or 0), text.fertility


def _run(work: Callable[[Callable[[float], object]], object], total: int, done: Callable[[], int]) -> dict[str, str]:
    """Replay until the end or Ctrl-C; a note about the latter for the figures, if anything was replayed."""
    try:
        with progress("replaying", total, "tokens") as update:
            work(update)
    except KeyboardInterrupt:
        if not done():
            raise
        return {"interrupted": f"after {done():,} of {total:,} tokens to replay"}
    return {}


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


def _recorded_target(alignment: Any, draft: Any) -> Any:
    """What the alignment says of the target's tokenizer.

    An alignment of the other direction has it on its draft side; the error about the direction then names the right
    pair.
    """
    sides = alignment.manifest.tokenizers
    swapped = sides["target"]["fingerprint"] == draft.fingerprint != sides["draft"]["fingerprint"]
    return sides["draft" if swapped else "target"]
