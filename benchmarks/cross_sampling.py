"""Drafts from another tokenizer above temperature 0: exact match beside rejection sampling, with real models.

    python benchmarks/cross_sampling.py --target qwen2.5-coder-0.5b
    python benchmarks/cross_sampling.py --target qwen2.5-coder-1.5b

The target goes on with held-out text, many texts at once, and its probabilities are kept (`.scratch/`). The text it has
drawn is then replayed with every rule. That gives the passes of generating it, without more passes of the target. A
draft is accepted and equal to the target's token y with probability min(p(y), q(y)). So given y it is accepted with
probability min(1, q(y) / p(y)). Exact match accepts it where it is y. From every position of a text it is drafted once,
and the chances that come out give the expected passes, without any coins. All rules replay the same texts and share
what the draft model has computed; all texts are replayed in lockstep.

`first` is the chance that a first draft token is accepted, over all positions: p of the greedy one, or the sum of
min(p, q). Beside it stands the mean over positions where a token ends in both tokenizers. Behind a rule stands the
temperature of the draft, in parts of the request's. Intervals: 95%, bootstrapped over texts. Adds to
``benchmarks/results/cross_sampling.jsonl``. Preload OpenBLAS as README says.
"""

import itertools
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from drawn_text import PROMPT, Text, softmax, written
from lockstep import Lockstep, Row
from real_artifacts import alignment_of
from real_models import real_model
from tqdm import tqdm

from spectool.artifacts import Alignment
from spectool.runtime.caches.draft_cache import DraftCache
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.decoding.rejection import Draw
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.models import load_model
from spectool.runtime.translation import drawing
from spectool.runtime.translation.anchored import AnchoredTranslator
from spectool.tokenization import Tokenizer, open_tokenizer

RESULTS = Path(__file__).parent / "results" / "cross_sampling.jsonl"
EXACT, DRAWN, REJECTION, BLOCK = "exact match, greedy", "exact match, drawn", "rejection", "block"
_RESAMPLED = 2000
_REMEMBERED = 40  # places of the draft


class RememberingCache(DraftCache):
    """A draft model's cache that computes what follows a prefix once, whoever asks; it remembers the last few."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._known: dict[tuple[int, ...], mx.array] = {}
        self._ids: list[int] = []  # what this cache seems to hold
        self._real = DraftCache(model)

    def rewind(self, kept: int) -> list[int]:
        """Seem to go back."""
        del self._ids[kept:], self.tokens[kept:]
        return []

    def prefill(self, tokens: Sequence[int]) -> int:
        """Seem to feed, until somebody asks what follows."""
        self._ids += tokens
        self.tokens += tokens
        return 1

    def feed(self, tokens: mx.array) -> mx.array:
        """Return the logits [tokens, vocabulary], from memory where it can."""
        before = len(self._ids)
        self._ids += tokens.tolist()
        keys = [tuple(self._ids[:end]) for end in range(before + 1, len(self._ids) + 1)]
        if any(key not in self._known for key in keys):
            kept = min(accepted_length(self._real.tokens, self._ids), before)
            self._real.rewind(kept)
            kept = len(self._real.tokens)
            new = self._ids[kept:]
            logits = self._real.feed(mx.array(new))
            self._real.tokens += new
            for place, row in enumerate(logits):
                self._known[tuple(self._ids[: kept + place + 1])] = row
        found = mx.stack([self._known[key] for key in keys])
        self._known = dict(list(self._known.items())[-_REMEMBERED:])
        return found


class Chances:
    """What comes of drafting from every position of one text.

    Attributes:
        chances: By rule, for each position the chances of its draft tokens, one after the other, to be accepted.
        first: By rule, for each position the chance of a first draft token.
        shared: For each position, whether a token of the draft's ends there, too; empty with one tokenizer.
    """

    def __init__(self) -> None:
        self.chances: dict[str, list[list[float]]] = {}
        self.first: dict[str, list[float]] = {}
        self.shared: list[bool] = []

    def note(self, rule: str, chances: list[float], first: float) -> None:
        """Add a position."""
        self.chances.setdefault(rule, []).append(chances)
        self.first.setdefault(rule, []).append(first)


def same_tokenizer(model: Any, text: Text, length: int, flatters: Sequence[float]) -> Chances:
    """Draft with a model of the target's tokenizer: one pass over the text has all that it would say."""
    found, outputs = Chances(), text.ids[PROMPT:]
    said = np.array(model(mx.array([text.ids[:-1]]))[0, PROMPT - 1 :].astype(mx.float32), np.float64)
    p = [text.probabilities(place) for place in range(len(outputs))]
    best = said.argmax(axis=1).tolist()
    for at in range(len(outputs)):
        end = min(at + length, len(outputs) - 1)
        hits = accepted_length(best[at:end], outputs[at:end])
        found.note(EXACT, [1.0] * hits, float(p[at][best[at]]))
    for flatter in flatters:
        q = [softmax(row / (flatter * text.temperature)) for row in said]
        drawn = [float(row[token]) for row, token in zip(q, outputs, strict=True)]
        kept = [min(1.0, own / row[token]) for own, row, token in zip(drawn, p, outputs, strict=True)]
        for at in range(len(outputs)):
            end = min(at + length, len(outputs) - 1)
            found.note(f"{DRAWN} {flatter}", drawn[at:end], float(p[at] @ q[at]))
            found.note(f"{REJECTION} {flatter}", kept[at:end], float(np.minimum(p[at], q[at]).sum()))
    return found


