"""All strategies that translate between tokenizers, with pretrained models on both sides.

    python benchmarks/real_text.py --model qwen2.5-coder-1.5b --language pl
    python benchmarks/real_ladder.py --draft gemma3-270m --target qwen2.5-coder-1.5b --language pl
    python benchmarks/real_ladder.py --draft gemma3-270m --target bielik-11b-v2.5 --language pl   tokenizer only

The text that the target wrote (``real_text.py``) is replayed after its prompts, with k draft tokens per cycle. If only
the target's tokenizer is available, encyclopaedia and news stand in for its text. The rows are the published
strategies, then the byte-aligned one step by step. Intervals are 95% intervals, bootstrapped over prompts. ``gain`` is
tokens per pass - 1; its ratio to the gain of ``context`` is bootstrapped in pairs, because all rows replay the same
prompts.

Prints a Markdown table and appends to ``benchmarks/results/real_ladder.jsonl``. On Linux, preload OpenBLAS as in
``real_speed.py``.
"""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import numpy as np
from numpy.typing import NDArray
from real_data import alignment_of, encoded, real_corpus, tokenizer_of
from real_models import PACKAGES, real_model
from real_text import Written, read_text, repeated_4_grams, text_path
from tqdm import tqdm

from spectool.artifacts import Alignment
from spectool.lab.strategies import (
    MOST_IDS_A_DRAFT_TOKEN,
    IntersectionTranslator,
    byte_aligned_steps,
    make_translator,
)
from spectool.measure.emulate import replay
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.model_source import ModelSource
from spectool.runtime.drafters.translated import TranslatedDrafter
from spectool.runtime.loading import load_model
from spectool.runtime.translation.protocol import Translator
from spectool.tokenization import Tokenizer, open_tokenizer

RESULTS = Path(__file__).parent / "results" / "real_ladder.jsonl"
PUBLISHED = ("naive", "context", "intersection")
BASE = "context"
_RESAMPLED = 2000
_DOCUMENT = 160  # target tokens of a document that stand in for an answer; the same number before them are its prompt


@click.command()
@click.option("--draft", default="gemma3-270m", show_default=True)
@click.option("--target", default="qwen2.5-coder-1.5b", show_default=True, help="A model, or a tokenizer alone.")
@click.option("--language", default="pl", show_default=True)
@click.option("--temperature", default=0.0, show_default=True, help="Of the text that the target wrote.")
@click.option("--num-draft-tokens", "lengths", type=int, multiple=True, default=(4,), show_default=True)
@click.option("--tokens", default=5000, show_default=True, help="Target tokens to replay.")
@click.option("--strategy", "only", multiple=True, help="These rows only; all by default.")
def main(
    draft: str,
    target: str,
    language: str,
    temperature: float,
    lengths: tuple[int, ...],
    tokens: int,
    only: tuple[str, ...],
) -> None:
    """Replay with every strategy and step; save and print."""
    model, loaded = load_model(real_model(draft))
    sides = open_tokenizer(loaded), open_tokenizer(str(tokenizer_of(target)))
    alignment = Alignment(alignment_of(draft, target, language))
    if target in PACKAGES:
        texts = read_text(text_path(target, language, temperature))
    else:
        documents = encoded(sides[1], real_corpus(language, "valid"), tokens * 8)
        texts = [Written(ids[:_DOCUMENT], ids[_DOCUMENT : 2 * _DOCUMENT]) for ids in documents if len(ids) > _DOCUMENT]
    texts = list(islice(texts, _enough(texts, tokens)))
    settings = {"bos": sides[0].roles.bos, "size": sides[0].size}
    source = ModelSource(model, **settings)
    made = strategies(alignment, *sides)
    names = only or tuple(made)
    sources = {
        name: MaskedSource(model, each.within, **settings) if isinstance(each, IntersectionTranslator) else source
        for name, each in made.items()
    }
    for length in lengths:
        runs: dict[str, list[DraftStatistics]] = {name: [] for name in names}
        passes: Counter[str] = Counter()
        for text in tqdm(texts, desc=f"k = {length}", unit="texts", mininterval=30):
            for name in names:
                drafter, before = TranslatedDrafter(sources[name], made[name], length), sources[name].passes
                most = length * MOST_IDS_A_DRAFT_TOKEN
                runs[name].append(replay([text.output], drafter, most, prompts=[text.prompt]))
                passes[name] += sources[name].passes - before
        rows = [
            {
                "draft": draft,
                "target": target,
                "language": language,
                "temperature": temperature if target in PACKAGES else None,
                "tokens": sum(run.tokens for run in runs[name]),
                "prompts": len(texts),
                "repeated 4-grams": round(repeated_4_grams([text.output for text in texts]), 4),
                "k": length,
                "strategy": name,
                "tokens per pass": interval(runs[name]),
                "gain / context's": _gain_ratio(runs[name], runs[BASE]) if BASE in runs else None,
                "draft passes per pass": round(passes[name] / sum(run.passes for run in runs[name]), 2),
            }
            for name in names
        ]
        with RESULTS.open("a") as results:
            results.writelines(json.dumps(row) + "\n" for row in rows)
        _print(rows)


