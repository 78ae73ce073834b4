"""Make the tiny models and tokenizers that the package bundles for ``spectool demo``.

Everything is trained from scratch on the project's own sample texts (``corpora/samples``), so the target has read two
short files and nothing else. It recites what it has read by heart and babbles elsewhere. That is enough to exercise
drafting, alignment and generation offline, and says nothing about quality or about speed-ups of real models. About 20
minutes on two cores.

Same seed, machine and BLAS give the same weights. MLX's CPU build links the reference BLAS;
preload another before Python starts where that is slow (matrix products about 50 times faster):

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 python lab/experiments/make_demo_models.py
"""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm import load, stream_generate
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import save_config
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("pl", "uk")
HELD_OUT_EVERY = 20  # documents
RARE = 5  # occurrences
CONTEXT = 256  # tokens
STEP_TOKENS = 512
PROMPT_WORDS, CONTINUATION_TOKENS = 6, 120
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
    "max_position_embeddings": CONTEXT,
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
    """Return the documents of one bundled sample: paragraphs by line, empty lines between documents."""
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


def save_tokenizer(tokenizer: Tokenizer, folder: Path, specials: dict[str, str]) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` under which transformers keeps it as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **specials}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def batches(documents: list[str], tokenizer: Tokenizer, steps: int, seed: int) -> Iterator[mx.array]:
    """Yield ``steps`` arrays of ids ``(rows, length + 1)``, ``STEP_TOKENS`` predictions each.

    A row is ``<s>``, a document from a random word on, ``</s>``, another document, and so on, so
    that prompts may begin anywhere. The first two thirds use half the context: attention is dear.
    """
    rng = np.random.default_rng(seed)
    words = [(text, match.start()) for text in documents for match in re.finditer(r"\S+", text)]
    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    for step in range(steps):
        length = CONTEXT // 2 if step < steps * 2 // 3 else CONTEXT
        rows = []
        for place in rng.integers(len(words), size=STEP_TOKENS // length):
            text, offset = words[place]
            row, text = [bos], text[offset:]
            while len(row) <= length:
                row += [*tokenizer.encode(text, add_special_tokens=False).ids, eos]
                text = documents[rng.integers(len(documents))]
            rows.append(row[: length + 1])
        yield mx.array(rows)


def train(name: str, feed: Iterator[mx.array], steps: int, seed: int) -> Model:
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


def save_quantized(name: str, model: Model, folder: Path) -> nn.Module:
    """Write a copy of ``model`` with 8-bit weights to ``folder``; return what ``load`` reads there."""
    config: dict[str, Any] = {**SHARED_CONFIG, **SHAPES[name]}
    copy = Model(ModelArgs.from_dict(config))
    copy.load_weights(tree_flatten(model.parameters()))
    config["quantization"] = {"group_size": 64, "bits": 8}
    nn.quantize(copy, **config["quantization"])
    weights = dict(tree_flatten(copy.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    save_config(config, folder / "config.json")
    return load(str(folder))[0]


def windows(tokenizer: Tokenizer, documents: list[str]) -> list[mx.array]:
    """Return each document's ids (``<s>`` first) in windows of ``CONTEXT`` that overlap by one token."""
    ids = [tokenizer.encode(document).ids for document in documents]
    return [mx.array(d[i : i + CONTEXT + 1]) for d in ids for i in range(0, len(d) - 1, CONTEXT)]


def code_length(model: nn.Module, rows: list[mx.array]) -> float:
    """Return how many bits ``model`` needs for ``rows``, the first token of each given."""
    losses = [nn.losses.cross_entropy(model(row[None, :-1])[0], row[1:], reduction="sum") for row in rows]
    return sum(loss.item() for loss in losses) / math.log(2)


def same_choice(one: nn.Module, two: nn.Module, rows: list[mx.array]) -> float:
    """Return the share of positions at which both models find the same token most probable."""
    same = [mx.argmax(one(row[None]), -1) == mx.argmax(two(row[None]), -1) for row in rows]
    return float(mx.concatenate(same, axis=1).mean().item())


def show_continuations(out: Path, kind: str, documents: list[str]) -> None:
    """Print greedy continuations of the documents' first words, and how often the draft agrees with them."""
    (target, tokenizer, *_), (draft, *_) = load(str(out / "target")), load(str(out / "draft"))
    agreed, speeds = [], []
    for document in documents:
        prompt = " ".join(document.split()[:PROMPT_WORDS])
        *steps, last = stream_generate(target, tokenizer, prompt, max_tokens=CONTINUATION_TOKENS)
        click.echo(f"  {prompt} |{''.join(step.text for step in [*steps, last])!r}")
        before, answer = tokenizer.encode(prompt), [step.token for step in steps]
        guesses = mx.argmax(draft(mx.array([before + answer])), -1)[0, len(before) - 1 : -1]
        agreed += [guess == token for guess, token in zip(guesses.tolist(), answer, strict=True)]
        speeds.append(last.generation_tps)
    share = sum(agreed) / max(1, len(agreed))
    click.echo(f"{kind + ' prompts':<24}  draft agrees with {share:.1%} of {len(agreed)} greedy tokens")
    click.echo(f"{'target':<24}  {sum(speeds) / len(speeds):.0f} tokens/s")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "runtime" / "demo", show_default=True)
@click.option("--steps", default=2500, show_default=True, help=f"Training steps of {STEP_TOKENS} tokens.")
@click.option("--seed", default=0, show_default=True, help="Seeds the weights and the order of the text.")
@click.option("--only", type=click.Choice(["tokenizers", "target", "draft"]), help="Make one part anew.")
def main(out: Path, steps: int, seed: int, only: str | None) -> None:
    r"""Make the bundled demo models and tokenizers, and measure them.

    \b
    Example: python lab/experiments/make_demo_models.py --out /tmp/demo --steps 20
    """
    samples = [sample_documents(language) for language in LANGUAGES]
    documents = list(chain(*samples))
    if only in (None, "tokenizers"):
        lines = "\n".join(documents).split("\n")
        specials = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        for name in SHAPES:
            save_tokenizer(mistral_like(lines), out / name, specials)
        save_tokenizer(qwen_like(lines), out / "other", {"eos_token": "<|endoftext|>"})
        for name, (language, sample) in product(VOCABULARY, zip(LANGUAGES, samples, strict=True)):
            tokenizer, text = Tokenizer.from_file(str(out / name / "tokenizer.json")), "\n".join(sample)
            fertility = len(tokenizer.encode(text, add_special_tokens=False).ids) / len(text.split())
            click.echo(f"{name + ' ' + language:<24}  {fertility:.2f} tokens per word")
    if not (out / "target" / "tokenizer.json").is_file():
        raise click.UsageError(f"{out}: no tokenizers there. Make them first: --only tokenizers")
    tokenizer = Tokenizer.from_file(str(out / "target" / "tokenizer.json"))
    held_out = [text for sample in samples for text in sample[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]]
    training = [text for text in documents if text not in held_out]
    splits = {"training": training, "held-out": held_out}
    for name in [n for n in SHAPES if only in (None, n)]:
        started = time.perf_counter()
        model = train(name, batches(training, tokenizer, steps, seed), steps, seed)
        minutes = (time.perf_counter() - started) / 60
        stored = save_quantized(name, model, out / name)
        parameters = sum(weights.size for _, weights in tree_flatten(model.parameters()))
        click.echo(f"{name:<24}  {parameters} parameters, trained in {minutes:.1f} min")
        for kind, part in splits.items():
            bits = code_length(model, windows(tokenizer, part)) / sum(len(text.encode()) for text in part)
            click.echo(f"{name + ' ' + kind:<24}  {bits:.3f} bits per byte")
        same = same_choice(model, stored, windows(tokenizer, held_out))
        click.echo(f"{name + ' 8-bit = float':<24}  {same:.1%} of held-out positions")
    if all((out / name / "model.safetensors").is_file() for name in SHAPES):
        show_continuations(out, "training", [s[i] for s in samples for i in (0, 15, 30)])
        show_continuations(out, "held-out", held_out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    click.echo(f"{out}  {size} bytes")


if __name__ == "__main__":
    main()
