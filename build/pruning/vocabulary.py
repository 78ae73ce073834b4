"""Which ids of a tokenizer a text needs, and the tokenizer that has only these."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectool import TokenizerError
from spectool.tokenization.tokenizer import Tokenizer

COVERAGE = 0.999  # share of the tokens of every corpus that is kept, unless a number of ids is asked for
PACK_COVERAGE = 1.0  # of the tokens of a pack, which has left out what is rare
_MULTIPLE = 64  # rows: kernels for quantised matrices are slower on other numbers
_KINDS = ("byte-level BPE", "SentencePiece BPE", "BPE", "Unigram")
_NAMES_IDS = re.compile(r".*(token_ids?|token_index|suppress_tokens|bad_words_ids)|ids|pad_id|unk_id|sep|cls")
"""Keys of a configuration or a post-processor whose values are token ids."""
_PLACEHOLDER = re.compile(
    r"[<\[]\|?(unused|reserved(_special_token)?|placeholder|control|special|extra)_?\d+\|?[>\]]", re.IGNORECASE
)


def require_prunable(tokenizer: Tokenizer) -> None:
    """Raise a TokenizerError for a tokenizer of a kind that cannot be pruned."""
    if tokenizer.kind not in _KINDS:
        raise TokenizerError(
            f"{tokenizer.name}: expected a tokenizer of one of the kinds {', '.join(_KINDS)}, got {tokenizer.kind}. "
            "Use the original draft model"
        )


def placeholders(tokenizer: Tokenizer) -> dict[int, str]:
    """The added tokens that are numbered for later use, such as ``<unused7>``, of which Gemma 3 has 6,242, by id."""
    added = {token["id"]: token["content"] for token in tokenizer.spec["added_tokens"]}
    return {index: name for index, name in added.items() if _PLACEHOLDER.fullmatch(name)}


def needed_ids(tokenizer: Tokenizer, characters: Iterable[str], others: Iterable[int] = ()) -> set[int]:
    """The ids that are always kept: bytes, single characters, added tokens but for `placeholders`, and ``others``.

    Where bytes stand in for unknown characters, only the ``characters`` of the text are kept as tokens of their own;
    elsewhere all single characters are, because the tokenizer could not spell them otherwise.
    """
    added = {token["id"] for token in tokenizer.spec["added_tokens"]} - placeholders(tokenizer).keys()
    roles = {index for index in (tokenizer.unknown, *tokenizer.roles.eos) if index is not None}
    single = {name for name in tokenizer.vocabulary if len(name) == 1}
    if len(tokenizer.byte_tokens) == 256:
        single &= {*characters, tokenizer.space_sign}
    return added | roles | tokenizer.byte_tokens | {tokenizer.vocabulary[name] for name in single} | set(others)


def choose_ids(
    tokenizer: Tokenizer,
    counts: Sequence[NDArray[np.int64]],
    needed: Iterable[int],
    ids: int | None = None,
    coverage: Sequence[float] | None = None,
) -> frozenset[int]:
    """Choose the most frequent tokens, with the tokens that their merges are made of, and those that are ``needed``.

    Every corpus has the same weight; ``counts`` are the occurrences by id in each, ``[size]``. At most ``ids`` are
    kept, by default as many as cover the share ``coverage`` of each corpus, which is `COVERAGE` by default. That number
    is rounded up to a multiple of 64.

    Raises:
        TokenizerError: There are more than ``ids`` ids that are always kept.
    """
    kept = set(needed)
    if ids is not None and ids < len(kept):
        raise TokenizerError(
            f"{tokenizer.name}: expected --ids of at least {len(kept):,}, because added tokens, bytes and single "
            f"characters are always kept, got {ids:,}"
        )
    parts, size = _parts(tokenizer), ids
    totals, goals = np.array([count.sum() for count in counts]), np.array(coverage or [COVERAGE] * len(counts))
    shares = np.sum([count / total for count, total in zip(counts, totals, strict=True)], axis=0)
    seen = np.array([count[list(kept)].sum() for count in counts])
    for token in np.argsort(-shares, kind="stable")[: np.count_nonzero(shares)].tolist():
        if size is None and (seen / totals >= goals).all():
            size = -(-len(kept) // _MULTIPLE) * _MULTIPLE
        new = {token, *parts(token)} - kept
        if size is None or len(kept) + len(new) <= size:
            kept |= new
            seen += [count[list(new)].sum() for count in counts]
    return frozenset(kept)


def _parts(tokenizer: Tokenizer) -> Callable[[int], Iterable[int]]:
    """A function that gives the tokens that BPE makes on its way to a token; Unigram makes none."""
    if tokenizer.kind == "Unigram":
        return lambda token: ()
    vocabulary: dict[str, int] = tokenizer.model["vocab"]
    names = {index: name for name, index in vocabulary.items()}
    ranks: dict[tuple[str, str], int] = {}
    for rank, merge in enumerate(tokenizer.model["merges"]):
        first, second = merge if isinstance(merge, list) else merge.split(" ", 1)
        ranks[first, second] = rank  # of a merge listed twice, the later rank counts

    def parts(token: int) -> set[int]:
        pieces = [char if char in vocabulary else "" for char in names.get(token, "")]
        made = set(pieces)
        while found := [(ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks]:
            _, at = min(found)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            made.add(pieces[at])
        return {vocabulary[piece] for piece in made if piece}

    return parts


def renumber(node: Any, new: Callable[[int], int | None], key: str = "") -> Any:
    """A configuration or post-processor with ``new`` applied to every token id in it.

    An id that ``new`` maps to None becomes None, or is left out of a list. Negative numbers are not ids.
    """
    if isinstance(node, dict):
        return {name: renumber(value, new, name) for name, value in node.items()}
    if isinstance(node, list):
        found = [renumber(value, new, key) for value in node]
        return [value for value, old in zip(found, node, strict=True) if value is not None or old is None]
    if type(node) is int and node >= 0 and _NAMES_IDS.fullmatch(key):
        return new(node)
    return node


def pruned_spec(spec: dict[str, Any], kept: Iterable[int]) -> tuple[dict[str, Any], dict[int, int]]:
    """A ``tokenizer.json`` with only the ``kept`` ids, and the new id of each old one.

    Ids keep their order. A merge is kept if both its parts and its result are, so a text whose tokens are all kept is
    encoded as before. The backend writes ``spec``, so all its options are there.
    """
    model, kept = dict(spec["model"]), set(kept)
    unigram = model["type"] == "Unigram"
    pieces = dict(enumerate(model["vocab"])) if unigram else {id_: name for name, id_ in model["vocab"].items()}
    # The library numbers added tokens that the model lacks after those of the model.
    order = [*sorted(kept & pieces.keys()), *sorted(kept - pieces.keys())]
    new = {old: place for place, old in enumerate(order)}
    if unigram:
        model["vocab"] = [pieces[old] for old in order if old in pieces]
        model["unk_id"] = new.get(model["unk_id"])
    else:
        model["vocab"] = vocabulary = {pieces[old]: place for old, place in new.items() if old in pieces}
        model["merges"] = [
            [first, second]
            for first, second in model["merges"]
            if first in vocabulary and second in vocabulary and first + second in vocabulary
        ]
    added = [{**token, "id": new[token["id"]]} for token in spec["added_tokens"] if token["id"] in new]
    around = {name: renumber(spec[name], new.get) for name in ("post_processor", "padding")}
    return {**spec, **around, "model": model, "added_tokens": sorted(added, key=lambda token: token["id"])}, new
