"""Many generations of one draft model in lockstep: their passes become rows of one pass.

A pass over 64 rows costs two to three times what a pass over one costs, where weights are read from memory. Each
generation is a greenlet with its own `ModelSource`, which sees an ordinary model with an ordinary cache. What it asks
for waits until all others wait as well.

    generation i  ->  Row i  ->  wait for all  ->  one pass over all rows  ->  logits of row i

Caches of all rows stand in one array for each layer. A row's place in its text is the offset of its own cache, so
taking a row back is setting a number. What stands behind it is masked, and written over later.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from greenlet import getcurrent, greenlet
from mlx_lm.models.cache import KVCache

from spectool.tokenization import Tokenizer

_MOST_LOGITS = 1 << 27  # of one pass; 0.5 GB
_ROOM = 160  # draft tokens of a row beside its text


def row_length(texts: Iterable[Iterable[int]], draft: Tokenizer, target: Tokenizer) -> int:
    """Return how many draft tokens a row needs for the longest of ``texts``, target ids, and for proposals."""
    read = [target.bytes_of(ids).decode(errors="ignore") for ids in texts]
    return max(map(len, draft.encode_batch(read))) + _ROOM


class _Asked(NamedTuple):
    """What a generation waits for: ``tokens`` at ``offset`` of its row."""

    row: int
    tokens: list[int]
    offset: int


class _Layer:
    """Keys and values of all rows, float [rows, heads, length, size], as mlx-lm's models take a cache."""

    def __init__(self, rows: int, length: int) -> None:
        self.shape = rows, length
        self.both: list[mx.array] | None = None

    def take(self, rows: mx.array, offset: mx.array) -> None:
        """Take rows for the next pass, int32 [taken], each at its offset, int32 [taken]."""
        self.rows, self.offset = rows, offset

    def make_mask(self, tokens: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """Return what each token sees, bool [taken, 1, tokens, length]."""
        queries = (self.offset[:, None] + mx.arange(tokens))[:, None, :, None]
        keys = mx.arange(self.shape[1])
        mask = keys <= queries
        return mask if window_size is None else mask & (queries < keys + window_size)

    def update_and_fetch(self, *new: mx.array) -> tuple[mx.array, ...]:
        """Write the new keys and values, and return all of the rows that were taken."""
        if self.both is None:
            rows, length = self.shape
            self.both = [mx.zeros((rows, part.shape[1], length, part.shape[3]), part.dtype) for part in new]
        places = self.offset[:, None] + mx.arange(new[0].shape[2])
        for part, values in zip(self.both, new, strict=True):
            part[self.rows[:, None], :, places] = values.transpose(0, 2, 1, 3)
        every = len(self.rows) == self.shape[0]
        return tuple(part if every else part[self.rows] for part in self.both)


class Row:
    """One generation's view of the model, in the place of an mlx-lm model."""

    def __init__(self, rows: "Lockstep", index: int) -> None:
        self.rows, self.index = rows, index

    def make_cache(self) -> list[KVCache]:
        """Return one cache, which holds nothing but a length."""
        return [KVCache()]

    def __call__(self, tokens: mx.array, cache: list[KVCache] | None = None) -> mx.array:
        """Return logits [1, tokens, vocabulary] of ``tokens`` [1, tokens]; without a cache only their shape counts."""
        if cache is None:
            return mx.zeros((1, 1, self.rows.vocabulary))
        logits = self.rows.hub.switch(_Asked(self.index, tokens[0].tolist(), cache[0].offset))
        length = mx.zeros((1, 1, tokens.shape[1], 1))
        cache[0].update_and_fetch(length, length)
        return logits


class Lockstep:
    """Runs jobs, ``rows`` of them at a time.

    Attributes:
        passes: Passes over many rows so far.
    """

    def __init__(self, model: Any, rows: int, length: int) -> None:
        """Make room for ``rows`` texts of ``length`` tokens."""
        self.model, self.length, self.passes = model, length, 0
        self.vocabulary = int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])
        self.layers = [_Layer(rows, length) for _ in model.layers]
        self.views = [Row(self, index) for index in range(rows)]

    def run(self, jobs: Iterable[Callable[[Row], None]]) -> None:
        """Run every job with a row of its own."""
        self.hub, waiting = getcurrent(), iter(jobs)
        asked: dict[int, tuple[greenlet, _Asked]] = {}

        def go_on(row: int, worker: greenlet | None, *answer: Any) -> None:
            """Let a row's job go on until it asks; when it is done, begin the next one in that row."""
            while True:
                if worker is None:
                    job = next(waiting, None)
                    if job is None:
                        return
                    worker, answer = greenlet(job), (self.views[row],)
                question = worker.switch(*answer)
                if not worker.dead:
                    asked[row] = worker, question
                    return
                worker = None

        for row in range(len(self.views)):
            go_on(row, None)
        while asked:
            group = self._next_group([question for _, question in asked.values()])
            logits = self._pass(group)
            for place, question in enumerate(group):
                worker, _ = asked.pop(question.row)
                go_on(question.row, worker, logits[place : place + 1, : len(question.tokens)])

    def _next_group(self, asked: list[_Asked]) -> list[_Asked]:
        """Return rows that make one pass: the longest, those at least half as long, all if none is long."""
        asked = sorted(asked, key=lambda question: -len(question.tokens))
        longest = len(asked[0].tokens)
        rows = max(1, _MOST_LOGITS // (longest * self.vocabulary))
        # What is padded to the longest must fit, too; the longest itself fits, or `_pass` says so.
        fitting = [question for question in asked[1:] if question.offset + longest <= self.length]
        alike = [question for question in fitting if len(question.tokens) * 2 >= longest or longest <= 3]
        group = [asked[0], *alike][:rows]
        return sorted(group, key=lambda question: question.row)

    def _pass(self, asked: list[_Asked]) -> mx.array:
        """Return logits of all, [asked, longest, vocabulary]; what is shorter is padded."""
        longest = max(len(question.tokens) for question in asked)
        asked_end = max(question.offset for question in asked) + longest
        if asked_end > self.length:
            raise ValueError(f"a row needs {asked_end} tokens, room is for {self.length}")
        tokens = np.zeros((len(asked), longest), dtype=np.int32)
        for place, question in enumerate(asked):
            tokens[place, : len(question.tokens)] = question.tokens
        rows = mx.array([question.row for question in asked])
        offset = mx.array([question.offset for question in asked])
        for layer in self.layers:
            layer.take(rows, offset)
        logits: mx.array = self.model(mx.array(tokens), cache=self.layers)
        mx.eval(logits, [layer.both for layer in self.layers])
        self.passes += 1
        return logits
