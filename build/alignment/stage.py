"""The stage behind ``spectool align``: two tokenizers and a corpus in, alignment artifact out."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.artifacts.alignment import SIDES, Alignment, JoinTables, Side, Spellings, engine_of, write_alignment
from spectool.artifacts.alignment_checks import LONGEST_TOKEN
from spectool.artifacts.atomic import atomic_directory
from spectool.artifacts.manifest import Manifest, seal
from spectool.build.alignment.check import check_joins, hard_texts
from spectool.build.alignment.intersection import Coverage, coverage, duplicate_token_bytes, intersect, occurrences
from spectool.build.alignment.replayed_text import Reference, Replayed, absorption_risks, replay_text
from spectool.build.alignment.translation_table import spellings
from spectool.build.corpus_reading import Progress, describe_corpus, encoded, quiet
from spectool.build.corpus_reading import Reader as CorpusReader
from spectool.corpora import Corpus, open_corpus
from spectool.corpora.document_sample import SEED, sample_documents
from spectool.tokenization.incremental.boundaries import boundary_table
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.incremental.ids_or_text import joins_by_merges, reasons_for_text
from spectool.tokenization.incremental.merge_table import merge_table
from spectool.tokenization.round_trips import limits
from spectool.tokenization.tokenizer import Tokenizer

SAMPLE = 200_000  # characters
COUNTED = 5_000_000  # characters
FREQUENT, RISKIEST = 10, 5  # occurrences of a token that is listed among the riskiest, and how many are
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
    counted: int = COUNTED,
) -> Manifest:
    """Align two tokenizers, check that ids are joined as the tokenizers write them, and write the artifact to ``out``.

    A side that fails the check goes through text, unless text is further from the tokenizer. The manifest says why, and
    what the check of either side found in the end. Absorption risks are counted on the sample; without one, they are
    all unknown.

    Args:
        draft: Tokenizer of the draft model.
        target: Tokenizer of the target model.
        corpus: Text on which is counted; read once.
        out: Directory of the artifact; replaced in one step when everything is written.
        progress: Called at the start of each step with a short description.
        reader: Iterates over the corpus.
        sample: Characters from the corpus's beginning on which merge sites and absorption are counted.
        measure: Adds figures to the report, such as those of `measure.ceiling`.
        counted: Characters, at most, on which occurrences are counted: all of a smaller corpus, and documents drawn
            from a larger one, each equally likely.

    Raises:
        TokenizerError: One of the two has a token of more bytes than an alignment takes.
    """
    both = {"draft": draft, "target": target}
    for tokenizer in both.values():
        _require_short_tokens(tokenizer)
    with atomic_directory(out) as directory:
        progress("counting occurrences")
        texts, drawn = sample_documents(reader(corpus), sample, counted)
        counts = {side: occurrences((ids for _, ids in encoded(own, drawn)), own.size) for side, own in both.items()}
        progress("deriving merges and splits")
        tables = {side: _tables(tokenizer) for side, tokenizer in both.items()}
        progress("spelling both vocabularies in each other's ids")
        shared = {side: intersect(both[side], both[other]) for side, other in SIDES}
        spelled = {side: spellings(both[side], both[other]) for side, other in SIDES}
        progress("checking what joins ids")
        hard, checks = hard_texts(draft, target, SEED, texts), {}
        for side, other in SIDES:
            tables[side], checks[side] = _check(side, both[other], both[side], tables[side], spelled[other], hard)
        progress("replaying a sample")
        report, risks = _replay(both, tables, spelled, texts)
        progress("writing")
        draft_side, target_side = (
            Side(
                counterpart=shared[side],
                spellings=spelled[side],
                tables=tables[side],
                token_bytes=tokenizer.token_bytes,
                risks=risks[side],
            )
            for side, tokenizer in both.items()
        )
        write_alignment(directory, draft_side, target_side, _prefix_index(draft))
        manifest = Alignment.seal(
            directory,
            arguments={"sample": sample, "counted": counted, "seed": SEED},
            tokenizers={side: tokenizer.identity for side, tokenizer in both.items()},
            inputs=describe_corpus(corpus),
            statistics={
                **{
                    side: _side(tokenizer, coverage(tokenizer, shared[side], counts[side])) | checks[side]
                    for side, tokenizer in both.items()
                },
                "counted": _extent(drawn),
                "sample": _extent(texts),
                **report,
            },
        )
        if measure is None:
            return manifest
        progress("finding the translation ceiling")
        found = measure(Alignment(directory), draft, target, texts)
        return seal(directory, replace(manifest, statistics={**manifest.statistics, **found}))


@contextmanager
def temporary_alignment(draft: Tokenizer, target: Tokenizer, progress: Progress = quiet) -> Iterator[Alignment]:
    """An alignment of two tokenizers that exists until the block ends; nothing is counted on text."""
    with tempfile.TemporaryDirectory(prefix="spectool-") as scratch:
        progress("aligning the two tokenizers; `spectool align` keeps the result for later runs")
        path = Path(scratch) / "pair.align"
        build_alignment(draft, target, open_corpus("sample:pl"), path, quiet, sample=0)
        yield Alignment(path)


def _tables(tokenizer: Tokenizer) -> JoinTables | None:
    return JoinTables(merge_table(tokenizer), boundary_table(tokenizer)) if joins_by_merges(tokenizer) else None


def _check(
    side: str, source: Tokenizer, own: Tokenizer, tables: JoinTables | None, spelled: Spellings, texts: Sequence[str]
) -> tuple[JoinTables | None, dict[str, Any]]:
    """Check one side; one that differs from its tokenizer goes through text, if that is closer to it.

    Returns:
        The tables by which its ids are joined, None for text; and its statistics: whether they are, why they are not,
        and the check.
    """
    reason = "; ".join(reasons_for_text(own))
    found = check_joins(side, source, own, engine_of(own, tables), spelled, texts)
    if tables is not None and found.different:
        instead = check_joins(side, source, own, TailReencoder(own), spelled, texts)
        if instead.share < found.share:
            reason, tables, found = f"joined by merges, ids were {found}", None, instead
    return tables, {"lemma": tables is not None, "reason": reason, "check": asdict(found)}


def _replay(
    both: Mapping[str, Tokenizer],
    tables: Mapping[str, JoinTables | None],
    spelled: Mapping[str, Spellings],
    texts: Sequence[str],
) -> tuple[dict[str, Any], dict[str, NDArray[np.float16]]]:
    """Replay the sample in both directions; the report, and the absorption risks of each side."""
    written = {side: list(Reference(tokenizer).read(texts)) for side, tokenizer in both.items()}
    report: dict[str, Any] = {"absorption": {}}
    risks: dict[str, NDArray[np.float16]] = {}
    for side, other in SIDES:
        documents = zip((text.encode() for text in texts), written[side], written[other], strict=True)
        counts = replay_text(both[side], both[other], engine_of(both[other], tables[other]), spelled[side], documents)
        report[f"{side}_to_{other}"] = counts.as_dict()
        risks[other] = absorption_risks(counts.last, counts.replaced)
        report["absorption"][other] = _absorption(both[other], counts, risks[other])
    return report, risks


def _absorption(tokenizer: Tokenizer, counts: Replayed, risks: NDArray[np.float16]) -> dict[str, Any]:
    """The absorption of one side, and its riskiest frequent tokens."""
    frequent = np.flatnonzero(counts.last >= FREQUENT)
    riskiest = sorted(frequent.tolist(), key=lambda token: (-float(risks[token]), token))[:RISKIEST]
    return {
        "last": int(counts.last.sum()),
        "replaced": int(counts.replaced.sum()),
        "tokens": int((counts.last > 0).sum()),
        "riskiest": [
            {
                "id": token,
                "text": tokenizer.token_bytes[token].decode("utf-8", "backslashreplace"),
                "last": int(counts.last[token]),
                "replaced": int(counts.replaced[token]),
                "risk": round(float(risks[token]), 3),
            }
            for token in riskiest
            if counts.replaced[token]
        ],
    }


def _require_short_tokens(tokenizer: Tokenizer) -> None:
    lengths = list(map(len, tokenizer.token_bytes))
    if lengths and (longest := max(lengths)) > LONGEST_TOKEN:
        raise TokenizerError(
            f"{tokenizer.name}: token {lengths.index(longest)} has {longest:,} bytes, expected at most "
            f"{LONGEST_TOKEN:,} in an alignment. Use a tokenizer without this token"
        )


def _extent(texts: Sequence[str]) -> dict[str, int]:
    return {"texts": len(texts), "characters": sum(map(len, texts))}


def _prefix_index(draft: Tokenizer) -> NDArray[np.int32]:
    with_bytes = [token for token, raw in enumerate(draft.token_bytes) if raw]
    return np.array(sorted(with_bytes, key=lambda token: (draft.token_bytes[token], token)), np.int32)


def _side(tokenizer: Tokenizer, covered: Coverage) -> dict[str, Any]:
    return {
        "kind": tokenizer.kind,
        "roles": tokenizer.roles.as_dict(),
        "limits": list(limits(tokenizer)),
        "duplicate_token_bytes": duplicate_token_bytes(tokenizer),
        "coverage": {
            **asdict(covered),
            "by_vocabulary": round(covered.by_vocabulary, 6),
            "by_occurrence": round(covered.by_occurrence, 6),
        },
    }
