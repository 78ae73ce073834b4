"""The command ``emulate``: text in the target's place, with drafters of every kind in the loop.

It needs text and runtime both, so it is composed here, beside the command line.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from spectool import RuntimeUnsupported, TokenizerError
from spectool.artifacts.console import Finite, guarded, reading, say, show, table, text_options
from spectool.measure.emulate.sweep.command import sweep, sweep_options
from spectool.runtime.translation.strategies import STRATEGIES

_LENGTH = 8
_LONGEST = 64
_DRAFT_LENGTHS = (2, 4)
_ORDER = 5
_BATCH = 512  # documents encoded at once


@click.command()
@click.option("--dict", "dictionary", type=click.Path(path_type=Path), metavar="DIR", help="Dictionary to draft from.")
@click.option("--history", is_flag=True, help="Draft from what the document already said, too.")
@click.option(
    "--draft",
    "--draft-model",
    "draft",
    metavar="D",
    help="Draft model with another tokenizer; its tokenizer is enough with --count-on.",
)
@click.option(
    "--count-on",
    metavar="C",
    help="Text to count an n-gram model over D's tokens on, which then drafts instead of the model.",
)
@click.option(
    "--order", type=click.IntRange(1, 8), help=f"Longest n-gram counted with --count-on; {_ORDER} by default."
)
@click.option(
    "--alignment",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Alignment of D with the target, from `spectool align`; made for this run if not given.",
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(STRATEGIES),
    multiple=True,
    help="Translate drafts this way; may be repeated. All by default.",
)
@click.option("--steps", is_flag=True, help="Report the steps of the anchored strategy one by one, too.")
@click.option("--corpus", metavar="C", help="Text to replay, as for build-dict.")
@click.option(
    "--tokenizer",
    "--model",
    "--target",
    "tokenizer",
    metavar="T",
    help="The target's tokenizer; by default the one the dictionary or alignment names.",
)
@click.option(
    "--min-draft-prob",
    type=Finite(0, 1),
    default=0.0,
    show_default=True,
    help="End proposals of dictionary and history before they get less probable than this: fewer and surer tokens.",
)
@click.option(
    "--num-draft-tokens",
    "lengths",
    type=click.IntRange(0, _LONGEST),
    multiple=True,
    help=f"Longest proposal, in tokens; may be repeated. By default {_LENGTH}, and 2 and 4 draft tokens with --draft.",
)
@sweep_options
@text_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@guarded
def emulate(
    dictionary: Path | None,
    history: bool,
    draft: str | None,
    count_on: str | None,
    order: int | None,
    alignment: Path | None,
    strategies: tuple[str, ...],
    steps: bool,
    corpus: str | None,
    tokenizer: str | None,
    min_draft_prob: float,
    lengths: tuple[int, ...],
    text_field: str | None,
    on_error: Any,
    as_json: bool,
    **swept: Any,
) -> None:
    """Replay a text as if the target had written it, and count verification passes.

    Each document is a generation of its own, and each line of a plain text file is a document.
    A dictionary does best on the text that it was built from, and so does an n-gram model: replay
    another one.

    --sweep builds and replays a grid of dictionaries: `paper` is that of the DictSpec paper, 1,350 runs;
    a TOML file names tokenizers and languages, and what it leaves out is as in the paper:

    \b
        num_draft_tokens = [8]
        replay_tokens = 0              # of each text; 0: all
        [tokenizers]
        "qwen2.5" = "./Qwen2.5-1.5B"   # as --tokenizer
        [languages.pl]
        build = "wiki-pl.txt"          # as --corpus
        replay = "news-pl.txt"
        [dictspec]
        readings = ["whole", "path"]
        orders = ["n1", "n12", "n123"]
        entries = [10_000, 200_000]
        min_prob = [0.2, 0.8]

    \b
    Examples:
        spectool emulate --sweep grid.toml -o results
        spectool emulate --dict pl.dict --corpus news.txt
        spectool emulate --draft ./Qwen2.5-1.5B --tokenizer ./Bielik-11B --corpus news.txt
        spectool emulate --draft ./Qwen2.5-1.5B --count-on wiki.txt --alignment qwen-bielik.align --corpus news.txt
    """
    from spectool.corpora import open_corpus

    if swept["name"] is not None:
        if dictionary or history or draft or count_on or order or alignment or strategies or steps:
            raise click.UsageError("--sweep says itself what to draft from: leave out the options of other drafters")
        if corpus or tokenizer or lengths:
            raise click.UsageError("--sweep has texts, tokenizers and draft lengths of its own: name them in the grid")
        sweep(**swept, on_error=on_error, text_field=text_field, as_json=as_json)
        return
    if any(swept.values()):
        raise click.UsageError("-o, --workers, --tokenizers, --corpora and --min-prob-of belong to --sweep GRID")
    if corpus is None:
        raise click.UsageError("name the text to replay: --corpus C")
    if draft is None and (count_on or alignment or strategies or steps):
        raise click.UsageError("--count-on, --alignment, --strategy and --steps need a draft: --draft D")
    if draft is not None and (dictionary is not None or history):
        raise click.UsageError("--draft is replayed by itself: leave out --dict and --history")
    if draft is not None and min_draft_prob:
        raise click.UsageError("--min-draft-prob is for --dict and --history")
    if draft is not None and 0 in lengths:
        raise click.UsageError("--num-draft-tokens 0 drafts nothing: give at least 1 with --draft")
    if order is not None and count_on is None:
        raise click.UsageError("--order is about the n-grams of --count-on C, which is not given")
    source = open_corpus(corpus, on_error=on_error, text_field=text_field)
    if draft is not None:
        counted = None if count_on is None else open_corpus(count_on, on_error=on_error, text_field=text_field)
        named = strategies or STRATEGIES
        _with_draft(draft, counted, order or _ORDER, alignment, named, steps, source, tokenizer, lengths, as_json)
    else:
        _without_model(dictionary, history, min_draft_prob, source, tokenizer, lengths, as_json)


def _without_model(
    dictionary: Path | None,
    history: bool,
    min_draft_prob: float,
    source: Any,
    tokenizer: str | None,
    lengths: Sequence[int],
    as_json: bool,
) -> None:
    """Replay with a dictionary, the document's own history, or both."""
    from spectool.artifacts.formats.dictionary import Dictionary
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.measure.emulate.replay import replay
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import open_dictionary

    if len(lengths) > 1:
        raise click.UsageError("--num-draft-tokens may be repeated only with --draft")
    if tokenizer is not None:
        target = open_tokenizer(tokenizer)
    elif dictionary is not None:
        target = _recorded(Dictionary(dictionary).manifest.tokenizers["target"]["name"], "the dictionary's")
    else:
        raise click.UsageError("without --dict, name the target's tokenizer: --tokenizer T")
    if dictionary is None and not history:
        raise click.UsageError("nothing to draft from: give --draft D, or --dict DIR, --history, or both")
    opened = None if dictionary is None else open_dictionary(dictionary, target)
    drafter = LookupDrafter(opened, history, min_draft_prob)

    texts, documents = _replayed(source, target)
    total = sum(map(len, documents))
    with tqdm(total=total, unit=" tokens", unit_scale=True, desc="replaying", disable=None) as bar:
        statistics = replay(documents, drafter, lengths[0] if lengths else _LENGTH, bar.update)
    facts = {
        "corpus": source.spec,
        "documents": len(documents),
        "tokenizer": target.name,
        "tokens": statistics.tokens,
        "fertility": round(total / sum(len(text.split()) for text in texts), 4),
        "passes": statistics.passes,
        "tokens per pass": round(statistics.tokens_per_pass, 4),
        "coverage": round(statistics.coverage, 4),
        "mean accepted length": round(statistics.mean_accepted_length, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
    }
    show(facts, as_json)


def _with_draft(
    draft: str,
    counted: Any,
    order: int,
    alignment: Path | None,
    strategies: Sequence[str],
    steps: bool,
    source: Any,
    tokenizer: str | None,
    lengths: Sequence[int],
    as_json: bool,
) -> None:
    """Replay with a draft of another vocabulary, once for every strategy and draft length.

    What can be wrong with the names is found before anything is counted.
    """
    from spectool.artifacts.formats.alignment import Alignment
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.artifacts.tokenizer.round_trips import limits
    from spectool.measure.emulate.strategies import anchored_steps, compare_strategies
    from spectool.runtime.translation.strategies import make_translator

    if tokenizer is None and alignment is None:
        raise click.UsageError("without --alignment, name the target's tokenizer: --tokenizer T")
    recorded = None if alignment is None else Alignment(alignment)
    proposals: Any
    proposals, drafting = _loaded(draft) if counted is None else (None, open_tokenizer(draft))
    if tokenizer is not None:
        target = open_tokenizer(tokenizer)
    elif recorded is not None:
        target = _recorded(_target_name(recorded, drafting), "the target's")
    if recorded is not None:
        recorded.require(drafting, target)
    for side in (drafting, target):
        for note in side.notes:
            say(f"{side.name}: {note}")
        if changes := limits(side):
            say(f"{side.name} does not keep every text: {'; '.join(changes)}")
    if counted is not None:
        proposals = _ngrams(drafting, counted, order)
    lengths = list(dict.fromkeys(lengths or _DRAFT_LENGTHS))
    with _aligned(recorded, drafting, target) as aligned:
        translators = {name: make_translator(name, aligned, drafting, target) for name in strategies}
        if steps:
            translators |= anchored_steps(aligned, drafting, target)
        _, documents = _replayed(source, target)
        total = sum(map(len, documents)) * len(lengths) * len(translators)
        rows = []
        with tqdm(total=total, unit=" tokens", unit_scale=True, desc="replaying", disable=None) as bar:
            for run in compare_strategies(documents, translators, proposals, lengths, bar.update):
                rows.append(_row(run))
    facts = {
        "corpus": source.spec,
        "documents": len(documents),
        "tokens": sum(map(len, documents)),
        "target": target.name,
        "draft": draft if counted is None else f"{order}-gram model counted on {counted.spec}, tokens of {draft}",
    }
    if as_json:
        show({**facts, "runs": rows}, as_json=True)
        return
    show(facts, as_json=False)
    click.echo()
    header = [name.replace("_", " ") for name in rows[0]]
    click.echo(table(header, [[_cell(name, value) for name, value in row.items()] for row in rows]))


def _row(run: Any) -> dict[str, Any]:
    statistics, counts = run.statistics, run.counts
    return {
        "k": run.num_draft_tokens,
        "strategy": run.strategy,
        "tokens_per_pass": round(statistics.tokens_per_pass, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "without_proposal": round(counts.without_proposal, 4),
        "string_free": round(counts.string_free, 4),
        "us_per_cycle": round(counts.microseconds_per_cycle, 1),
    }


def _cell(name: str, value: Any) -> str:
    if name == "us_per_cycle":
        return f"{value:.1f}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _ngrams(tokenizer: Any, corpus: Any, order: int) -> Any:
    """Count an n-gram model over the draft's tokens."""
    from spectool.measure.emulate.ngram_model import NgramModel, NgramSource

    say(f"counting {order}-grams of {tokenizer.name} on {corpus.spec}")
    documents = _encoded(tokenizer, (document.text for document in reading(corpus)))
    return NgramSource(NgramModel.count(documents, tokenizer.size, order))


def _loaded(draft: str) -> tuple[Any, Any]:
    """Load a draft model and its tokenizer."""
    from spectool.artifacts.tokenizer.opening import open_tokenizer
    from spectool.runtime.drafters.model_source import ModelSource
    from spectool.runtime.models import load_model

    try:
        model, loaded = load_model(draft)
    except RuntimeUnsupported as error:
        raise RuntimeUnsupported(
            f"{error}. With a tokenizer alone, count n-grams over its tokens: --count-on C"
        ) from error
    tokenizer = open_tokenizer(loaded)
    return ModelSource(model, bos=tokenizer.roles.bos, size=tokenizer.size), tokenizer


def _target_name(recorded: Any, draft: Any) -> str:
    """Return the name of the tokenizer that the alignment gives for the target.

    In an alignment of the other direction, that is the one on its draft side: the error about it names the right pair.
    """
    sides = recorded.manifest.tokenizers
    swapped = sides["target"]["fingerprint"] == draft.fingerprint != sides["draft"]["fingerprint"]
    name: str = sides["draft" if swapped else "target"]["name"]
    return name


@contextmanager
def _aligned(recorded: Any, draft: Any, target: Any) -> Iterator[Any]:
    """Give the alignment named, or one made for this run on a bundled sample."""
    from spectool.artifacts.formats.alignment import Alignment
    from spectool.build.alignment.stage import build_alignment
    from spectool.corpora import open_corpus

    if recorded is not None:
        yield recorded
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "pair.align"
        say("aligning the two tokenizers; `spectool align` keeps the result for later runs")
        build_alignment(draft, target, open_corpus("sample:pl"), path, lambda step: None, sample=0)
        yield Alignment(path)


def _recorded(name: str, whose: str) -> Any:
    from spectool.artifacts.tokenizer.opening import open_tokenizer

    try:
        return open_tokenizer(name)
    except TokenizerError as error:
        raise TokenizerError(f"{error}. Give {whose} tokenizer with --tokenizer") from error


def _replayed(source: Any, target: Any) -> tuple[list[str], list[list[int]]]:
    texts = [document.text for document in reading(source)]
    return texts, list(_encoded(target, iter(texts)))


def _encoded(tokenizer: Any, texts: Iterator[str]) -> Iterator[list[int]]:
    while batch := list(islice(texts, _BATCH)):
        yield from tokenizer.encode_batch(batch)
