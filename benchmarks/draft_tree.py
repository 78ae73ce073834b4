"""A tree of draft tokens beside a chain, with as many tokens verified in a pass.

    python benchmarks/draft_tree.py                # bielik-11b-v2.5, Ukrainian and Polish

Windows of up to 6 tokens are counted and smoothed. After any context, the three most probable next tokens are known
with their probabilities, for chain and tree alike. They are those of the longest known context, then of shorter ones.
Nothing is pruned: a dictionary that keeps three tokens a context takes up more bytes than one that keeps one.

Chain: the most probable token again and again, B of them. Tree: B nodes, each the most probable of those that could be
added, by the product of probabilities from the root. The longest path from the root that the text follows is accepted.
Both verify B tokens in every pass. "With a floor": a proposal ends before the product falls below a floor. It is chosen
so that B tokens are verified in the average pass: more where the next tokens are sure, at most 4 B. Gain: tokens per
pass less one, as a multiple of the gain of the plain chain.

In an engine, a tree takes two things that a chain does not. They are an attention mask in which a node sees its own
ancestors only, and positions by depth in the tree. The model classes of mlx-lm take neither as an argument. The mask is
made by the cache. Rotary positions are one offset and as many consecutive numbers as there are tokens.

Prints a Markdown table and saves ``benchmarks/results/draft_tree.jsonl``. Tokenizers and corpora come
from the folder named by SPECTOOL_SHARED.
"""

import heapq
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from real_data import encoded, real_corpus, real_tokenizer

from spectool.artifacts.counts import Counts
from spectool.build.counting.options import CountOptions
from spectool.build.counting.stage import count
from spectool.build.dictionary.smoothing import Followers, Windows, open_windows, smooth
from spectool.corpora import Corpus, Document
from spectool.tokenization.tokenizer import Tokenizer

RESULTS = Path(__file__).parent / "results" / "draft_tree.jsonl"
_ORDERS = 6
_DISCOUNT = 0.9
_BRANCHES = 3
_NODES = (2, 4, 8, 16)
_MOST = 4  # times the nodes of the average pass, with a floor
_HALVINGS = 8  # of the range of floors, 1 to 1e-9
_REMEMBERED = 1 << 18  # contexts; all proposals of a replay come back to the same ones

Ids = tuple[int, ...]
Paths = dict[Ids, float]  # from the root, with their probabilities
Proposer = Callable[["NextTokens", Ids, int, float], Paths]


class NextTokens:
    """The three most probable tokens after any context."""

    def __init__(self, counts: Counts) -> None:
        """Smooth counts and keep the best followers of every context."""
        windows = open_windows(counts)
        followers = smooth(windows, _DISCOUNT)
        self._base = counts.symbols + 1
        self._keys = [window.keys for window in windows]
        self._left_over = [each.left_over for each in followers]
        self._best = [_best(*each) for each in zip(windows, followers, strict=True)]
        self.after = lru_cache(_REMEMBERED)(self._after)

    def _after(self, context: Ids) -> list[tuple[float, int]]:
        """Return probabilities and ids, the most probable first."""
        found: dict[int, float] = {}
        share = 1.0  # of the probability that longer contexts leave to this one
        for length in range(len(context), -1, -1):
            row = self._row(context[len(context) - length :])
            if row is None:
                continue
            ranges, symbol, probability = self._best[length]
            for place in range(ranges[row], ranges[row + 1]):
                found.setdefault(int(symbol[place]) - 1, share * float(probability[place]))
            if len(found) >= _BRANCHES:
                break
            share *= float(self._left_over[length][row])
        return sorted(((p, token) for token, p in found.items()), reverse=True)[:_BRANCHES]

    def _row(self, tokens: Ids) -> int | None:
        """Return the row of a window among those of its order, None where it is not known."""
        row = 0
        for keys, token in zip(self._keys, tokens, strict=False):
            key = row * self._base + token + 1
            row = int(keys.searchsorted(key))
            if row == len(keys) or keys[row] != key:
                return None
        return row


