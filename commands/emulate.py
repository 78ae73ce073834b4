"""The command ``emulate``: a text replayed as if the target had written it, to count the passes that drafts save."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import open_text, progress, say_opening, show
from spectool.commands.shared.model_options import DraftLength, min_draft_prob_option
from spectool.commands.shared.options import (
    Whole,
    command,
    option,
    path_option,
    text_options,
    tokenizer_option,
)


@command("emulate")
@option("--corpus", metavar="C", required=True, help="Text to replay, as for build-dict.", heading="Text")
@tokenizer_option("--target", help="The target's tokenizer; by default that of the dictionary.", heading="Text")
@option("--max-tokens", type=Whole(1), help="Replay this many tokens, not the whole text.", heading="Text")
@path_option(
    "--dict",
    "dictionaries",
    multiple=True,
    metavar="FILE",
    help="Dictionary to draft from; may be repeated.",
    heading="Drafting",
)
@option(
    "--history/--no-history", default=True, show_default=True, help="Draft from the text so far.", heading="Drafting"
)
@option(
    "--num-draft-tokens",
    "length",
    type=DraftLength(0),
    default="auto",
    show_default=True,
    metavar="auto|N",
    help="Maximum number of draft tokens per pass; auto: as many as --min-draft-prob allows, up to 16.",
    heading="Drafting",
    rare=True,
)
@min_draft_prob_option(
    default=0.2,
    show_default=True,
    help="Stop drafting when the probability of the draft falls below this.",
    heading="Drafting",
    rare=True,
)
@text_options
def emulate(
    corpus: str,
    tokenizer: str | None,
    max_tokens: int | None,
    dictionaries: tuple[Path, ...],
    history: bool,
    length: int | None,
    min_draft_prob: float,
    reads: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Count the passes that drafts would save on a text, without running a model.

    Replays the text as if the target had written it, each document as a generation of its own. Use a text that the
    dictionary was not built from.

    \b
    tokens per pass       1.0 is plain decoding
    coverage              passes with a proposal / passes
    mean accepted length  accepted draft tokens / passes with a proposal
    acceptance            accepted draft tokens / proposed ones
    proposed per pass     draft tokens / passes: what --min-draft-prob limits

    \b
    Example:
        spectool emulate --dict pl.dict --corpus news.txt
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.build.corpus_reading import with_progress
    from spectool.commands.shared.display import by_drafter
    from spectool.measure.emulate import encode_text, replay
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import open_dictionaries
    from spectool.runtime.settings import MAX_DRAFT_TOKENS
    from spectool.tokenization.opening import open_named

    text = open_text(corpus, **reads)
    if not dictionaries and not history:
        raise click.UsageError("nothing to draft from: give --dict FILE, or leave out --no-history")
    if not dictionaries and tokenizer is None:
        raise click.UsageError("without --dict, name the target's tokenizer: --tokenizer T")
    found = [Dictionary(find_artifact(path, ".dict")) for path in dictionaries]
    recorded: Mapping[str, Any] = found[0].tokenizer if found and tokenizer is None else {}
    if sys.stderr.isatty():
        say_opening(tokenizer or recorded["name"])
    target = open_named(tokenizer, recorded, "the dictionary's")
    drafter = LookupDrafter(open_dictionaries(dictionaries, target), history, min_draft_prob)
    documents = encode_text(target, (document.text for document in with_progress(text)), max_tokens or 0)
    with progress("replaying", sum(map(len, documents)), "tokens") as update:
        statistics = replay(documents, drafter, MAX_DRAFT_TOKENS if length is None else length, update)
    facts: dict[str, Any] = {
        "corpus": text.spec,
        "documents": len(documents),
        "plain text": dict(text.counts.plain_text),
        "tokenizer": target.name,
        "tokens": statistics.tokens,
        "passes": statistics.passes,
        "tokens per pass": round(statistics.tokens_per_pass, 4),
        "coverage": round(statistics.coverage, 4),
        "mean accepted length": round(statistics.mean_accepted_length, 4),
        "acceptance": round(statistics.acceptance_rate, 4),
        "proposed per pass": round(statistics.proposed / max(1, statistics.passes), 4),
        "accepted by source": by_drafter(statistics),
    }
    show(facts, as_json)
