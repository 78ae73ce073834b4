"""The command ``emulate``: text in the target's place, with drafters of every kind in the loop."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource

from spectool import RuntimeUnsupported
from spectool.artifacts.console import (
    guarded,
    json_option,
    progress,
    reading,
    say,
    say_notes,
    show,
    table,
    text_options,
)
from spectool.commands.model_options import DraftLength, min_draft_prob_option
from spectool.commands.option_sections import SectionedCommand, under
from spectool.runtime.translation.factory import STRATEGIES
from spectool.runtime.translation.strings import WINDOW

_DRAFT_LENGTHS = (2, 4)  # of a draft model
_ORDER = 5
_RATIOS = {"tokens_per_pass", "acceptance", "without_proposal", "string_free"}
_OF_DRAFT = {"count_on", "order", "alignment", "strategies", "steps", "window", "window_back"}
_OF_LOOKUP = {"dictionary", "history", "min_draft_prob", "prompt_lookup"}
_text, _lookup, _draft = (
    under("Text"),
    under("Drafts from a dictionary and the text so far"),
    under("Drafts of a model"),
)


@click.command(cls=SectionedCommand)
@_text("--corpus", metavar="C", help="Text to replay, as for build-dict.")
@_text(
    "--tokenizer",
    "--model",
    "--target",
    "tokenizer",
    metavar="T",
    help="The target's; by default the one the dictionary or alignment names.",
)
@_text("--max-tokens", type=click.IntRange(1), help="Replay only so many tokens of the text.")
@_lookup("--dict", "dictionary", type=click.Path(path_type=Path), metavar="DIR", help="Dictionary to draft from.")
@_lookup(
    "--history/--no-history", default=True, show_default=True, help="Draft from what the document already said, too."
)
@_lookup(
    "--prompt-lookup",
    is_flag=True,
    help="In place of --history: n-grams of the document so far by vLLM's rule, with --dict only where that is silent, "
    "as in the DictSpec paper.",
)
@min_draft_prob_option(_lookup, help="End proposals before they get less probable than this: fewer and surer tokens.")
@_lookup(
    "--num-draft-tokens",
    "lengths",
    type=DraftLength(0, 64),
    multiple=True,
    metavar="auto|INTEGER",
    help="Longest proposal. By default auto: as many as --min-draft-prob lets pass, 16 at most. Of a draft model: "
    "draft tokens of a pass, by default 2 and 4; may be repeated.",
)
@_draft(
    "--draft",
    "--draft-model",
    "draft",
    metavar="D",
    help="Draft model with another tokenizer; its tokenizer is enough with --count-on.",
)
@_draft("--count-on", metavar="C", help="Text to count an n-gram model of D's tokens on, which drafts in D's place.")
@_draft("--order", type=click.IntRange(1, 8), help=f"Longest n-gram counted with --count-on; {_ORDER} by default.")
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
    help="How drafts are translated; may be repeated. All by default.",
)
@_draft("--window", type=click.IntRange(1), help=f"Context tokens before a draft for `context`; {WINDOW} by default.")
@_draft("--window-back", type=click.IntRange(0), help="Context tokens before what is committed, likewise; 0 for none.")
@_draft("--steps", is_flag=True, help="Report the steps of the anchored strategy one by one, too.")
@text_options
@json_option
@guarded
def emulate(**options: Any) -> None:
    """Replay a text as if the target had written it, and count verification passes.

    Each document is a generation of its own, and each line of a plain text file is a document.
    A dictionary does best on the text that it was built from, and so does an n-gram model: replay
    another one. Drafts are verified by exact match, the only rule for text without the target's probabilities.
    Ctrl-C ends a replay with the figures of what was replayed.

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
        spectool emulate --draft ./Qwen2.5-1.5B --count-on wiki.txt --alignment qwen-bielik.align --corpus news.txt
    """
    context = click.get_current_context()
    given = {name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    asked = SimpleNamespace(**options)
    if asked.corpus is None:
        raise click.UsageError("name the text to replay: --corpus C")
    if asked.draft is None and given & (_OF_DRAFT - {"order"}):
        raise click.UsageError("--count-on, --alignment, --strategy, its windows and --steps need a draft: --draft D")
    if asked.order is not None and asked.count_on is None:
        raise click.UsageError("--order is about the n-grams of --count-on C, which is not given")
    if asked.draft is None:
        if {"history", "prompt_lookup"} <= given:
            raise click.UsageError("--prompt-lookup takes the place of --history: give one of them")
        if len(asked.lengths) > 1:
            raise click.UsageError("--num-draft-tokens may be repeated only with --draft")
        if not (asked.dictionary or asked.history or asked.prompt_lookup):
            raise click.UsageError("nothing to draft from: give --draft D or --dict DIR, or leave out --no-history")
        if asked.dictionary is None and asked.tokenizer is None:
            raise click.UsageError("without --dict, name the target's tokenizer: --tokenizer T")
        interrupted = _look_up(asked)
    else:
        if given & _OF_LOOKUP:
            raise click.UsageError("--draft is replayed by itself: leave out --dict, --history and --min-draft-prob")
        if not all(asked.lengths):
            raise click.UsageError("with --draft, --num-draft-tokens takes numbers from 1 on")
        if asked.tokenizer is None and asked.alignment is None:
            raise click.UsageError("without --alignment, name the target's tokenizer: --tokenizer T")
        interrupted = _draft_by_model(asked)
    if interrupted:
        context.exit(130)


def _look_up(asked: Any) -> dict[str, str]:
    """Replay with a dictionary, the document's own history, or both; return as `_run` does."""
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.commands.display import by_source, spelled
    from spectool.measure.emulate.replay import replay
    from spectool.runtime.decoding.statistics import DraftStatistics
    from spectool.runtime.draft_length.controller import LONGEST
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.drafters.prompt_lookup import with_prompt_lookup
    from spectool.runtime.loading import open_dictionary
    from spectool.tokenization.opening import open_named

    corpus = _open(asked, asked.corpus)
    recorded = {} if asked.tokenizer else Dictionary(find_artifact(asked.dictionary, ".dict")).tokenizer
    target = open_named(asked.tokenizer, recorded, "the dictionary's")
    opened = None if asked.dictionary is None else open_dictionary(asked.dictionary, target)
    history = asked.history and not asked.prompt_lookup
    drafter: Any = LookupDrafter(opened, history, asked.min_draft_prob) if opened or history else None
    if asked.prompt_lookup:
        drafter = with_prompt_lookup(drafter)
    length = next((length for length in asked.lengths if length is not None), LONGEST)
    documents, fertility = _encoded(asked, corpus, target)
    statistics = DraftStatistics()
    work = partial(replay, documents, drafter, length, statistics=statistics)
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
        "accepted by source": sources if asked.as_json else spelled(sources) or "nothing was drafted",
    }
    show(facts | interrupted, asked.as_json)
    return interrupted


