"""The stage behind ``spectool align``: two tokenizers and a corpus in, alignment artifact out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import ArtifactError, TokenizerError
from spectool.artifacts.alignment import SIDES, Alignment, Side, alignment_arrays
from spectool.artifacts.manifest import Manifest
from spectool.build.alignment.check import check_joins, hard_texts
from spectool.build.alignment.intersection import intersect
from spectool.build.alignment.replayed_text import absorption_risks, replay_text, with_leading_space, written
from spectool.build.corpus_reading import Progress, describe_corpus, with_progress
from spectool.corpora import Corpus
from spectool.tokenization.incremental.by_ids import encoder_of
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.round_trips import limits
from spectool.tokenization.tokenizer import Tokenizer

SAMPLE = 200_000  # characters
SEED = 11  # of the texts that a check makes


def build_alignment(
    draft: Tokenizer, target: Tokenizer, corpus: Corpus, out: Path, progress: Progress, sample: int = SAMPLE
) -> Manifest:
    """Align two tokenizers, check that ids are joined as the tokenizers write them, and write the artifact to ``out``.

    A side that fails the check goes through text, unless text is further from the tokenizer. The manifest says why, and
    what the check of either side found in the end. Absorption and lost joins are counted on a ``sample``, the first
    characters of the corpus; without one, the risks are all unknown. All of the corpus is read, once, because the
    manifest describes it.

    Raises:
        TokenizerError: What was made of the two could not be opened, as with a token of more than 4,096 bytes.
    """
    both = {"draft": draft, "target": target}
    progress("reading")
    texts = with_leading_space(target, _beginning(with_progress(corpus), sample))
    progress("checking what joins ids")
    hard = with_leading_space(target, hard_texts(draft, target, SEED, texts))
    checks = {side: _check(side, both[other], both[side], hard) for side, other in SIDES}
    by_ids = {side: bool(found["by_ids"]) for side, found in checks.items()}
    progress("replaying a sample")
    report, risks = _replay(both, by_ids, texts)
    progress("writing")
    sides = {
        side: Side(intersect(both[side], both[other]), by_ids[side], both[side].token_bytes, risks[side])
        for side, other in SIDES
    }
    return Alignment.write(
        out,
        alignment_arrays(sides),
        arguments={"sample": sample, "seed": SEED},
        tokenizers={side: tokenizer.identity for side, tokenizer in both.items()},
        inputs=describe_corpus(corpus),
        statistics=checks | {"sample": {"texts": len(texts), "characters": sum(map(len, texts))}} | report,
        check=partial(_require_usable, draft=draft, target=target),
    )


def _require_usable(path: Path, draft: Tokenizer, target: Tokenizer) -> None:
    """Refuse an alignment that opening would refuse, before it is kept."""
    try:
        Alignment(path).require(draft, target)
    except ArtifactError as error:
        raise TokenizerError(
            f"{draft.name} and {target.name}: an alignment of these two could not be opened ({error}). Use another "
            "tokenizer, and report this pair"
        ) from error


def _check(side: str, source: Tokenizer, own: Tokenizer, texts: Sequence[str]) -> dict[str, Any]:
    """The statistics of one side: what it is, whether its ids are joined on ids, why they are not, and the check.

    A side that differs from its tokenizer on ids goes through text, if that is closer to it.
    """
    reason = "; ".join(reasons_for_text(own))
    by_ids = not reason
    found = check_joins(side, source, own, encoder_of(own, by_ids), texts)
    if by_ids and found.different:
        instead = check_joins(side, source, own, encoder_of(own, False), texts)
        if instead.share < found.share:
            reason, by_ids, found = f"joined on ids, they differ from the tokenizer's own at {found}", False, instead
    roles = asdict(own.roles) | {"eos": list(own.roles.eos)}
    facts = {"kind": own.kind, "roles": roles, "limits": list(limits(own))}
    return facts | {"by_ids": by_ids, "reason": reason, "check": asdict(found)}


def _replay(
    both: Mapping[str, Tokenizer], by_ids: Mapping[str, bool], texts: Sequence[str]
) -> tuple[dict[str, Any], dict[str, NDArray[np.float16]]]:
    """Replay the sample in both directions; the report, and the absorption risks of each side."""
    encoded = {side: list(written(tokenizer, texts)) for side, tokenizer in both.items()}
    report: dict[str, Any] = {}
    risks: dict[str, NDArray[np.float16]] = {}
    for side, other in SIDES:
        documents = zip((text.encode() for text in texts), encoded[side], encoded[other], strict=True)
        counts, last, replaced = replay_text(both[other], encoder_of(both[other], by_ids[other]), documents)
        report[f"{side}_to_{other}"] = dict(counts)
        risks[other] = absorption_risks(last, replaced)
    return report, risks


def _beginning(texts: Iterable[str], size: int) -> list[str]:
    """The first ``size`` characters of texts, all of which are read."""
    first: list[str] = []
    for text in texts:
        if size > 0:
            first.append(text[:size])
            size -= len(text)
    return first
