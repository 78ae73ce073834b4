"""Drafts from another tokenizer above temperature 0: exact match beside rejection sampling, with real models.

    python benchmarks/cross_sampling.py --target qwen2.5-coder-0.5b
    python benchmarks/cross_sampling.py --target qwen2.5-coder-1.5b

The target goes on with held-out text, many texts at once, and its probabilities are kept (`.scratch/`). The text it has
drawn is then replayed with every rule. That gives the passes of generating it, without more passes of the target: a
draft is accepted and equal to the target's token y with probability min(p(y), q(y)), so given y it is accepted with
probability min(1, q(y) / p(y)), and exact match accepts it where it is y. All rules replay the same texts, with the
same coins, and share what the draft model has computed.

`first` is the chance that a first draft token is accepted, over all positions: p of the greedy one, or the sum of
min(p, q). Intervals: 95%, bootstrapped over texts. Adds to ``benchmarks/results/cross_sampling.jsonl``. Preload
OpenBLAS as README says.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from real_artifacts import alignment_of
from real_data import encoded, real_corpus
from real_models import real_model
from tqdm import tqdm

from spectool.artifacts import Alignment, open_tokenizer
from spectool.runtime.caches.draft_cache import DraftCache
from spectool.runtime.decoding.drafter import accepted_length
from spectool.runtime.decoding.rejection import Draw
from spectool.runtime.decoding.sampling import Sampling
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.models import load_model
from spectool.runtime.translation import drawing
from spectool.runtime.translation.anchored import AnchoredTranslator

RESULTS = Path(__file__).parent / "results" / "cross_sampling.jsonl"
SCRATCH = Path(__file__).parent.parent / ".scratch" / "cross_sampling"
PROMPT = 48  # target tokens of held-out text that the target goes on with
_RESAMPLED = 2000
Coin = Callable[[float], bool]


@dataclass(frozen=True)
class Text:
    """What the target wrote.

    Attributes:
        language: Of the prompt.
        temperature: It was drawn at.
        ids: Prompt and output.
        logits: Of each output token's position, up to a constant, float16 [outputs, vocabulary].
    """

    language: str
    temperature: float
    ids: list[int]
    logits: np.ndarray

    def probabilities(self, place: int) -> np.ndarray:
        """Return p of the output token at ``place``."""
        return softmax(self.logits[place].astype(np.float64) / self.temperature)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities of logits."""
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


