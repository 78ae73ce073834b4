"""The small trained models of the measurements: a target and its drafts, from a recipe.

    python benchmarks/train_models.py pl              # benchmarks/recipes/pl.toml, into .scratch/models/pl
    python benchmarks/train_models.py uk three        # one after the other
    python benchmarks/train_models.py pl --large      # the same for a GPU, 10 to 100 times the size

On a CPU the target and the drafts are trained side by side, each by a ``spectool lab train-draft`` of its own on one
core. A killed run goes on where it was. Prints what every model has learned and adds it to
``benchmarks/results/models.jsonl``. Tokenizers and corpora come from the folder named by SPECTOOL_SHARED. MLX's CPU
build links the reference BLAS; OpenBLAS is preloaded where Debian's libopenblas0-pthread is installed.
"""

import json
import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import mlx.core as mx
from real_data import SHARED

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "models.jsonl"
MODELS = HERE.parent / ".scratch" / "models"
OPENBLAS = Path("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3")


def read_recipe(name: str, large: bool) -> dict[str, dict[str, Any]]:
    """Return the models of a recipe by name, the target first, each with the text that it reads."""
    recipe = tomllib.loads((HERE / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))
    text = recipe.pop("text")
    models = {}
    for model, given in recipe.items():
        bigger = given.pop("large")
        models[model] = {"text": text, **given, **(bigger if large else {})}
    return models


def train(model: dict[str, Any], out: Path) -> dict[str, Any]:
    """Train a model with the command, its messages in a log beside it; return its record."""
    tokenizer = SHARED / "tokenizers" / model["tokenizer"]
    command = [sys.executable, "-m", "spectool.cli", "lab", "train-draft", "--json"]
    command += ["--tokenizer", tokenizer, "-o", out]
    command += ["--size", model["size"], "--steps", model["steps"], "--softmax-classes", model["softmax_classes"]]
    command += ["--boundary", model["boundary"]] if "boundary" in model else []
    for language, weight in model["text"].items():
        corpora = SHARED / "corpora"
        command += ["--corpus", f"{language}={corpora / language}.train.txt.zst", "--weight", weight]
        command += ["--valid", corpora / f"{language}.valid.txt.zst"]
    out.parent.mkdir(parents=True, exist_ok=True)
    log = out.with_suffix(".log")
    with log.open("a") as messages:
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=messages, text=True, env=environment()
        )
    if done.returncode:
        raise click.ClickException(f"{out.name}: training ended with {done.returncode}; see {log}")
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def environment() -> dict[str, str]:
    """Return the environment of a process that runs models: on a CPU, OpenBLAS on one core and memory that is kept."""
    if mx.default_device() != mx.cpu or not OPENBLAS.exists():
        return dict(os.environ)
    # glibc gives large blocks back to the system at once, and half of the time goes into having them cleared again.
    keep = {"MALLOC_MMAP_THRESHOLD_": str(1 << 33), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
    return {**os.environ, **keep, "LD_PRELOAD": str(OPENBLAS), "OPENBLAS_NUM_THREADS": "1"}


def made(recipe: str, large: bool) -> list[dict[str, Any]]:
    """Train all models of a recipe; return a line of figures for each."""
    models = read_recipe(recipe, large)
    folder = MODELS / (recipe + "-large" * large)
    lanes = 1 if mx.default_device() != mx.cpu else 2
    begun = time.perf_counter()
    with ThreadPoolExecutor(lanes) as pool:  # the target is the first, and takes about as long as the drafts
        runs = {name: pool.submit(train, model, folder / name) for name, model in models.items()}
        lines = []
        for name, running in runs.items():
            record = running.result()
            lines.append(
                {
                    "recipe": recipe,
                    "large": large,
                    "model": name,
                    "tokenizer": models[name]["tokenizer"],
                    "parameters": record["parameters"],
                    "tokens": record["tokens"],
                    "seconds": record["seconds"],
                    "bits_per_byte": {
                        language: round(found["bits_per_byte"], 4)
                        for language, found in record["held_out"]["corpora"].items()
                    },
                    "nats_per_token": {
                        language: round(found["nats_per_token"], 4)
                        for language, found in record["held_out"]["corpora"].items()
                    },
                }
            )
            click.echo(json.dumps(lines[-1]), err=True)
    click.echo(f"{recipe}: {(time.perf_counter() - begun) / 60:.1f} minutes in all, models in {folder}", err=True)
    return lines


def markdown(lines: list[dict[str, Any]]) -> str:
    """Lay the figures out as a table."""
    rows = [
        "| recipe | model | tokenizer | parameters | tokens | minutes | bits per byte |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for line in lines:
        bits = ", ".join(f"{language} {value:.3f}" for language, value in line["bits_per_byte"].items())
        parameters, tokens = line["parameters"]["trained"] / 1e6, line["tokens"] / 1e6
        rows.append(
            f"| {line['recipe']} | {line['model']} | {line['tokenizer']} | {parameters:.2f} M | {tokens:.1f} M "
            f"| {line['seconds'] / 60:.1f} | {bits} |"
        )
    return "\n".join(rows)


@click.command()
@click.argument("recipes", nargs=-1, required=True)
@click.option("--large", is_flag=True, help="Sizes for a GPU.")
def main(recipes: tuple[str, ...], large: bool) -> None:
    """Train, print and save."""
    lines = [line for recipe in recipes for line in made(recipe, large)]
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    click.echo(markdown(lines))


if __name__ == "__main__":
    main()
