"""The stage behind ``spectool align``: two tokenizers and a corpus in, alignment artifact out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.artifacts.alignment import FORMAT, SIDES, VERSION, Alignment, Side, write_alignment
from spectool.artifacts.alignment_checks import LONGEST_TOKEN
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.manifest import Manifest, seal
from spectool.build.alignment.check import check_joins, hard_texts
from spectool.build.alignment.intersection import intersect
from spectool.build.alignment.merge_table import joins_by_merges, merge_table
from spectool.build.alignment.replayed_text import Reference, absorption_risks, replay_text
from spectool.build.alignment.translation_table import spellings
from spectool.build.corpus_reading import Progress, describe_corpus
from spectool.build.corpus_reading import Reader as CorpusReader
from spectool.corpora import Corpus
from spectool.tokenization.incremental.boundaries import boundary_table
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.round_trips import limits
from spectool.tokenization.tokenizer import Tokenizer

SAMPLE = 200_000  # characters
SEED = 11  # of the texts that a check makes

Measure = Callable[[Alignment, Tokenizer, Tokenizer, Sequence[str]], Mapping[str, Any]]
"""Takes a finished alignment, its two tokenizers and a sample; gives further statistics."""


def build_alignment(
    draft: Tokenizer,
    target: Tokenizer,
    corpus: Corpus,
    out: Path,
    progress: Progress,
    reader: CorpusReader = iter,
    sample: int = SAMPLE,
    measure: Measure | None = None,
) -> Manifest:
    """Align two tokenizers, check that ids are joined as the tokenizers write them, and write the artifact to ``out``.

    A side that fails the check goes through text, unless text is further from the tokenizer. The manifest says why, and
    what the check of either side found in the end. Absorption risks are counted on the
    sample; without one, they are all unknown.

    Args:
        draft: Tokenizer of the draft model.
        target: Tokenizer of the target model.
        corpus: Text on which is counted; all of it is read, once, because the manifest describes it.
        out: Directory of the artifact; replaced in one step when everything is written.
        progress: Called at the start of each step with a short description.
        reader: Iterates over the corpus.
        sample: Characters from the corpus's beginning on which merge sites and absorption are counted.
        measure: Adds figures to the report, such as those of `measure.ceiling`.

    Raises:
        TokenizerError: One of the two has a token of more bytes than an alignment takes.
    """
    both = {"draft": draft, "target": target}
    for side in both.values():
        _require_short_tokens(side)
    with atomic_directory(out) as directory:
        progress("reading")
        texts = _beginning((document.text for document in reader(corpus)), sample)
        progress("deriving merges and splits")
        tables = {role: _tables(side) for role, side in both.items()}
        progress("spelling both vocabularies in each other's ids")
        sides = {
            role: Side(
                intersect(mine, theirs), spellings(mine, theirs), *tables[role], mine.token_bytes, _unknown(mine)
            )
            for role, mine, theirs in (("draft", draft, target), ("target", target, draft))
        }
        progress("checking what joins ids")
        checks = _check(both, sides, hard_texts(draft, target, SEED, texts))
        progress("replaying a sample")
        report = _replay(both, sides, texts)
        progress("writing")
        write_alignment(directory, sides["draft"], sides["target"], _prefix_index(draft))
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            arguments={"sample": sample, "seed": SEED},
            tokenizers={role: side.identity for role, side in both.items()},
            inputs=describe_corpus(corpus),
            statistics={
                **{role: _side(side) | checks[role] for role, side in both.items()},
                "sample": {"texts": len(texts), "characters": sum(map(len, texts))},
                **report,
            },
        )
        manifest = seal(directory, manifest)
        if measure is None:
            return manifest
        progress("finding the translation ceiling")
        found = measure(Alignment(directory), draft, target, texts)
        return seal(directory, replace(manifest, statistics={**manifest.statistics, **found}))


def _tables(tokenizer: Tokenizer) -> tuple[Any, Any]:
    return (merge_table(tokenizer), boundary_table(tokenizer)) if joins_by_merges(tokenizer) else (None, None)


def _check(tokenizers: Mapping[str, Tokenizer], sides: dict[str, Side], texts: Sequence[str]) -> dict[str, Any]:
    """Check both sides; one that differs from its tokenizer goes through text, if that is closer to it.

    Returns:
        For each side its statistics: whether ids are joined (``lemma``), why they are not, and the check.
    """
    results: dict[str, Any] = {}
    for source, role in SIDES:
        tokenizer, reason = tokenizers[role], ""
        pair, spelled = (tokenizers[source], tokenizer), sides[source].spellings
        found = check_joins(role, *pair, sides[role].engine(tokenizer), spelled, texts)
        if sides[role].merges is None:
            reason = "; ".join(reasons_for_text(tokenizer))
        elif found.different:
            by_text = replace(sides[role], merges=None, boundaries=None)
            instead = check_joins(role, *pair, by_text.engine(tokenizer), spelled, texts)
            if instead.share < found.share:
                reason, sides[role], found = f"joined by merges, ids were {found}", by_text, instead
        results[role] = {"lemma": not reason, "reason": reason, "check": asdict(found)}
    return results


def _replay(both: Mapping[str, Tokenizer], sides: dict[str, Side], texts: Sequence[str]) -> dict[str, Any]:
    """Replay the sample in both directions, and put the risks into the sides; the report."""
    written = {role: list(Reference(tokenizer).read(texts)) for role, tokenizer in both.items()}
    report: dict[str, Any] = {"absorption": {}}
    for role, other in SIDES:
        documents = zip((text.encode() for text in texts), written[role], written[other], strict=True)
        engine = sides[other].engine(both[other])
        counts = replay_text(both[role], both[other], engine, sides[role].spellings, documents)
        report[f"{role}_to_{other}"] = counts.as_dict()
        sides[other] = replace(sides[other], risks=absorption_risks(counts.last, counts.replaced))
        report["absorption"][other] = {
            "last": int(counts.last.sum()),
            "replaced": int(counts.replaced.sum()),
            "tokens": int((counts.last > 0).sum()),
        }
    return report


def _unknown(tokenizer: Tokenizer) -> NDArray[np.float16]:
    return np.full(tokenizer.size, np.nan, np.float16)


def _require_short_tokens(tokenizer: Tokenizer) -> None:
    lengths = list(map(len, tokenizer.token_bytes))
    if lengths and (longest := max(lengths)) > LONGEST_TOKEN:
        raise TokenizerError(
            f"{tokenizer.name}: token {lengths.index(longest)} has {longest:,} bytes, expected at most "
            f"{LONGEST_TOKEN:,} in an alignment. Use a tokenizer without this token"
        )


def _prefix_index(draft: Tokenizer) -> NDArray[np.int32]:
    with_bytes = [token for token, raw in enumerate(draft.token_bytes) if raw]
    return np.array(sorted(with_bytes, key=lambda token: (draft.token_bytes[token], token)), np.int32)


def _side(tokenizer: Tokenizer) -> dict[str, Any]:
    return {"kind": tokenizer.kind, "roles": tokenizer.roles.as_dict(), "limits": list(limits(tokenizer))}


def _beginning(texts: Iterable[str], size: int) -> list[str]:
    """The first ``size`` characters of texts, all of which are read."""
    first: list[str] = []
    for text in texts:
        if size > 0:
            first.append(text[:size])
            size -= len(text)
    return first