class RememberingCache(DraftCache):
    """A draft model's cache that computes what follows a prefix once, whoever asks."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.known: dict[tuple[int, ...], mx.array] = {}
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
        if any(key not in self.known for key in keys):
            kept = min(accepted_length(self._real.tokens, self._ids), before)
            self._real.rewind(kept)
            kept = len(self._real.tokens)
            new = self._ids[kept:]
            logits = self._real.feed(mx.array(new))
            mx.eval(logits)
            self._real.tokens += new
            for place, row in enumerate(logits):
                self.known.setdefault(tuple(self._ids[: kept + place + 1]), row)
        return mx.stack([self.known[key] for key in keys])


class Rules:
    """The ways to draft and to verify that are compared."""

    def __init__(self, draft: str, target: str) -> None:
        model, loaded = load_model(real_model(draft))
        where = Path(real_model(target))
        sides = open_tokenizer(loaded), open_tokenizer(str(where))
        alignment = Alignment(alignment_of(f"{draft}-{target}-pl", Path(real_model(draft)), where, "pl"))
        self.source = ModelSource(model, bos=sides[0].roles.bos, size=sides[0].size)
        self.source.cache = self.cache = RememberingCache(model)
        self.translator = AnchoredTranslator(alignment, *sides)
        self.greedy = TranslatedDrafter(self.source, self.translator)

    def next_tokens(self, text: Text, limit: int) -> drawing.NextTokens:
        """Return what may follow the present frontier."""
        context, constraint, speller = self._asked()
        draw = Draw(Sampling(temp=text.temperature), (), text.logits.shape[1])
        return drawing.NextTokens(self.source.scorer(), speller, context, constraint, draw, (), limit)

    def _asked(self) -> tuple[Any, Any, Any]:
        return self.translator.draft_context(), self.translator.constraint(), self.translator.speller()


def exact_match(rules: Rules, text: Text, at: int, limit: int, accepts: Coin) -> int:
    """Return how many greedy draft tokens are accepted from output token ``at`` on."""
    for count in range(1, limit + 1):  # no further than what a repair of the last tokens could still make right
        tokens = rules.greedy.propose(count).tokens
        right = accepted_length(tokens[:limit], text.ids[PROMPT + at :])
        if right < len(tokens) - 2:
            break
    return right


def by_probability(rejection: bool) -> Callable[[Rules, Text, int, int, Coin], int]:
    """Return the rule for drawn tokens: rejection sampling, or exact match."""

    def rule(rules: Rules, text: Text, at: int, limit: int, accepts: Coin) -> int:
        following = rules.next_tokens(text, limit)
        for count in range(limit):
            token = text.ids[PROMPT + at + count]
            known = following.stated()
            if known is None:
                return count
            q = float(known[1][known[0] == token].sum())
            if not accepts(q / text.probabilities(at + count)[token] if rejection else q):
                return count
            following.follow(token)
        return limit

    return rule


RULES = {
    "exact match, greedy": exact_match,
    "exact match, drawn": by_probability(False),
    "rejection": by_probability(True),
}


def replay(rules: Rules, text: Text, name: str, length: int, seed: int) -> tuple[int, int, int]:
    """Return tokens, passes of the target and passes of the draft."""
    rng, at, passes, drafted = np.random.default_rng(seed), 0, 0, rules.source.passes
    outputs = len(text.ids) - PROMPT
    rules.greedy.start(text.ids[:PROMPT])
    while at < outputs:
        limit = min(length, outputs - at - 1)
        right = RULES[name](rules, text, at, limit, lambda chance: rng.random() < chance) if limit else 0
        rules.greedy.commit(text.ids[PROMPT + at : PROMPT + at + right + 1])
        at, passes = at + right + 1, passes + 1
    return at, passes, rules.source.passes - drafted


def first_tokens(rules: Rules, text: Text) -> tuple[float, float, float]:
    """Return the mean chance that the first draft token is accepted: greedy, drawn, by rejection sampling."""
    found = []
    rules.greedy.start(text.ids[:PROMPT])
    for at, token in enumerate(text.ids[PROMPT:]):
        p = text.probabilities(at)
        greedy = rules.greedy.propose(1).tokens
        known = rules.next_tokens(text, 1).stated()
        q = np.zeros_like(p)
        if known is not None:
            q[known[0]] = known[1]
        found.append((p[greedy[0]] if greedy else 0.0, p @ q, np.minimum(p, q).sum()))
        rules.greedy.commit([token])
    greedy, same, kept = np.mean(found, axis=0).tolist()
    return greedy, same, kept


def written(
    target: str, languages: Sequence[str], temperatures: Sequence[float], count: int, tokens: int
) -> list[Text]:
    """Let the target go on with ``count`` held-out texts of each language, at every temperature, all at once."""
    made = [
        (language, heat, number) for language in languages for heat in sorted(temperatures) for number in range(count)
    ]
    name = f"{target}.{'-'.join(languages)}.{'-'.join(map(str, sorted(temperatures)))}.{count}.{tokens}"
    files = SCRATCH / f"{name}.ids.npy", SCRATCH / f"{name}.logits.npy"
    if not files[1].exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        model, loaded = load_model(real_model(target))
        tokenizer, prompts = open_tokenizer(loaded), {}
        for language in languages:
            documents = encoded(tokenizer, real_corpus(language, "valid"), 400_000)
            prompts[language] = [ids[:PROMPT] for ids in documents if len(ids) >= 2 * PROMPT][:count]
        ids = np.array([prompts[language][number] for language, _, number in made])
        heats, rng, cache, rows = (
            np.array([heat for _, heat, _ in made]),
            np.random.default_rng(0),
            make_prompt_cache(model),
            [],
        )
        feed = ids
        for _ in tqdm(range(tokens), desc="writing", mininterval=30):
            logits = np.array(model(mx.array(feed), cache=cache)[:, -1].astype(mx.float32))
            rows.append((logits - logits.max(axis=1, keepdims=True)).astype(np.float16))
            drawn_ids = [
                rng.choice(logits.shape[1], p=softmax(row.astype(np.float64) / heat))
                for row, heat in zip(rows[-1], heats, strict=True)
            ]
            feed = np.array(drawn_ids)[:, None]
            ids = np.concatenate([ids, feed], axis=1)
        np.save(files[0], ids)
        np.save(files[1], np.stack(rows, axis=1))
        del model, cache
        mx.clear_cache()
    ids, logits = np.load(files[0]), np.load(files[1], mmap_mode="r")
    return [
        Text(language, heat, row.tolist(), logits[place])
        for place, ((language, heat, _), row) in enumerate(zip(made, ids, strict=True))
    ]


def interval(sums: np.ndarray) -> list[float]:
    """Return the ratio of the two columns of ``sums`` [texts, 2], and its interval."""
    picked = np.random.default_rng(0).integers(len(sums), size=(_RESAMPLED, len(sums)))
    values = sums[picked].sum(axis=1)
    ratios = values[:, 0] / values[:, 1]
    whole = sums.sum(axis=0)
    return [round(float(value), 4) for value in (whole[0] / whole[1], *np.quantile(ratios, (0.025, 0.975)))]


@click.command()
@click.option("--draft", default="gemma3-270m", show_default=True)
@click.option("--target", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--language", "languages", multiple=True, default=("pl", "uk", "en"), show_default=True)
@click.option("--temperature", "temperatures", type=float, multiple=True, default=(0.5, 0.7, 1.0), show_default=True)
@click.option("--num-draft-tokens", "length", default=4, show_default=True)
@click.option("--texts", default=4, show_default=True, help="Of each language and temperature.")
@click.option("--tokens", default=64, show_default=True, help="Of each text.")
@click.option(
    "--flatter", "flatters", type=float, multiple=True, help="Temperatures of the draft, in parts of the request's."
)
@click.option("--replayed", type=int, help="Texts that are replayed of these; all by default.")
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
    replayed: int | None,
    only_write: bool,
) -> None:
    """Write, replay, print a table."""
    everything = written(target, languages, temperatures, texts, tokens)
    if only_write:
        return
    rules = Rules(draft, target)
    for heat in temperatures:
        for language in languages:
            own = [text for text in everything if (text.language, text.temperature) == (language, heat)][:replayed]
            for row in measured(rules, own, length, flatters or (drawing.FLATTER,)):
                row = {
                    "draft": draft,
                    "target": target,
                    "language": language,
                    "temperature": heat,
                    "k": length,
                    "tokens": len(own) * tokens,
                } | row
                with RESULTS.open("a") as results:
                    results.write(json.dumps(row) + "\n")
                click.echo(json.dumps(row))


def measured(rules: Rules, texts: Sequence[Text], length: int, flatters: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Replay texts of one language and temperature with every rule and draft temperature."""
    runs: dict[tuple[str, float], list[tuple[int, int, int]]] = {}
    firsts: dict[float, list[tuple[float, float, float]]] = {}
    for number, text in enumerate(tqdm(texts, mininterval=30)):
        rules.cache.known.clear()
        for flatter in flatters:
            drawing.FLATTER = flatter
            firsts.setdefault(flatter, []).append(first_tokens(rules, text))
            for name in RULES:
                if name != "exact match, greedy" or flatter == flatters[0]:
                    runs.setdefault((name, flatter), []).append(replay(rules, text, name, length, number))
    for (name, flatter), found in runs.items():
        sums = np.array(found)
        yield {
            "rule": name,
            "draft temperature": None if name == "exact match, greedy" else flatter,
            "first": round(float(np.mean([first[list(RULES).index(name)] for first in firsts[flatter]])), 4),
            "tokens per pass": interval(sums[:, :2]),
            "draft passes per pass": None
            if name == "exact match, greedy"
            else round(float(sums[:, 2].sum() / sums[:, 1].sum()), 2),
        }


if __name__ == "__main__":
    main()