def _draft_by_model(asked: Any) -> dict[str, str]:
    """Replay with a draft of another vocabulary, once for every strategy and draft length; return as `_run` does.

    What can be wrong with the names is found before anything is counted.
    """
    from spectool.artifacts.alignment import Alignment
    from spectool.artifacts.default_paths import find_artifact
    from spectool.build.alignment.stage import passing_alignment
    from spectool.measure.emulate.strategies import StrategyRun, anchored_steps, compare_strategies
    from spectool.runtime.translation.factory import make_translator
    from spectool.tokenization.opening import open_named, open_tokenizer

    corpus = _open(asked, asked.corpus)
    counted = None if asked.count_on is None else _open(asked, asked.count_on)
    recorded = None if asked.alignment is None else Alignment(find_artifact(asked.alignment, ".align"))
    source: Any
    source, drafting = _loaded(asked.draft) if counted is None else (None, open_tokenizer(asked.draft))
    target = open_named(asked.tokenizer, _recorded_target(recorded, drafting) if recorded else {}, "the target's")
    if recorded is not None:
        recorded.require(drafting, target)
    for side in (drafting, target):
        say_notes(side)
    name = asked.draft
    if counted is not None:
        order = asked.order or _ORDER
        source = _ngrams(drafting, counted, order)
        name = f"{order}-gram model counted on {counted.spec}, tokens of {asked.draft}"
    lengths = list(dict.fromkeys(asked.lengths or _DRAFT_LENGTHS))
    runs: list[StrategyRun] = []
    with nullcontext(recorded) if recorded else passing_alignment(drafting, target, say) as aligned:
        windows = {name: tokens for name in ("window", "window_back") if (tokens := getattr(asked, name)) is not None}
        translators = {
            each: make_translator(each, aligned, drafting, target, **windows) for each in asked.strategies or STRATEGIES
        }
        if asked.steps:
            translators |= anchored_steps(aligned, drafting, target)
        documents, _ = _encoded(asked, corpus, target)
        tokens = sum(map(len, documents))
        interrupted = _run(
            lambda done: list(compare_strategies(documents, translators, source, lengths, done, runs.append)),
            tokens * len(lengths) * len(translators),
            lambda: sum(run.statistics.tokens for run in runs),
        )
    rows = [_row(run) for run in runs if run.statistics.tokens]
    facts = {
        "corpus": corpus.spec,
        "documents": len(documents),
        "tokens": tokens,
        "target": target.name,
        "draft": name,
        **interrupted,
    }
    show({**facts, "runs": rows} if asked.as_json else facts, asked.as_json)
    if not asked.as_json:
        lines = [[f"{value:.3f}" if name in _RATIOS else str(value) for name, value in row.items()] for row in rows]
        click.echo("\n" + table([name.replace("_", " ") for name in rows[0]], lines))
    return interrupted


