"""The dictionary format: context tokens -> next token, by longest known suffix.

    alphabet      uint32[ranks]     token id of each rank, most frequent first
    nodes         numbers[nodes]    twice the number of a node's children, and one more if a context ends there
    ranks         numbers[nodes-1]  rank of each node's token but the root's, as gaps among siblings
    next_token    numbers[entries]  rank of the token that is proposed after each context
    probability   uint8[entries]    (value + 1) / 256

Contexts are the paths of a tree, newest token first, so that one walk along the reversed history meets every known
suffix, the longest last. Nodes are listed level by level, siblings in the order of their ranks, so the children of a
node follow those of the node before. Entries are in the order of the nodes where their contexts end. Numbers are those
of `numbers`, compressed by zlib. Opening checks that the nodes are one tree, and that no index leads outside an array,
because a dictionary may come from anyone, with a matching checksum.
"""

import zlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spectool.artifacts.artifact import Artifact
from spectool.artifacts.numbers import from_gaps, gaps_of, to_digits

State: TypeAlias = tuple[int, ...]
"""The ranks of the newest tokens of a sequence, newest first, as many as the longest context has."""
START: State = ()
"""The state of an empty sequence."""
PROBABILITY_STEP = 1 / 256  # closer probabilities are stored as the same
MIN_PROBABILITY = 0.2
"""Default threshold for the probability of a whole proposal, with vLLM."""
_LONGEST = 64  # tokens of a context
_MOST_NODES = 2  # for each byte of the file; text makes about a third
_NOWHERE = -1  # rank of tokens that are in no context or entry, and entry of a node where no context ends


class Match(NamedTuple):
    """What a look-up found."""

    token: int  # id to propose
    probability: float  # of this token in the corpus, in steps of 1/256
    length: int  # number of context tokens that matched


class Dictionary(Artifact):
    """An open dictionary, read-only; takes about four times the memory of its file.

    Attributes:
        alphabet: Ids of all tokens in it; uint32, most frequent first.
        max_context: Length of the longest context in tokens; a look-up needs no more history.
    """

    format, version, roles = "spectool-dictionary", 7, ("target",)
    again = "Build the dictionary again: spectool build-dict"
    unpacker = staticmethod(zlib.decompressobj)

    def __init__(self, path: Path) -> None:
        """Open the dictionary at ``path`` and check everything that look-ups rely on."""
        super().__init__(path)
        nodes: int = self.manifest.statistics.get("nodes", 0)
        self.max_context: int = self.manifest.statistics.get("max_context", 0)
        fits = type(self.max_context) is int and 1 <= self.max_context <= _LONGEST
        self._expect(fits, f"max_context is {self.max_context!r}, expected 1 to {_LONGEST} tokens")
        most = _MOST_NODES * len(self.file.data)
        self._expect(type(nodes) is int and 1 <= nodes <= most, f"{nodes!r} nodes, expected 1 to {most:,}")
        self.alphabet = self._array("alphabet", "uint32")
        self._check_below("alphabet", self.alphabet, self.tokenizer["size"], "token ids outside the vocabulary")
        tokens = self.alphabet.tolist()
        self._rank = {token: rank for rank, token in enumerate(tokens)}.get
        self._expect(len(np.unique(self.alphabet)) == len(tokens), "token ids repeat", "alphabet")
        children, ends = np.divmod(self._numbers("nodes", nodes), 2)
        first = np.concatenate([[0], np.cumsum(children)])  # place of each node's first child among all but the root
        self._check_tree(first, nodes)
        ranks = from_gaps(self._numbers("ranks", nodes - 1), children)
        self._check_below("ranks", ranks, len(tokens), "numbers outside the alphabet")
        probability = self._array("probability", "uint8")
        self._expect(int(ends.sum()) == len(probability), f"{len(probability):,} for {ends.sum():,}", "probability")
        following = self._numbers("next_token", len(probability))
        self._check_below("next_token", following, len(tokens), "numbers outside the alphabet")
        # Single elements are read faster from memoryviews than from numpy arrays.
        self._first, self._ranks = first.astype(np.uint32).data, ranks.astype(np.uint32).data
        self._entry = np.where(ends, np.cumsum(ends) - 1, _NOWHERE).astype(np.int32).data  # by node
        self._next_token, self._probability = self.alphabet[following].data, probability.data
        # The root's child of each rank, found at once; 0, the root itself, for none, and last for `_NOWHERE`.
        newest = np.zeros(len(tokens) + 1, np.uint32)
        newest[ranks[: children[0]]] = np.arange(1, children[0] + 1)
        self._newest = newest.data

    def _check_below(self, array: str, numbers: NDArray[Any], above: int, problem: str) -> None:
        self._expect(not len(numbers) or int(numbers.max()) < above, problem, array)

    def _check_tree(self, first: NDArray[np.int64], nodes: int) -> None:
        """Check that each level's children are the next level, and that no level is deeper than the longest context."""
        depth, end = 0, 1
        while end < nodes and depth < self.max_context and first[end] >= end:
            depth, end = depth + 1, int(first[end]) + 1
        self._expect(end == nodes and first[-1] == nodes - 1, "not a tree of contexts", "nodes")

    def __len__(self) -> int:
        return len(self._next_token)

    @property
    def tokenizer(self) -> Mapping[str, Any]:
        """The manifest's entry of the tokenizer that it was built for."""
        return self.manifest.tokenizers["target"]

    def advance(self, state: State, token: int) -> State:
        """The state after one more token id."""
        return (self._rank(token, _NOWHERE), *state[: self.max_context - 1])

    def state_after(self, tokens: Sequence[int]) -> State:
        """The state of a sequence of token ids, oldest first."""
        return tuple(self._rank(token, _NOWHERE) for token in tokens[: -self.max_context - 1 : -1])

    def look_up(self, state: State) -> Match | None:
        """What follows the longest context that a sequence with this state ends with; None if none is known."""
        first, ranks, entries = self._first, self._ranks, self._entry
        node = self._newest[state[0]] if state else 0
        if not node:
            return None
        found, length = entries[node], 1
        for depth, rank in enumerate(state[1:], 2):
            end = first[node + 1]
            place = bisect_left(ranks, rank, first[node], end)
            if place == end or ranks[place] != rank:
                break
            node = place + 1
            if (entry := entries[node]) != _NOWHERE:
                found, length = entry, depth
        if found == _NOWHERE:
            return None
        return Match(self._next_token[found], (self._probability[found] + 1) * PROBABILITY_STEP, length)


