"""The longest known suffix of a token sequence, kept as the sequence grows.

    contexts  a b -> 0    b -> 1    b c d -> 2

    state of  ... a b   is the trie's node a b: entry 0
    then c:   ... b c   is its node b c, which is no context; nor is a suffix of it
    then d:   ... b c d: entry 2

The states are the nodes of a trie of all contexts, oldest token first; a state is the longest node
that the sequence ends with. Where no longer node begins with it and the next token, the search goes on at
its longest suffix that is a node. A state's children are numbered one after the other, sorted by token.

Source: Aho and Corasick 1975, "Efficient string matching: an aid to bibliographic search".
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int64]
START = 0  # the state of an empty sequence, and of one that no context goes on from
_REMEMBERED = 1 << 16  # steps: drafts come back to the same phrases


class Step(NamedTuple):
    """What is proposed in a state.

    Attributes:
        tokens: Token ids of the continuation.
        probability: Of the whole continuation.
        state: That after it.
    """

    tokens: tuple[int, ...]
    probability: float
    state: int


class ContextAutomaton:
    """States for the contexts of a dictionary; 16 bytes each.

    Attributes:
        step: State -> what the longest context that the sequence ends with proposes, or None if no suffix is one.
    """

    def __init__(self, contexts: Rows, continuation: Callable[[int], tuple[tuple[int, ...], float]]) -> None:
        """Build the states.

        Args:
            contexts: Token ids of each context, newest first, -1 beyond its end, ``[contexts, longest]``.
            continuation: Row of a context -> the token ids that it proposes, and their probability.
        """
        levels, edges, entry = _trie(contexts)
        base = _base(contexts)
        shorter = _suffixes(levels, edges, entry, base)
        first = np.searchsorted(edges, np.arange(len(edges) + 1) * base)
        # Single elements are read faster from memoryviews than from numpy arrays.
        self._entry = entry.astype(np.int32).data  # row of the longest context that it ends with, -1 for none
        self._token = (edges % base).astype(np.int32).data
        self._first = first.astype(np.int32).data  # child, by state
        self._shorter = shorter.astype(np.int32).data  # state of the longest suffix
        self._roots = {self._token[state]: state for state in range(1, self._first[1])}
        self._continuation = continuation
        self.step = lru_cache(_REMEMBERED)(self._step)

    def __len__(self) -> int:
        return len(self._token)

    def advance(self, state: int, token: int) -> int:
        """Return the state after one more token id."""
        first, tokens = self._first, self._token
        while state != START:
            end = first[state + 1]
            child = bisect_left(tokens, token, first[state], end)
            if child < end and tokens[child] == token:
                return child
            state = self._shorter[state]
        return self._roots.get(token, START)

    def _step(self, state: int) -> Step | None:
        row = self._entry[state]
        if row < 0:
            return None
        tokens, probability = self._continuation(row)
        for token in tokens:
            state = self.advance(state, token)
        return Step(tokens, probability, state)


def _base(contexts: Rows) -> int:
    """Return a number above all token ids: an edge is parent * base + token."""
    return int(contexts.max(initial=0)) + 1


def _trie(contexts: Rows) -> tuple[list[slice], Rows, Rows]:
    """Number the nodes of the trie, level by level, so that their edges are sorted.

    Returns:
        The states of each level but the start's, the edge into each state (-1 into the start), and the row of the
        context that each state spells, -1 where there is none.
    """
    lengths = np.count_nonzero(contexts >= 0, axis=1)
    base = _base(contexts)
    state = np.zeros(len(contexts), dtype=np.int64)
    levels: list[slice] = []
    edges, entries = [np.array([-1])], [np.array([-1])]
    size = 1
    for depth in range(contexts.shape[1]):
        rows = np.flatnonzero(lengths > depth)
        edge = state[rows] * base + contexts[rows, lengths[rows] - 1 - depth]
        found, place = np.unique(edge, return_inverse=True)
        state[rows] = size + place
        ends = lengths[rows] == depth + 1
        entry = np.full(len(found), -1)
        entry[place[ends]] = rows[ends]
        levels.append(slice(size, size + len(found)))
        edges.append(found)
        entries.append(entry)
        size += len(found)
    return levels, np.concatenate(edges), np.concatenate(entries)


def _suffixes(levels: list[slice], edges: Rows, entry: Rows, base: int) -> Rows:
    """Return the state of each state's longest suffix, and give those that spell no context that one's entry."""
    shorter = np.zeros(len(edges), dtype=np.int64)
    for level in levels[1:]:
        parent, token = np.divmod(edges[level], base)
        found = np.zeros(len(parent), dtype=np.int64)
        at, todo = shorter[parent], np.arange(len(parent))
        while len(todo):
            wanted = at * base + token[todo]
            place = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
            there = edges[place] == wanted
            found[todo[there]] = place[there]
            todo, at = todo[~there & (at > 0)], shorter[at[~there & (at > 0)]]
        shorter[level] = found
        entry[level] = np.where(entry[level] < 0, entry[found], entry[level])
    return shorter


NO_CONTEXTS = ContextAutomaton(np.empty((0, 0), dtype=np.int64), lambda row: ((), 0.0))