def _open(asked: Any, corpus: str) -> Any:
    from spectool.corpora import open_corpus

    return open_corpus(corpus, **asked.reads)


def _encoded(asked: Any, corpus: Any, target: Any) -> tuple[list[list[int]], float]:
    """Return the documents to replay, and tokens by word."""
    from spectool.measure.emulate.replay import encode_text

    limit = asked.max_tokens or 0
    text = encode_text(target, (document.text for document in reading(corpus)), limit)
    return text.cut(limit), text.fertility


def _run(work: Callable[[Callable[[float], object]], object], total: int, done: Callable[[], int]) -> dict[str, str]:
    """Replay until the end or Ctrl-C; return what the figures must say of the latter."""
    try:
        with progress("replaying", total, "tokens") as update:
            work(update)
    except KeyboardInterrupt:
        if not done():
            raise
        return {"interrupted": f"after {done():,} of {total:,} tokens to replay"}
    return {}


def _row(run: Any) -> dict[str, Any]:
    statistics, counts = run.statistics, run.counts
    return {
        "k": run.num_draft_tokens,
        "strategy": run.strategy,
        "tokens": statistics.tokens,
        "tokens_per_pass": round(statistics.tokens_per_pass, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "without_proposal": round(counts.without_proposal, 4),
        "string_free": round(counts.string_free, 4),
        "us_per_cycle": round(counts.microseconds_per_cycle, 1),
    }


def _ngrams(tokenizer: Any, corpus: Any, order: int) -> Any:
    """Count an n-gram model over the draft's tokens."""
    from spectool.build.inputs import encoded
    from spectool.lab.ngram_model import NgramModel, NgramSource

    say(f"counting {order}-grams of {tokenizer.name} on {corpus.spec}")
    documents = (ids for _, ids in encoded(tokenizer, (document.text for document in reading(corpus))))
    return NgramSource(NgramModel.count(documents, tokenizer.size, order))


def _loaded(draft: str) -> tuple[Any, Any]:
    """Load a draft model and its tokenizer."""
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.models import load_model
    from spectool.tokenization.opening import open_tokenizer

    try:
        model, loaded = load_model(draft)
    except RuntimeUnsupported as error:
        raise RuntimeUnsupported(
            f"{error}. With a tokenizer alone, count n-grams over its tokens: --count-on C"
        ) from error
    tokenizer = open_tokenizer(loaded)
    return ModelSource(model, bos=tokenizer.roles.bos, size=tokenizer.size), tokenizer


def _recorded_target(alignment: Any, draft: Any) -> Any:
    """Return what the alignment says of the target's tokenizer.

    In an alignment of the other direction, that is the one on its draft side: the error about it names the right pair.
    """
    sides = alignment.manifest.tokenizers
    swapped = sides["target"]["fingerprint"] == draft.fingerprint != sides["draft"]["fingerprint"]
    return sides["draft" if swapped else "target"]