def dictionary_arrays(
    contexts: NDArray[np.integer[Any]], following: NDArray[np.integer[Any]], probability: NDArray[np.floating[Any]]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a dictionary, and what its manifest's statistics say of them.

    Args:
        contexts: Different contexts, token ids from the newest on, and -1 where they end; ``[entries, longest]``.
        following: The token id to propose after each, ``[entries]``.
        probability: Of that token, 0..1, ``[entries]``.
    """
    known = contexts >= 0
    lengths, longest = known.sum(1), contexts.shape[1]
    tokens = np.concatenate([contexts[known], following])
    ids, number, uses = np.unique(tokens, return_inverse=True, return_counts=True)
    by_use = np.argsort(-uses, kind="stable")
    rank = np.argsort(by_use)[number]
    contexts = np.full((len(lengths), longest + 1), -1)  # of ranks, a column more than there are; -1 comes first
    contexts[:, :-1][known] = rank[: lengths.sum()]
    order = np.lexsort(contexts.T[::-1])
    contexts, lengths, following = contexts[order], lengths[order], rank[lengths.sum() :][order]
    steps = np.clip(np.rint(probability[order] / PROBABILITY_STEP) - 1, 0, 255)
    differs = np.diff(contexts, axis=0, prepend=-2) != 0  # a row's first column that differs begins a node, and so on
    begins = np.logical_or.accumulate(differs, axis=1) & (contexts >= 0)
    nodes, gaps = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
    node = np.zeros(len(lengths), np.int64)  # of each row in the level above
    ends_above = np.zeros(1, np.int64)  # whether a context ends at each node there
    for depth in range(longest + 1):
        new = begins[:, depth]
        parent, ranks = node[new], contexts[new, depth]
        nodes.append(2 * np.bincount(parent, minlength=len(ends_above)) + ends_above)
        gaps.append(gaps_of(ranks, parent))
        node, ends_above = np.cumsum(new) - 1, (lengths[new] == depth + 1).astype(np.int64)
    by_level = np.argsort(lengths, kind="stable")
    numbers = {"nodes": np.concatenate(nodes), "ranks": np.concatenate(gaps), "next_token": following[by_level]}
    arrays = {
        "alphabet": ids[by_use].astype(np.uint32),
        **{name: np.frombuffer(zlib.compress(to_digits(each)), np.uint8) for name, each in numbers.items()},
        "probability": steps[by_level].astype(np.uint8),
    }
    sizes = {"entries": len(lengths), "nodes": len(numbers["nodes"]), "symbols": len(ids)}
    return arrays, sizes | {"max_context": int(lengths.max(initial=0))}
