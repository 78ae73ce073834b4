"""Wall clock of every configuration beside plain decoding and mlx-lm's own speculative decoding.

    python benchmarks/train_models.py pl uk three         # the models, once
    python benchmarks/wall_clock.py
    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 OPENBLAS_NUM_THREADS=1 \\
        python benchmarks/wall_clock.py
    python benchmarks/wall_clock.py --language uk --temperature 0

The target is the trained one of a recipe, made as heavy as ``--million`` parameters by neurons that add nothing. Its
text is the same; each pass costs what a model of that size costs. The drafts are the recipe's, as they are. ``auto``
lets every drafter choose its draft lengths by what it has learnt so far in all prompts, as ``spectool serve`` does.
``alone`` begins to learn anew with every prompt.

At a temperature the target's text is drawn with noise that depends on the prompt and the position alone. So every
configuration must give the same tokens. Greedy text of a small model runs in circles, which flatters drafts from
history. A round decodes each prompt in all configurations, every other round in the opposite order. Speed is seconds of
mlx-lm's plain loop over seconds of the configuration, in the same round and on the same prompt. It is the median of
these, with quartiles. Prompt passes are left out.

Prints a Markdown table and adds to ``benchmarks/results/wall_clock.jsonl``. Tokenizers and corpora come from the
folder named by SPECTOOL_SHARED.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import click
import mlx.core as mx
import real_artifacts
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step as host_generate_step
from mlx_lm.generate import speculative_generate_step
from real_data import real_corpus
from tqdm import tqdm
from train_models import MODELS

from spectool.measure.bench.timing import pass_cost
from spectool.runtime import Controller, load_drafter
from spectool.runtime.decoding.generation import generate_step
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.loading import load_model
from spectool.runtime.translation.factory import STRATEGIES
from spectool.tokenization import open_tokenizer

RESULTS = Path(__file__).parent / "results" / "wall_clock.jsonl"
PLAIN = "mlx-lm, plain"
PASSES = (2, 5, 9, 17)  # tokens in a pass whose cost is told
_PROMPT = 24  # tokens
_PERIOD = 128  # positions after which the noise repeats
# Drafts with the target's own tokenizer; the Polish one is of the recipe of three languages.
SAME_TOKENIZER = {"pl": MODELS / "three" / "draft", "uk": MODELS / "uk" / "same"}

Steps = Iterator[tuple[Any, ...]]


class Noise:
    """A logits processor: Gumbel noise by prompt and position, so that the best token is a drawn one.

    Drawn beforehand, and the same again after `_PERIOD` positions, so that it costs next to nothing.
    """

    def __init__(self, temperature: float, prompt: int, vocabulary: int) -> None:
        """Draw at ``temperature`` for the prompt of that number."""
        key = mx.random.key(prompt)
        self._noise = temperature * mx.random.gumbel((_PERIOD, vocabulary), key=key)
        mx.eval(self._noise)

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Return logits [1, vocabulary] with noise for the position after ``tokens`` [tokens]."""
        return logits + self._noise[tokens.size % _PERIOD]


