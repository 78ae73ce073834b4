"""Wall clock with pretrained models: every configuration beside plain decoding and mlx-lm's own speculative decoding.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 OPENBLAS_NUM_THREADS=1 \\
        python benchmarks/real_speed.py --same qwen2.5-coder-0.5b --draft smollm2-135m --language pl

``--same`` has the target's tokenizer: mlx-lm's own loop drafts with it as well. ``--draft`` has another one, and its
tokens are translated. ``--fork`` names ``mlx_lm/generate.py`` of the published fork (krzysiekfonal/mlx-lm, branch
feature/slem-with-context-aware), whose own loop then drafts with these, with its window of `WINDOW` tokens.

Prompts are those of ``real_text.py``. At a temperature, drawn text depends on prompt and position alone, so that every
configuration must give the same tokens (``wall_clock.Noise``). Each prompt is decoded in all configurations, every
other prompt in the opposite order. Speed is seconds of mlx-lm's plain loop over seconds of the configuration on the
same prompt: the median of these, with quartiles. Prompt passes are left out. ``auto`` lets every drafter choose draft
lengths by what it has learnt in all prompts so far, as ``spectool serve`` does.

Prints a Markdown table and adds to ``benchmarks/results/real_speed.jsonl``.
"""

import importlib.util
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click
import mlx.core as mx
from real_artifacts import alignment_of, dictionary_of
from real_models import real_model
from real_text import prompt_ids, real_prompts, repeated_4_grams
from tqdm import tqdm
from wall_clock import PASSES, PLAIN, Configuration, Noise, Steps, ours, theirs

from spectool.measure.bench.timing import pass_cost
from spectool.runtime import Controller, load_drafter
from spectool.runtime.loading import load_model

RESULTS = Path(__file__).parent / "results" / "real_speed.jsonl"
WINDOW = 5  # p of the published scheme, in target tokens


@click.command()
@click.option("--target", default="qwen2.5-coder-1.5b", show_default=True)
@click.option("--same", help="Draft model with the target's tokenizer; none by default.")
@click.option("--draft", "drafts", multiple=True, help="Draft model with another tokenizer; repeatable.")
@click.option("--fork", type=click.Path(exists=True, dir_okay=False), help="generate.py of the published fork.")
@click.option("--strategy", "strategies", multiple=True, default=("context", "anchored"), show_default=True)
@click.option("--language", default="pl", show_default=True)
@click.option("--temperature", default=0.7, show_default=True)
@click.option("--prompts", "number", default=5, show_default=True)
@click.option("--tokens", default=64, show_default=True, help="Tokens of an answer.")
@click.option("--num-draft-tokens", "lengths", multiple=True, default=("auto", "4"), show_default=True)
@click.option(
    "--way", "wanted", multiple=True, help="Only configurations with this in their name, beside mlx-lm's plain loop."
)
def main(
    target: str,
    same: str | None,
    drafts: tuple[str, ...],
    fork: str | None,
    strategies: tuple[str, ...],
    language: str,
    temperature: float,
    number: int,
    tokens: int,
    lengths: tuple[str, ...],
    wanted: tuple[str, ...],
) -> None:
    """Measure, print and save."""
    model, tokenizer = load_model(real_model(target))
    prompts = [prompt_ids(tokenizer, target, text) for text in real_prompts(target, language, number)]
    pair = load_model(real_model(same)) if same else None
    measured: dict[str, Configuration] = {PLAIN: Configuration(model)}
    for length in lengths:
        if pair and length.isdigit():
            measured[f"mlx-lm, {same}, {length}"] = Configuration(model, pair[0], int(length), theirs)
        for draft in drafts if fork and length.isdigit() else ():
            both = tokenizer, *load_model(real_model(draft))
            measured[f"published fork, {draft}, {length}"] = Configuration(
                model, both, int(length), published(str(fork))
            )
        for name, drafter in drafters(target, language, pair and (str(same), pair), drafts, strategies):
            measured[f"{name}, {length}"] = Configuration(
                model, drafter, int(length) if length.isdigit() else Controller(), ours
            )
    if wanted:
        measured = {
            name: one for name, one in measured.items() if name == PLAIN or any(part in name for part in wanted)
        }
    outputs: list[list[int]] = []
    with tqdm(total=len(prompts) * len(measured), unit=" answers") as bar:
        for turn, prompt in enumerate(prompts):
            noise = [Noise(temperature, turn, model(mx.array([[0]])).shape[-1])] if temperature else None
            for name in list(measured)[:: -1 if turn % 2 else 1]:
                output = measured[name].run(prompt, tokens, noise)
                if len(outputs) == turn:
                    outputs.append(output)
                measured[name].different += output != outputs[turn]
                bar.update()
    about = {
        "target": target,
        "language": language,
        "temperature": temperature,
        "prompts": len(prompts),
        "tokens": tokens,
        "blas": "OpenBLAS" if "openblas" in os.environ.get("LD_PRELOAD", "") else "reference",
        "machine": platform.machine(),
        "plain ms a token": round(median(measured[PLAIN].seconds) / (tokens - 1) * 1e3, 1),
        "pass cost": {size: round(pass_cost(model, size), 2) for size in PASSES},
        "repeated 4-grams": round(repeated_4_grams(outputs), 3),
    }
    lines = [{**about, "way": name, **one.figures(measured[PLAIN])} for name, one in measured.items()]
    with RESULTS.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    columns = [column for column in lines[-1] if column not in about]
    click.echo(json.dumps(about))
    click.echo("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for line in lines:
        click.echo("| " + " | ".join(str(line[column]) for column in columns) + " |")


def published(path: str) -> Callable[..., Steps]:
    """Return the loop of the published fork, from its own code in the place of the installed module."""
    spec = importlib.util.spec_from_file_location("mlx_lm.published", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def loop(prompt: mx.array, configuration: Configuration, tokens: int, noise: Any) -> Steps:
        tokenizer, draft, draft_tokenizer = configuration.drafter
        return module.speculative_generate_step(
            prompt,
            configuration.target,
            draft,
            tokenizer=tokenizer,
            draft_tokenizer=draft_tokenizer,
            num_draft_tokens=configuration.length,
            translation_prefix_tokens=WINDOW,
            max_tokens=tokens,
            logits_processors=noise,
        )

    return loop


def drafters(
    target: str,
    language: str,
    same: tuple[str, Any] | None,
    drafts: tuple[str, ...],
    strategies: tuple[str, ...],
) -> Iterator[tuple[str, Any]]:
    """Yield every drafter of ours by its name."""
    where = Path(real_model(target))
    dictionary = dictionary_of(f"{target}-{language}", where, language) if language != "en" else None
    beside = "dictionary + history" if dictionary else "history"
    yield "history", load_drafter(str(where))
    if dictionary:
        yield beside, load_drafter(str(where), dictionary=dictionary)
    if same:
        yield same[0], load_drafter(str(where), draft_model=same[1], history=False)
        yield f"{same[0]} + {beside}", load_drafter(str(where), dictionary=dictionary, draft_model=same[1])
    for draft in drafts:
        model = load_model(real_model(draft))
        alignment = alignment_of(f"{draft}-{target}-{language}", Path(real_model(draft)), where, language)
        for strategy in strategies:
            found = load_drafter(str(where), draft_model=model, alignment=alignment, strategy=strategy, history=False)
            yield f"{draft}, {strategy}", found
        found = load_drafter(str(where), dictionary=dictionary, draft_model=model, alignment=alignment)
        yield f"{draft} + {beside}", found


if __name__ == "__main__":
    main()
