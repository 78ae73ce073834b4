"""Text that a real model writes, continuations and answers, kept for replay.

    python benchmarks/real_text.py --model gemma3-270m --language pl
    python benchmarks/real_text.py --model qwen2.5-coder-1.5b --language pl --temperature 0.7
    python benchmarks/real_text.py --model bielik-11b-v2.5 --language pl    tokenizer only: held-out text stands in

Base models continue the bundled prompts. Chat models get the first turns of Polish MT-Bench and Spec-Bench from the
folder named by SPECTOOL_SHARED, and in other languages the bundled prompts as a turn. Many prompts are decoded at once,
which is several times faster than one by one. Near-ties may therefore fall differently than in decoding one by one, but
the text is still one that the model wrote.

Replaying a text counts the same passes as generating it with exact-match verification, because greedy drafts do not
depend on how the target draws. The share of repeated 4-grams says how repetitive the text is, which favours drafts from
history.

Keeps .scratch/real_text/MODEL.LANGUAGE.tTEMPERATURE[.pPENALTY].jsonl, with the ids of a prompt and its output per line;
MODEL.LANGUAGE.held-out.jsonl where there is only a tokenizer.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import mlx.core as mx
from mlx_lm.generate import batch_generate
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from real_data import encoded, real_corpus, real_tokenizer
from real_models import BASE, PACKAGES, SHARED, real_model
from saving import json_lines

from spectool.runtime.loading import load_model

FOLDER = Path(__file__).parent.parent / ".scratch" / "real_text"
PERIOD = 128  # positions after which the noise repeats
_LONGEST = 400  # tokens of a prompt; the few longer ones are left out
_TOGETHER = 4  # prompts read at once, the shorter ones padded
TURNS = {"pl": "pl_mt_bench.jsonl", "en": "spec_bench.jsonl"}


class Written(NamedTuple):
    """A prompt and what the model wrote: target ids, special tokens of the prompt included."""

    prompt: list[int]
    output: list[int]


def held_out_text(model: str, language: str, most: int, tokens: int) -> Iterator[Written]:
    """Yield parts of held-out documents, each after as many tokens of the same document."""
    documents = encoded(real_tokenizer(model), real_corpus(language, "valid"), 16 * most * tokens)
    for ids in islice((ids for ids in documents if len(ids) > tokens), most):
        yield Written(ids[:tokens], ids[tokens : 2 * tokens])


def repeated_4_grams(texts: Sequence[Sequence[int]]) -> float:
    """Share of 4-grams that occurred before in the same text."""
    repeated = total = 0
    for ids in texts:
        grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
        total += len(grams)
        repeated += len(grams) - len(set(grams))
    return repeated / total if total else 0.0


def read_text(path: Path) -> list[Written]:
    """Read what ``main`` has kept."""
    return [Written(**line) for line in json_lines(path)]


def real_prompts(model: str, language: str, most: int) -> list[str]:
    """At most ``most`` prompts in the language, in the form that the model expects, evenly over all kinds."""
    if model not in BASE and language in TURNS:
        texts = [line["turns"][0] for line in json_lines(SHARED / "prompts" / TURNS[language])]
    else:
        bundled = resources.files("spectool.measure.bench") / "prompts" / f"{language}.toml"
        kinds = tomllib.loads(bundled.read_text(encoding="utf-8"))
        del kinds["composition"]  # it asks for longer text than is written here
        texts = list(chain.from_iterable(kinds.values()))
    return texts[:: max(1, len(texts) // most)][:most]


def prompt_ids(tokenizer: Any, model: str, text: str) -> list[int]:
    """The ids of a prompt: a turn for a chat model, BOS and text for a base model."""
    if model in BASE:
        return list(tokenizer.encode(text))
    turns = [{"role": "user", "content": text}]
    return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False))


def drawn(temperature: float, prompt: int, vocabulary: int) -> Callable[[mx.array, mx.array], mx.array]:
    """A logits processor that adds Gumbel noise by prompt and position, so that the best token is a drawn one."""
    noise = temperature * mx.random.gumbel((PERIOD, vocabulary), key=mx.random.key(prompt))
    mx.eval(noise)
    return lambda tokens, logits: logits + noise[tokens.size % PERIOD]


@click.command()
@click.option(
    "--model", default="gemma3-270m", show_default=True, help="Of real_models.py, or a directory, or a hub id."
)
@click.option("--language", default="pl", show_default=True)
@click.option("--temperature", default=0.0, show_default=True)
@click.option("--repetition-penalty", "penalty", type=float, help="For instance 1.1; none by default.")
@click.option("--prompts", "most", default=40, show_default=True)
@click.option("--tokens", default=160, show_default=True, help="Longest answer.")
@click.option("--batch", default=20, show_default=True, help="Prompts decoded at once.")
@click.option("--seed", default=0, show_default=True)
def main(
    model: str,
    language: str,
    temperature: float,
    penalty: float | None,
    most: int,
    tokens: int,
    batch: int,
    seed: int,
) -> None:
    """Write, keep, and print the beginning of each answer."""
    if model not in PACKAGES and (SHARED / "tokenizers" / model).is_dir():
        save(FOLDER / f"{model}.{language}.held-out.jsonl", list(held_out_text(model, language, most, tokens)))
        return
    mx.random.seed(seed)
    loaded, tokenizer = load_model(real_model(model))
    encoded = (prompt_ids(tokenizer, model, text) for text in real_prompts(model, language, most))
    prompts = [ids for ids in encoded if len(ids) <= _LONGEST]
    answers = batch_generate(
        loaded,
        tokenizer,
        prompts,
        max_tokens=tokens,
        return_token_ids=True,
        completion_batch_size=batch,
        prefill_batch_size=_TOGETHER,
        sampler=make_sampler(temperature),
        logits_processors=make_logits_processors(repetition_penalty=penalty) if penalty else None,
    ).token_ids
    written = [Written(prompt, ids) for prompt, ids in zip(prompts, answers, strict=True) if ids]
    end = f".p{penalty:g}" if penalty else ""
    save(FOLDER / f"{Path(model).name}.{language}.t{temperature:g}{end}.jsonl", written)
    for text in written[:4]:
        click.echo(f"… {tokenizer.decode(text.output)[:160]!r}")


def save(path: Path, written: Sequence[Written]) -> None:
    """Keep a text, and print what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(text._asdict()) + "\n" for text in written), encoding="utf-8")
    outputs = [text.output for text in written]
    click.echo(f"{path}: {sum(map(len, outputs)):,} tokens, {repeated_4_grams(outputs):.1%} repeated 4-grams")


if __name__ == "__main__":
    main()