@click.command()
@click.option("--language", type=click.Choice(["pl", "uk"]), default="pl", show_default=True)
@click.option("--models", type=click.Path(path_type=Path), default=MODELS, help="Where the trained models are.")
@click.option("--draft", "drafts", multiple=True, help="Drafts of the recipe, by name; all of them by default.")
@click.option("--million", default=33.0, show_default=True, help="Parameters of the target, in millions.")
@click.option("--temperature", default=0.7, show_default=True)
@click.option("--prompts", "number", default=5, show_default=True)
@click.option("--tokens", default=48, show_default=True, help="Tokens of a generation.")
@click.option("--rounds", default=2, show_default=True)
@click.option(
    "--num-draft-tokens",
    "lengths",
    multiple=True,
    default=("auto", "alone", "4"),
    show_default=True,
    help="Or numbers.",
)
@click.option(
    "--way", "wanted", multiple=True, help="Only configurations with this in their name, beside mlx-lm's plain loop."
)
@click.option("--save/--no-save", default=True)
def main(
    language: str,
    models: Path,
    drafts: tuple[str, ...],
    million: float,
    temperature: float,
    number: int,
    tokens: int,
    rounds: int,
    lengths: tuple[str, ...],
    wanted: tuple[str, ...],
    save: bool,
) -> None:
    """Measure, print and save."""
    folder = models / language
    target, loaded = load_model(str(folder / "target"))
    target = heavier(target, million * 1e6)
    tokenizer = open_tokenizer(loaded)
    texts = (document.text for document in real_corpus(language, "valid"))
    encoded = (tokenizer.encode(text) for text in texts)
    prompts = list(islice((ids[:_PROMPT] for ids in encoded if len(ids) >= 2 * _PROMPT), number))
    drafters = dict(make_drafters(language, folder, drafts))
    without = Configuration(target, length=0, loop=ours)
    measured: dict[str, Configuration] = {PLAIN: Configuration(target), "spectool, no drafter": without}
    for length in lengths:
        for name, drafter in drafters.items():
            if not callable(drafter):
                most = Controller() if length == "auto" else None if length == "alone" else int(length)
                measured[f"{name}, {length}"] = Configuration(target, drafter, most, ours)
            elif length.isdigit():
                measured[f"mlx-lm, {name}, {length}"] = Configuration(target, drafter, int(length), theirs)
    if wanted:
        measured = {
            name: one for name, one in measured.items() if name == PLAIN or any(part in name for part in wanted)
        }
    noises = [[Noise(temperature, prompt, target.args.vocab_size)] if temperature else None for prompt in range(number)]
    outputs: dict[int, list[int]] = {}
    with tqdm(total=rounds * number * len(measured), unit=" generation") as bar:
        for turn in range(rounds):
            for prompt, ids in enumerate(prompts):
                for one in list(measured.values())[:: -1 if turn % 2 else 1]:
                    output = one.run(ids, tokens, noises[prompt])
                    one.different += output != outputs.setdefault(prompt, output)
                    bar.update()
    about = {
        "language": language,
        "million parameters": round(parameters(target) / 1e6, 1),
        "temperature": temperature,
        "prompts": number,
        "tokens": tokens,
        "rounds": rounds,
        "blas": "OpenBLAS" if "openblas" in os.environ.get("LD_PRELOAD", "") else "reference",
        "machine": platform.machine(),
        "device": str(mx.default_device()),
        "plain ms a token": round(median(measured[PLAIN].seconds) / (tokens - 1) * 1e3, 3),
        "pass cost": {size: round(pass_cost(target, size), 2) for size in PASSES},
        "new 4-grams": round(new_windows(outputs.values()), 3),
    }
    lines = [{"way": name, **one.figures(measured[PLAIN])} for name, one in measured.items()]
    if save:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({**line, **about}) + "\n" for line in lines)
    click.echo(json.dumps(about))
    columns = list(lines[-1])
    click.echo("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for line in lines:
        click.echo("| " + " | ".join(str(line.get(column, "")) for column in columns) + " |")


def ours(prompt: mx.array, configuration: "Configuration", tokens: int, noise: Any) -> Steps:
    """Decode with this project's loop."""
    configuration.statistics.append(DraftStatistics())
    return generate_step(
        prompt,
        configuration.target,
        drafter=configuration.drafter,
        num_draft_tokens=Controller() if configuration.length is None else configuration.length,
        max_tokens=tokens,
        logits_processors=noise,
        statistics=configuration.statistics[-1],
    )


def theirs(prompt: mx.array, configuration: "Configuration", tokens: int, noise: Any) -> Steps:
    """Decode with mlx-lm's loops."""
    if configuration.drafter is None:
        return host_generate_step(prompt, configuration.target, max_tokens=tokens, logits_processors=noise)
    return speculative_generate_step(
        prompt,
        configuration.target,
        configuration.drafter,
        num_draft_tokens=configuration.length,
        max_tokens=tokens,
        logits_processors=noise,
    )


class Configuration:
    """How to decode, and what was measured."""

    def __init__(
        self,
        target: Any,
        drafter: Any = None,
        length: int | Controller | None = None,
        loop: Callable[..., Steps] = theirs,
    ) -> None:
        """Decode ``target`` by ``loop`` with at most ``length`` draft tokens; None or a controller: as many as pay."""
        self.target, self.drafter, self.length, self._loop = target, drafter, length, loop
        self.seconds: list[float] = []  # of each generation, after its first token
        self.statistics: list[DraftStatistics] = []
        self.different = 0

    def run(self, prompt: list[int], tokens: int, noise: Any) -> list[int]:
        """Decode; return the tokens."""
        steps = self._loop(mx.array(prompt), self, tokens, noise)
        output, passes, begun = [], 0, 0.0
        for token, _, *drafted in steps:
            output.append(int(token))
            passes += drafted != [True]  # a pass of mlx-lm's loops ends with a token of the target's own
            begun = begun or time.perf_counter()  # the prompt pass ends with the first token
        self.seconds.append(time.perf_counter() - begun)
        if self._loop is not ours:
            self.statistics.append(DraftStatistics(tokens=len(output), passes=passes))
        return output

    def figures(self, plain: "Configuration") -> dict[str, Any]:
        """Return speed beside ``plain``, and what was drafted."""
        speeds = [base / mine for base, mine in zip(plain.seconds, self.seconds, strict=True)]
        low, _, high = quantiles(speeds, n=4)
        figures: dict[str, Any] = {"speed": round(median(speeds), 3), "quartiles": [round(low, 3), round(high, 3)]}
        passes = sum(each.passes for each in self.statistics)
        proposed = sum(each.proposed for each in self.statistics)
        figures["other outputs"] = self.different
        figures["tokens per pass"] = round(sum(each.tokens for each in self.statistics) / passes, 3) if passes else ""
        figures["acceptance"] = round(sum(each.accepted for each in self.statistics) / proposed, 3) if proposed else ""
        return figures


def make_drafters(language: str, folder: Path, drafts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield every drafter by its name; a bare draft model is for mlx-lm's own loop."""
    others = (path for path in folder.iterdir() if path.is_dir() and path != SAME_TOKENIZER[language])
    drafts = drafts or tuple(sorted(path.name for path in others if path.name != "target"))
    target, dictionary = folder / "target", real_artifacts.dictionary(folder, language)
    yield "history", load_drafter(target)
    yield "dictionary", load_drafter(target, dictionary=dictionary, history=False)
    yield "dictionary + history", load_drafter(target, dictionary=dictionary)
    same = load_model(str(SAME_TOKENIZER[language]))
    yield "same tokenizer", same[0]
    yield "draft model", load_drafter(target, draft_model=same, history=False)
    yield "draft model + dictionary + history", load_drafter(target, dictionary=dictionary, draft_model=same)
    for draft in drafts:
        model, pair = load_model(str(folder / draft)), real_artifacts.alignment(folder, draft, language)
        for strategy in STRATEGIES:
            if strategy != "none":
                yield (
                    f"{draft} {strategy}",
                    load_drafter(target, draft_model=model, alignment=pair, strategy=strategy, history=False),
                )
        yield (
            f"{draft} + dictionary + history",
            load_drafter(target, dictionary=dictionary, draft_model=model, alignment=pair),
        )


def heavier(model: Any, size: float) -> Any:
    """Return a model of ``size`` parameters with the outputs of ``model``: its new neurons have no way out."""
    layers = model.layers
    more = max(0, round((size - parameters(model)) / (3 * model.args.hidden_size * len(layers))))
    for layer in layers:
        network = layer.mlp
        for into in (network.gate_proj, network.up_proj):
            into.weight = mx.concatenate([into.weight, mx.random.normal((more, into.weight.shape[1])) * 0.02])
        out = network.down_proj
        out.weight = mx.concatenate([out.weight, mx.zeros((out.weight.shape[0], more))], axis=1)
    mx.eval(model.parameters())
    return model


def parameters(model: Any) -> int:
    """Return how many numbers the model's weights are."""
    return sum(int(weight.size) for _, weight in tree_flatten(model.parameters()))


def new_windows(outputs: Iterable[list[int]]) -> float:
    """Return the share of windows of four tokens that an output has for the first time."""
    windows = [[tuple(output[i : i + 4]) for i in range(len(output) - 3)] for output in outputs]
    return sum(len(set(each)) for each in windows) / sum(map(len, windows))


if __name__ == "__main__":
    main()