def ends(tokenizer: Tokenizer, ids: Sequence[int]) -> np.ndarray:
    """Return the byte at which each token ends, int64 [tokens]."""
    return np.cumsum([len(tokenizer.surfaces[token]) for token in ids])


class Rules(Chances):
    """Drafts of a model with another tokenizer, translated."""

    def __init__(self, model: Any, sides: tuple[Tokenizer, Tokenizer], alignment: Alignment, text: Text) -> None:
        super().__init__()
        source = ModelSource(model, bos=sides[0].roles.bos, size=sides[0].size)
        source.cache = RememberingCache(model)
        self._source, self._translator = source, AnchoredTranslator(alignment, *sides)
        self._greedy, self._text = TranslatedDrafter(source, self._translator), text
        read = sides[1].bytes_of(text.ids).decode(errors="ignore")
        both = np.isin(ends(sides[1], text.ids), ends(sides[0], sides[0].encode(read)))
        self.shared = both[PROMPT - 1 : -1].tolist()

    def walk(self, length: int, flatters: Sequence[float]) -> None:
        """Draft from every position, as far as the text agrees."""
        outputs = self._text.ids[PROMPT:]
        self._greedy.start(self._text.ids[:PROMPT])
        p: list[np.ndarray] = []
        for at, token in enumerate(outputs):
            limit = min(length, len(outputs) - at - 1)
            p = [*p[1:], *map(self._text.probabilities, range(at + len(p[1:]), at + max(1, limit)))]
            best = self._greedy.propose(1).tokens
            self.note(EXACT, self._agreed(at, limit), float(p[0][best[0]]) if best else 0.0)
            for flatter in flatters:
                self._draw(at, limit, p, flatter)
            self._greedy.commit([token])

    def _agreed(self, at: int, limit: int) -> list[float]:
        """Return a chance of 1 for each greedy draft token that the text has."""
        right = 0
        for count in range(1, limit + 1):  # no further than what a repair of the last tokens could still make right
            tokens = self._greedy.propose(count).tokens
            right = accepted_length(tokens[:limit], self._text.ids[PROMPT + at :])
            if right < len(tokens) - 2:
                break
        return [1.0] * right

    def _draw(self, at: int, limit: int, p: Sequence[np.ndarray], flatter: float) -> None:
        """Note the chances of drawn tokens to be accepted, given that they are those of the text."""
        drawing.FLATTER = flatter
        context, constraint, rows = (
            self._translator.draft_context(),
            self._translator.constraint(),
            self._translator.token_rows(),
        )
        assert rows is not None
        draw = Draw(Sampling(temp=self._text.temperature), (), self._text.logits.shape[1])
        following = drawing.NextTokens(self._source.scorer(), rows, context, constraint, draw, (), max(1, limit))
        drawn, kept, ratios, first = [], [], [], (0.0, 0.0)
        for place, probabilities in enumerate(p):
            token = self._text.ids[PROMPT + at + place]
            known = following.stated()
            if known is None:
                break
            q = float(known[1][known[0] == token].sum())
            if not place:
                first = (
                    float(probabilities[known[0]] @ known[1]),
                    float(np.minimum(probabilities[known[0]], known[1]).sum()),
                )
            drawn.append(q)
            kept.append(min(1.0, q / probabilities[token]))
            ratios.append(q / probabilities[token])
            if not q:
                break
            following.follow(token)
        self.note(f"{DRAWN} {flatter}", drawn[:limit], first[0])
        self.note(f"{REJECTION} {flatter}", kept[:limit], first[1])
        self.note(f"{BLOCK} {flatter}", block_chances(ratios[:limit]), first[1])


def block_chances(ratios: Sequence[float]) -> list[float]:
    """Return the chance of each draft token under block verification, from q / p of each.

    All tokens up to one are accepted with the least of the products of these ratios. So a token that the draft is too
    sure of makes up for one before it (Sun et al. 2024, Block Verification Accelerates Speculative Decoding).
    """
    products = np.minimum.accumulate([1.0, *np.cumprod(ratios)])
    return [float(after / before) if before else 0.0 for before, after in itertools.pairwise(products)]


def passes(chances: Sequence[Sequence[float]]) -> float:
    """Return the expected passes of a text, from the chances of the draft tokens after each position."""
    reached = np.zeros(len(chances) + 1)
    reached[0] = 1
    for at, own in enumerate(chances):
        left = reached[at]
        for place, chance in enumerate(own):
            reached[at + place + 1] += left * (1 - chance)
            left *= chance
        reached[at + len(own) + 1] += left
    return float(reached[:-1].sum())


