"""Text that a target draws behind held-out prompts, many texts at once, with its probabilities kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from real_data import encoded, real_corpus
from real_models import real_model
from tqdm import tqdm

from spectool.runtime.loading import load_model
from spectool.tokenization import open_tokenizer

SCRATCH = Path(__file__).parent.parent / ".scratch" / "cross_sampling"
PROMPT = 48  # target tokens of held-out text that the target goes on with


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


def written(
    target: str, languages: Sequence[str], temperatures: Sequence[float], count: int, tokens: int, held_out: bool
) -> list[Text]:
    """Let the target go on with ``count`` held-out texts of each language, at every temperature, all at once.

    With ``held_out`` the texts go on as they are, and the target's probabilities of that are kept.
    """
    made = [
        (language, heat, number) for language in languages for heat in sorted(temperatures) for number in range(count)
    ]
    name = f"{target}.{'-'.join(languages)}.{'-'.join(map(str, sorted(temperatures)))}.{count}.{tokens}"
    name += ".held-out" * held_out
    files = SCRATCH / f"{name}.ids.npy", SCRATCH / f"{name}.logits.npy"
    if not files[1].exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        model, loaded = load_model(real_model(target))
        tokenizer, prompts = open_tokenizer(loaded), {}
        for language in languages:
            documents = encoded(tokenizer, real_corpus(language, "valid"), 400_000)
            prompts[language] = [ids for ids in documents if len(ids) >= PROMPT + tokens][:count]
        ids = np.array([prompts[language][number][: PROMPT + tokens] for language, _, number in made])
        heats, rng, cache, rows = (
            np.array([heat for _, heat, _ in made]),
            np.random.default_rng(0),
            make_prompt_cache(model),
            [],
        )
        after, ids = ids[:, PROMPT:], ids[:, :PROMPT]
        feed = ids
        for place in tqdm(range(tokens), desc="writing", mininterval=30):
            logits = np.array(model(mx.array(feed), cache=cache)[:, -1].astype(mx.float32))
            rows.append((logits - logits.max(axis=1, keepdims=True)).astype(np.float16))
            drawn_ids = [
                rng.choice(logits.shape[1], p=softmax(row.astype(np.float64) / heat))
                for row, heat in zip(rows[-1], heats, strict=True)
            ]
            feed = after[:, place : place + 1] if held_out else np.array(drawn_ids)[:, None]
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
