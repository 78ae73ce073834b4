"""Make the tiny models and tokenizers that the package bundles for ``spectool demo``.

Everything is trained from scratch on the project's own sample texts (``corpora/samples``). The target has read two
short files and nothing else, so it recites them and babbles elsewhere. That is enough to try drafting, alignment and
generation offline, and says nothing about the quality or the speed of real models. It takes about 20 minutes on two
cores. `spectool demo` shows how well the draft serves the target.

The same seed, machine and BLAS give the same weights. MLX's CPU build for Linux links a slow BLAS; preload another one
before Python starts, which makes matrix products about 50 times as fast:

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 python lab/experiments/make_demo_models.py
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import save_config
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_LANGUAGES = ("pl", "uk")
HELD_OUT_EVERY = 20  # documents
RARE = 5  # occurrences
ROW_TOKENS = 256  # tokens
STEP_TOKENS = 512
VOCABULARY = {"target": 1536, "other": 2048}
SHAPES = {
    "target": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 640},
    "draft": {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256},
}
PEAK_RATE = {"target": 2e-3, "draft": 3e-3}
SHARED_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": ROW_TOKENS,
    "model_type": "llama",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": VOCABULARY["target"],
}
# SentencePiece trains inside words, without digits or punctuation glued to letters.
WORDS = r"▁?[\p{L}\p{M}'’ʼ]+|▁?\p{N}|▁?[^\p{L}\p{M}\p{N}▁]+|▁+"
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def sample_documents(language: str) -> list[str]:
    """The documents of one bundled sample: paragraphs by line, empty lines between documents."""
    text = (ROOT / "corpora" / "samples" / f"{language}.txt").read_text(encoding="utf-8")
    return [document.strip("\n") for document in text.split("\n\n") if document.strip()]


def mistral_like(lines: list[str]) -> Tokenizer:
    """Train a SentencePiece-style BPE with byte fallback, laid out as Mistral's: specials, bytes, pieces."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    scratch = Tokenizer(models.BPE())
    scratch.normalizer = normalizer
    scratch.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    reserved = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # Rare characters are left to byte fallback, as in real tokenizers; chosen here, since the
    # trainer's own limit breaks ties by hash order.
    counts = Counter("▁" + "".join(lines).replace(" ", "▁"))
    alphabet = sorted(char for char, count in counts.items() if count >= RARE)
    limits = {"vocab_size": VOCABULARY["target"], "limit_alphabet": len(alphabet), "show_progress": False}
    trainer = trainers.BpeTrainer(special_tokens=reserved, initial_alphabet=alphabet, **limits)
    scratch.train_from_iterator(lines, trainer)
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
    limits = {"vocab_size": VOCABULARY["other"], "special_tokens": ["<|endoftext|>"], "show_progress": False}
    trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **limits)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, specials: dict[str, str]) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` under which transformers keeps it as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **specials}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def batches(documents: list[str], tokenizer: Tokenizer, steps: int, seed: int) -> Iterator[mx.array]:
    """Arrays of ids ``[rows, length + 1]`` for each step, with ``STEP_TOKENS`` predictions each.

    A row is ``<s>``, a document from a random word on, ``</s>``, another document, and so on, so that prompts may begin
    anywhere. The first two thirds of the steps have rows of half the length, which is faster.
    """
    rng = np.random.default_rng(seed)
    words = [(text, match.start()) for text in documents for match in re.finditer(r"\S+", text)]
    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    for step in range(steps):
        length = ROW_TOKENS // 2 if step < steps * 2 // 3 else ROW_TOKENS
        rows = []
        for place in rng.integers(len(words), size=STEP_TOKENS // length):
            text, offset = words[place]
            row, text = [bos], text[offset:]
            while len(row) <= length:
                row += [*tokenizer.encode(text, add_special_tokens=False).ids, eos]
                text = documents[rng.integers(len(documents))]
            rows.append(row[: length + 1])
        yield mx.array(rows)


def trained_model(name: str, feed: Iterator[mx.array], steps: int, seed: int) -> Model:
    """Train a model from random weights: AdamW, linear warm-up, cosine decay, clipped gradients."""
    mx.random.seed(seed)
    model = Model(ModelArgs.from_dict({**SHARED_CONFIG, **SHAPES[name]}))
    warm_up, peak = max(1, steps // 20), PEAK_RATE[name]
    rise = optim.linear_schedule(0.0, peak, warm_up)
    fall = optim.cosine_decay(peak, max(1, steps - warm_up), peak / 50)
    rate = optim.join_schedules([rise, fall], [warm_up])
    optimizer = optim.AdamW(rate, betas=[0.9, 0.98], weight_decay=0.01)

    def loss_of(rows: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(rows[:, :-1]), rows[:, 1:], reduction="mean")

    step_of = nn.value_and_grad(model, loss_of)
    for rows in (progress := tqdm(feed, desc=name, total=steps, unit="step", disable=None)):
        loss, gradients = step_of(rows)
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)
        progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    return model


def save_quantized(name: str, model: Model, folder: Path) -> None:
    """Quantize ``model`` to 8 bits and write it to ``folder``."""
    quantization = {"group_size": 64, "bits": 8}
    nn.quantize(model, **quantization)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    save_config({**SHARED_CONFIG, **SHAPES[name], "quantization": quantization}, folder / "config.json")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "runtime" / "demo", show_default=True)
@click.option("--steps", default=2500, show_default=True, help=f"Training steps of {STEP_TOKENS} tokens.")
@click.option("--seed", default=0, show_default=True, help="Seeds the weights and the order of the text.")
def main(out: Path, steps: int, seed: int) -> None:
    r"""Make the bundled demo models and tokenizers.

    \b
    Example: python lab/experiments/make_demo_models.py --out /tmp/demo --steps 20
    """
    samples = [sample_documents(language) for language in SAMPLE_LANGUAGES]
    documents = list(chain(*samples))
    lines = "\n".join(documents).split("\n")
    specials = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = mistral_like(lines)
    for name in SHAPES:
        write_tokenizer(tokenizer, out / name, specials)
    write_tokenizer(qwen_like(lines), out / "other", {"eos_token": "<|endoftext|>"})
    held_out = [text for sample in samples for text in sample[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]]
    training = [text for text in documents if text not in held_out]
    for name in SHAPES:
        model = trained_model(name, batches(training, tokenizer, steps, seed), steps, seed)
        save_quantized(name, model, out / name)
    click.echo(f"{out}  {sum(path.stat().st_size for path in out.rglob('*') if path.is_file())} bytes")


if __name__ == "__main__":
    main()