def by_place(chances: Sequence[Sequence[float]], length: int) -> list[float]:
    """Return the chance of the first, second, … draft token, if those before it were accepted; 0 if they never were."""
    padded = np.array([[*own, *[0.0] * (length - len(own))] for own in chances])
    reached = np.cumprod(padded, axis=1).sum(axis=0)
    before = [len(padded), *reached[:-1]]
    return [round(float(p / n), 4) if n else 0.0 for p, n in zip(reached, before, strict=True)]


def interval(sums: np.ndarray) -> list[float]:
    """Return the ratio of the two columns of ``sums`` [texts, 2], and its interval."""
    picked = np.random.default_rng(0).integers(len(sums), size=(_RESAMPLED, len(sums)))
    values = sums[picked].sum(axis=1)
    ratios = values[:, 0] / values[:, 1]
    whole = sums.sum(axis=0)
    return [round(float(value), 4) for value in (whole[0] / whole[1], *np.quantile(ratios, (0.025, 0.975)))]


def translated(
    model: Any,
    names: tuple[str, str],
    drafting: Tokenizer,
    texts: Sequence[Text],
    length: int,
    flatters: Sequence[float],
) -> list[tuple[Text, Chances]]:
    """Draft for all texts at once with a model of another tokenizer."""
    where = [Path(real_model(name)) for name in names]
    sides = drafting, open_tokenizer(str(where[1]))
    alignment = Alignment(alignment_of(f"{'-'.join(names)}-pl", *where, "pl"))
    lockstep = Lockstep(model, len(texts), 4 * len(texts[0].ids))
    progress = tqdm(total=len(texts), unit="texts", mininterval=30)
    found: list[tuple[Text, Chances]] = []

    def walk(text: Text, row: Row) -> None:
        rules = Rules(row, sides, alignment, text)
        rules.walk(length, flatters)
        found.append((text, rules))
        progress.update()

    lockstep.run(partial(walk, text) for text in texts)
    return found


@click.command()
@click.option("--draft", default="gemma3-270m", show_default=True)
@click.option("--target", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--language", "languages", multiple=True, default=("pl", "uk", "en"), show_default=True)
@click.option("--temperature", "temperatures", type=float, multiple=True, default=(0.5, 0.7, 1.0), show_default=True)
@click.option("--num-draft-tokens", "length", default=4, show_default=True)
@click.option("--texts", default=4, show_default=True, help="Of each language and temperature.")
@click.option("--tokens", default=64, show_default=True, help="Of each text.")
@click.option(
    "--flatter",
    "flatters",
    type=float,
    multiple=True,
    default=(drawing.FLATTER,),
    help="Temperatures of the draft, in parts of the request's.",
)
@click.option("--bits", type=int, help="Of the draft's weights, if it is quantised; with the target itself as --draft.")
@click.option("--held-out", is_flag=True, help="Texts as they are. Only `first` has a meaning then.")
@click.option("--only-write", is_flag=True)
def main(
    draft: str,
    target: str,
    languages: tuple[str, ...],
    temperatures: tuple[float, ...],
    length: int,
    texts: int,
    tokens: int,
    flatters: tuple[float, ...],
    bits: int | None,
    held_out: bool,
    only_write: bool,
) -> None:
    """Write, replay, print a table."""
    everything = written(target, languages, temperatures, texts, tokens, held_out)
    if only_write:
        return
    model, loaded = load_model(real_model(draft))
    if bits is not None:
        nn.quantize(model, bits=bits)
    walked: list[tuple[Text, Chances]] = []
    if draft == target:
        walked += [(text, same_tokenizer(model, text, length, flatters)) for text in everything]
    else:
        walked += translated(model, (draft, target), open_tokenizer(loaded), everything, length, flatters)
    for heat in temperatures:
        for language in languages:
            own = [rules for text, rules in walked if (text.language, text.temperature) == (language, heat)]
            for rule in own[0].chances:
                shared = [p for rules in own for p in itertools.compress(rules.first[rule], rules.shared)]
                expected = np.array([(tokens, passes(rules.chances[rule])) for rules in own])
                row = {
                    "draft": draft if bits is None else f"{draft}, {bits} bits",
                    "target": target,
                    "language": language,
                    "temperature": heat,
                    "k": length,
                    "tokens": len(own) * tokens,
                    "rule": rule,
                    "first": round(float(np.mean([rules.first[rule] for rules in own])), 4),
                    "first, shared boundaries": round(float(np.mean(shared)), 4) if shared else None,
                    "held out": held_out,
                    "by place": by_place([each for rules in own for each in rules.chances[rule][:-length]], length),
                    "tokens per pass": None if held_out else interval(expected),
                }
                with RESULTS.open("a") as results:
                    results.write(json.dumps(row) + "\n")
                click.echo(json.dumps(row))


if __name__ == "__main__":
    main()
