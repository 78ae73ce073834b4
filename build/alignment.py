"""The stage behind ``spectool align``: two tokenizers and a corpus in, alignment artifact out."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.alignment import FORMAT, VERSION, write_alignment
from spectool.artifacts.manifest import Manifest, seal
from spectool.artifacts.replacing import writing
from spectool.artifacts.round_trips import limits
from spectool.artifacts.tokenizer import Tokenizer
from spectool.build.inputs import Progress, Reader, describe_corpus
from spectool.build.intersection import Coverage, coverage, duplicate_surfaces, intersect, occurrences
from spectool.corpora import Corpus, Document

_BATCH = 1024  # documents encoded at once


def build_alignment(
    draft: Tokenizer,
    target: Tokenizer,
    corpus: Corpus,
    out: Path,
    progress: Progress,
    reader: Reader = iter,
) -> Manifest:
    """Align two tokenizers and write the artifact to ``out``.

    Args:
        draft: Tokenizer of the draft model.
        target: Tokenizer of the target model.
        corpus: Text on which occurrences are counted; read once.
        out: Directory of the artifact; replaced in one step when everything is written.
        progress: Called with a phrase when a step begins.
        reader: Iterates over the corpus.
    """
    with writing(out) as directory:
        progress("reading both vocabularies")
        draft_to_target = intersect(draft, target)
        target_to_draft = intersect(target, draft)
        progress("counting occurrences")
        draft_counts, target_counts = _count(draft, target, reader(corpus))
        progress("writing")
        write_alignment(directory, draft_to_target, target_to_draft)
        statistics = {
            "draft": _side(draft, coverage(draft, draft_to_target, draft_counts)),
            "target": _side(target, coverage(target, target_to_draft, target_counts)),
        }
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            arguments={},
            tokenizers={"draft": draft.identity, "target": target.identity},
            inputs=describe_corpus(corpus),
            statistics=statistics,
        )
        return seal(directory, manifest)


def _side(tokenizer: Tokenizer, covered: Coverage) -> dict[str, Any]:
    return {
        "kind": tokenizer.kind,
        "roles": tokenizer.roles.as_dict(),
        "limits": list(limits(tokenizer)),
        "duplicate_surfaces": duplicate_surfaces(tokenizer),
        "coverage": {
            **asdict(covered),
            "by_vocabulary": round(covered.by_vocabulary, 6),
            "by_occurrence": round(covered.by_occurrence, 6),
        },
    }


def _count(
    draft: Tokenizer, target: Tokenizer, documents: Iterable[Document]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    draft_counts, target_counts = np.zeros(draft.size, np.int64), np.zeros(target.size, np.int64)
    texts = (document.text for document in documents)
    while batch := list(islice(texts, _BATCH)):
        draft_counts += occurrences(draft.encode_batch(batch), draft.size)
        target_counts += occurrences(target.encode_batch(batch), target.size)
    return draft_counts, target_counts
