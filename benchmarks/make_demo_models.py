"""Make the tiny models and tokenizers that the package bundles for ``spectool demo``.

Everything is trained from scratch on the project's own sample texts (``corpora/samples``), so
the target has read two short files and nothing else: it recites and recombines them. That is
enough to exercise drafting, alignment and generation offline, and says nothing about quality.

Same seed, machine and BLAS give the same weights. MLX's CPU build links the reference BLAS;
where that is slow, preload another before Python starts (about 50 times faster matrix products):

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 python benchmarks/make_demo_models.py
"""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import quantize_model, save_config
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("pl", "uk")
HELD_OUT_EVERY = 20
CONTEXT = 256
BATCH = 8
VOCABULARY = {"target": 1536, "other": 2048}
SHAPES = {
    "target": {"hidden_size": 192, "num_hidden_layers": 5, "num_attention_heads": 6, "intermediate_size": 512},
    "draft": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192},
}
PEAK_RATE = {"target": 2e-3, "draft": 6e-3}
# SentencePiece trains inside words, without digits or punctuation glued to letters.
WORDS = r"▁?[\p{L}\p{M}'’ʼ]+|▁?\p{N}|▁?[^\p{L}\p{M}\p{N}▁]+|▁+"
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def sample_documents(language: str) -> list[str]:
    """Return the documents of one bundled sample: paragraphs by line, empty lines between documents."""
    text = (ROOT / "corpora" / "samples" / f"{language}.txt").read_text(encoding="utf-8")
    return [document.strip("\n") for document in text.split("\n\n") if document.strip()]


def split_documents(documents: list[str]) -> tuple[list[str], list[str]]:
    """Split into training and held-out documents: every 20th is held out.

    >>> [len(part) for part in split_documents(["a"] * 40)]
    [38, 2]
    """
    held_out = documents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return [d for i, d in enumerate(documents) if (i + 1) % HELD_OUT_EVERY], held_out


def mistral_like(lines: list[str]) -> Tokenizer:
    """Train a SentencePiece-style BPE with byte fallback, laid out as Mistral's: specials, bytes, pieces."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    scratch = Tokenizer(models.BPE())
    scratch.normalizer = normalizer
    scratch.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    reserved = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # Letters beyond the limit stay with byte fallback, as rare letters do in real tokenizers.
    scratch.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY["target"], special_tokens=reserved, limit_alphabet=150, show_progress=False
        ),
    )
    trained = json.loads(scratch.to_str())["model"]
    merges = [(left, right) for left, right in trained["merges"]]
    model = models.BPE(trained["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    tokenizer.add_special_tokens(reserved[:3])
    return tokenizer


def qwen_like(lines: list[str]) -> Tokenizer:
    """Train a byte-level BPE with Qwen's normalizer and splitting."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY["other"],
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, specials: dict[str, str]) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` under which transformers keeps it as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **specials}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def batches(documents: list[str], tokenizer: Tokenizer, seed: int) -> Iterator[mx.array]:
    """Yield ``(BATCH, CONTEXT + 1)`` token ids without end.

    A row is ``<s>``, a document from a random word on, ``</s>``, another document, and so on:
    prompts may begin anywhere, and every place in the text is seen at every position.
    """
    rng = np.random.default_rng(seed)
    starts = [(d, match) for d, text in enumerate(documents) for match in word_starts(text)]
    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    while True:
        rows = []
        for place in rng.integers(len(starts), size=BATCH):
            document, offset = starts[place]
            row, text = [bos], documents[document][offset:]
            while len(row) <= CONTEXT:
                row += [*tokenizer.encode(text, add_special_tokens=False).ids, eos]
                text = documents[rng.integers(len(documents))]
            rows.append(row[: CONTEXT + 1])
        yield mx.array(rows)


def word_starts(text: str) -> list[int]:
    """Return the offsets (characters) at which words begin.

    >>> word_starts("a bc\\nd")
    [0, 2, 5]
    """
    return [i for i, char in enumerate(text) if not char.isspace() and (i == 0 or text[i - 1].isspace())]


def train(name: str, config: dict[str, Any], feed: Iterator[mx.array], steps: int, seed: int) -> Model:
    """Train a model from random weights: AdamW, linear warm-up, cosine decay, clipped gradients."""
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict(config))
    warm_up, peak = max(1, steps // 20), PEAK_RATE[name]
    rise = optim.linear_schedule(0.0, peak, warm_up)
    fall = optim.cosine_decay(peak, max(1, steps - warm_up), peak / 50)
    optimizer = optim.AdamW(optim.join_schedules([rise, fall], [warm_up]), betas=[0.9, 0.98], weight_decay=0.01)

    def loss_of(model: Model, rows: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(rows[:, :-1]), rows[:, 1:], reduction="mean")

    step_of = nn.value_and_grad(model, loss_of)
    progress = tqdm(range(steps), desc=name, unit="step", disable=None)
    for _ in progress:
        loss, gradients = step_of(model, next(feed))
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
        progress.set_postfix(loss=f"{loss.item():.3f}")
    return model
