"""Drafts from the request's own history: what followed the last time these tokens were seen.

    history   a b c d e f a b c        longest suffix seen before: a b c (at 0)
                    ^                  proposal: d e f a b c ...

A copy that reaches the end of the history goes on with what it has just copied, so that a
text with a short period is proposed at full length.

Source: prompt lookup decoding (Saxena, 2023); overlapping copies as in LZ77.
"""

from collections.abc import Sequence

from spectool.runtime.drafter import Proposal


class PromptLookupDrafter:
    """Proposes the continuation of the most recent earlier occurrence of the longest suffix.

    Exact: keys are the token n-grams themselves, not their hashes. One dictionary entry for
    each position and n-gram length; a few microseconds for each committed token.
    """

    name = "history"

    def __init__(self, max_ngram: int = 4, min_ngram: int = 2) -> None:
        """Look for suffixes of ``max_ngram`` down to ``min_ngram`` (>= 1) tokens.

        Raises:
            ValueError: The lengths are not 1 <= min_ngram <= max_ngram.
        """
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(f"n-gram lengths: expected 1 <= min_ngram <= max_ngram, got {min_ngram} and {max_ngram}.")
        self._lengths = range(max_ngram, min_ngram - 1, -1)
        self._history: list[int] = []
        # n-gram -> position of the token that followed its latest occurrence
        self._followers: dict[tuple[int, ...], int] = {}

    def start(self, prompt: Sequence[int]) -> None:
        """Forget everything and index ``prompt`` (token ids)."""
        self._history = []
        self._followers = {}
        self.commit(prompt)

    def propose(self, limit: int) -> Proposal:
        """Return at most ``limit`` tokens that followed the longest suffix seen before."""
        history = self._history
        for length in self._lengths:
            if length > len(history):
                continue
            follower = self._followers.get(tuple(history[-length:]))
            if follower is not None:
                period = len(history) - follower
                copied = (history[follower + i % period] for i in range(limit))
                return Proposal(tuple(copied), self.name)
        return Proposal((), self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append ``tokens`` (ids) to the history and index the n-grams that they follow."""
        history, followers = self._history, self._followers
        for token in tokens:
            position = len(history)
            # Indexed only once something follows: a suffix never finds itself.
            for length in self._lengths:
                if length <= position:
                    followers[tuple(history[-length:])] = position
            history.append(int(token))