class MaskedSource(ModelSource):
    """A model that drafts only the ids of a mask."""

    def __init__(self, model: Any, within: NDArray[np.bool_], **options: Any) -> None:
        """Draft with ``model`` the ids of ``within``, bool [draft ids]; options as for `ModelSource`."""
        super().__init__(model, **options)
        self._within = mx.array(np.append(within, np.zeros(self.size, np.bool_))[: self.size])

    def run(self, tokens: mx.array) -> mx.array:
        """As `ModelSource.run`, with -inf outside the mask."""
        return mx.where(self._within, super().run(tokens), -mx.inf)


def strategies(alignment: Alignment, draft: Tokenizer, target: Tokenizer) -> dict[str, Translator]:
    """The translator of each row."""
    published = {name: make_translator(name, alignment, draft, target) for name in PUBLISHED}
    forth = make_translator(BASE, alignment, draft, target, window_back=0)
    return published | {"context, window one way": forth} | byte_aligned_steps(alignment, draft, target)


def _enough(texts: Sequence[Written], tokens: int) -> int:
    """Number of texts that have ``tokens`` output tokens in total."""
    sums = np.cumsum([len(text.output) for text in texts])
    return int(np.searchsorted(sums, tokens)) + 1


def _resampled(runs: Sequence[DraftStatistics]) -> np.ndarray:
    """Tokens per pass of the prompts and of resampled ones, float64 [1 + resampled]; the draws are always the same."""
    counts = np.array([(run.tokens, run.passes) for run in runs], dtype=np.float64)
    drawn = np.random.default_rng(0).integers(len(runs), size=(_RESAMPLED, len(runs)))
    sums = np.vstack([counts.sum(axis=0), counts[drawn].sum(axis=1)])
    return sums[:, 0] / sums[:, 1]


def interval(runs: Sequence[DraftStatistics]) -> list[float]:
    """Tokens per pass and the ends of its interval."""
    values = _resampled(runs)
    return [round(float(value), 4) for value in (values[0], *np.quantile(values[1:], (0.025, 0.975)))]


def _gain_ratio(runs: Sequence[DraftStatistics], base: Sequence[DraftStatistics]) -> list[float]:
    values = (_resampled(runs) - 1) / (_resampled(base) - 1)
    return [round(float(value), 3) for value in (values[0], *np.quantile(values[1:], (0.025, 0.975)))]


def _print(rows: Sequence[dict[str, object]]) -> None:
    columns = ("k", "strategy", "tokens per pass", "gain / context's", "draft passes per pass")
    first = rows[0]
    click.echo(
        f"\n{first['draft']} -> {first['target']}, {first['language']}: {first['tokens']:,} tokens of "
        f"{first['prompts']} prompts, temperature {first['temperature']}, "
        f"{first['repeated 4-grams']:.1%} repeated 4-grams\n"
    )
    click.echo("| " + " | ".join(columns) + " |\n|" + "---:|" * len(columns))
    for row in rows:
        cells = (f"{c[0]} ({c[1]} to {c[2]})" if isinstance(c := row[name], list) else str(c) for name in columns)
        click.echo("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