def _best(window: Windows, followers: Followers) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return the best followers of all contexts: the range of each context, symbols and probabilities."""
    order = np.lexsort((-followers.probability, window.prefix))
    prefix = window.prefix[order]
    rank = np.arange(len(order)) - np.searchsorted(prefix, prefix)
    order, prefix = order[rank < _BRANCHES], prefix[rank < _BRANCHES]
    ranges = np.searchsorted(prefix, np.arange(len(followers.left_over) + 1))
    return ranges, window.symbol[order], followers.probability[order]


def _chain(following: NextTokens, context: Ids, nodes: int, floor: float) -> Paths:
    """Grow one path."""
    paths: Paths = {}
    path: Ids = ()
    probability = 1.0
    while len(paths) < nodes:
        step, token = following.after((context + path)[-_ORDERS + 1 :])[0]
        path, probability = (*path, token), probability * step
        if probability < floor:
            break
        paths[path] = probability
    return paths


def _tree(following: NextTokens, context: Ids, nodes: int, floor: float) -> Paths:
    """Add the most probable path that can be added, again and again."""
    paths: Paths = {}
    heap: list[tuple[float, Ids]] = []
    path: Ids = ()
    probability = 1.0
    while len(paths) < nodes:
        for step, token in following.after((context + path)[-_ORDERS + 1 :]):
            heapq.heappush(heap, (-probability * step, (*path, token)))
        negative, path = heapq.heappop(heap)
        probability = -negative
        if probability < floor:
            break
        paths[path] = probability
    return paths


@click.command()
@click.option("--tokenizer", "name", default="bielik-11b-v2.5", show_default=True)
@click.option("--language", "languages", multiple=True, default=("uk", "pl"), show_default=True)
@click.option("--train-tokens", default=4_000_000, show_default=True, help="Tokens of text to count.")
@click.option("--tokens", default=15_000, show_default=True, help="Tokens to replay.")
def main(name: str, languages: tuple[str, ...], train_tokens: int, tokens: int) -> None:
    """Measure, save and print."""
    tokenizer = real_tokenizer(name)
    rows: list[dict[str, Any]] = []
    columns = ("language", "nodes", "proposal", "tokens per pass", "verified", "promised", "depth", "gain")
    click.echo("| " + " | ".join(columns) + " |\n|---|---:|---|" + "---:|" * 5)
    for language in languages:
        following = _counted(tokenizer, language, train_tokens)
        documents = list(encoded(tokenizer, real_corpus(language, "valid"), tokens))
        for nodes in _NODES:
            plain = 0.0
            for label, propose in (("chain", _chain), ("tree", _tree)):
                for floored in (False, True):
                    row = (_with_floor if floored else _replayed)(documents, following, propose, nodes)
                    plain = plain or row["tokens per pass"] - 1
                    rows.append(
                        {"tokenizer": name, "language": language, "nodes": nodes}
                        | {"proposal": label + ", with a floor" * floored}
                        | {key: round(value, 4) for key, value in row.items()}
                        | {"gain": round((row["tokens per pass"] - 1) / plain, 3)}
                    )
                    click.echo("| " + " | ".join(str(rows[-1][column]) for column in columns) + " |")
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _counted(tokenizer: Tokenizer, language: str, tokens: int) -> NextTokens:
    """Count the beginning of the training text."""
    number = sum(1 for _ in encoded(tokenizer, real_corpus(language, "train"), tokens))

    def reader(corpus: Corpus) -> Iterator[Document]:
        return islice(corpus, number)

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "windows.counts"
        options = CountOptions(orders=_ORDERS, workers=1)
        count(real_corpus(language, "train"), out, options, tokenizer, lambda step: None, reader)
        return NextTokens(Counts(out))


def _with_floor(
    documents: Sequence[list[int]], following: NextTokens, propose: Proposer, nodes: int
) -> dict[str, float]:
    """Replay with the lowest floor under which no more than ``nodes`` are verified in the average pass."""
    low, high = -9.0, 0.0  # logarithms
    best = _replayed(documents, following, propose, _MOST * nodes, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = _replayed(documents, following, propose, _MOST * nodes, 10**middle)
        if found["verified"] <= nodes:
            high, best = middle, found
        else:
            low = middle
    return best


def _replayed(
    documents: Sequence[list[int]], following: NextTokens, propose: Proposer, nodes: int, floor: float = 0.0
) -> dict[str, float]:
    """Replay texts; every pass commits what is accepted and one token more.

    Returns:
        Per pass: tokens committed, nodes verified, tokens that the probabilities promise, and the length of
        the longest path. And the floor.
    """
    tokens = passes = verified = deepest = 0
    promised = 0.0
    for document in documents:
        place = 0
        while place < len(document):
            context = tuple(document[max(0, place - _ORDERS + 1) : place])
            paths = propose(following, context, nodes, floor)
            accepted = 0
            while place + accepted < len(document) and tuple(document[place : place + accepted + 1]) in paths:
                accepted += 1
            committed = min(accepted + 1, len(document) - place)
            place, tokens, passes = place + committed, tokens + committed, passes + 1
            verified, promised = verified + len(paths), promised + 1 + sum(paths.values())
            deepest += max(map(len, paths), default=0)
    return {
        "tokens per pass": tokens / passes,
        "verified": verified / passes,
        "promised": promised / passes,
        "depth": deepest / passes,
        "floor": floor,
    }


if __name__ == "__main__":
    main()
