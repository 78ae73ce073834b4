"""Files that a real model writes again, drafted from a prediction: passes, and seconds where the prediction is useless.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 python benchmarks/predictions.py
    python benchmarks/predictions.py --edits .

The model is asked to repeat the beginning of a source file. The prediction is what it then writes, with words changed
in as many places as `--changes` says, or a text in another language. Each answer is written in turns with and without
the prediction. Ratios are medians over the rounds. With ``--edits`` no model runs: real edits from the history of a
git repository are replayed, each file before the edit as the prediction of the file after it.
Adds lines to ``benchmarks/results/predictions.jsonl``.
"""

import inspect
import json
import random
import subprocess
import time
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType
from typing import Any

import click
from real_models import real_model
from saving import save

from spectool.runtime import stream_generate
from spectool.runtime.drafters import prediction
from spectool.runtime.drafters.drafter import accepted_length
from spectool.runtime.drafters.prediction import PredictionDrafter
from spectool.runtime.loading import load_model
from spectool.runtime.policy import curve, policy
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

FILES: tuple[ModuleType, ...] = (curve, policy, prediction)
POLISH = "Wczoraj wieczorem w domu kultury odbyło się spotkanie mieszkańców z burmistrzem miasta. "


def changed(text: str, places: int, rng: random.Random) -> str:
    """``text`` with another word at a number of ``places``."""
    words = text.split(" ")
    for place in rng.sample([at for at, word in enumerate(words) if len(word) > 2], places):
        words[place] = rng.choice(["another", "previous", "renamed", "value_of", "Old"])
    return " ".join(words)


def edits(repository: Path, tokenizer: Tokenizer, longest: int, rng: random.Random) -> Iterator[tuple[list[int], ...]]:
    """Ids of files before and after edits that changed 3 to 20% of their first ``longest`` tokens."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True).stdout

    commits = git("log", "--no-merges", "--format=%h").split()
    for commit in rng.sample(commits, len(commits)):
        for path in git(
            "show", "--format=", "--name-only", "--diff-filter=M", commit, "--", "*.py", "*.md"
        ).splitlines():
            before, after = (tokenizer.encode(git("show", f"{at}:{path}"))[:longest] for at in (f"{commit}~", commit))
            matching = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
            if len(after) > longest / 3 and 0.03 < 1 - sum(block.size for block in matching) / len(after) < 0.2:
                yield before, after


def passes_of(prediction: list[int], text: list[int], length: int) -> int:
    """Passes for ``text`` with up to ``length`` draft tokens in each."""
    drafter, at, passes = PredictionDrafter(prediction), 0, 0
    while at < len(text):
        proposed = drafter.propose(length).tokens if drafter.found else ()
        committed = text[at : at + 1 + accepted_length(proposed, text[at:])]
        drafter.commit(committed)
        at, passes = at + len(committed), passes + 1
    return passes


@click.command()
@click.option("--model", "name", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--tokens", default=400, show_default=True, help="Tokens of an answer, at most.")
@click.option("--changes", default=12, show_default=True, help="Places in which a prediction differs.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--draft-tokens", type=int, help="Draft length; chosen while the model writes if omitted.")
@click.option("--edits", "repository", type=click.Path(exists=True, path_type=Path), help="Replay edits of this.")
@click.option("--seed", default=7, show_default=True)
def main(
    name: str, tokens: int, changes: int, rounds: int, draft_tokens: int | None, repository: Path | None, seed: int
) -> None:
    """Compare answers with and without predictions."""
    rng = random.Random(seed)
    if repository:
        pairs = list(islice(edits(repository, open_tokenizer(real_model(name)), tokens, rng), 80))
        for length in (draft_tokens,) if draft_tokens else (8, 24):
            shares = [passes_of(before, after, length) / len(after) for before, after in pairs]
            print(
                f"{len(pairs)} edits, up to {length} draft tokens: median {median(shares):.3f} of the passes of plain"
            )
            print(f"decoding, nine in ten at most {quantiles(shares, n=10)[-1]:.3f}")
        return
    model, tokenizer = load_model(real_model(name))
    for file in FILES:
        source = inspect.getsource(file)
        asked = f"Write this file once more, without any change.\n\n```python\n{source}```"
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": asked}], add_generation_prompt=True)

        def answer(prompt: list[int] = prompt, **options: Any) -> tuple[list[int], int, float]:
            began = time.perf_counter()
            responses = list(stream_generate(model, tokenizer, prompt, max_tokens=tokens, **options))
            seconds = time.perf_counter() - began
            return [response.token for response in responses], responses[-1].drafting.passes, seconds

        expected, plain_passes, _ = answer()
        text = tokenizer.decode(expected)
        predictions = {"the same": text, "changed": changed(text, changes, rng), "Polish": POLISH * 20}
        for kind, predicted_text in predictions.items():
            options = {"prediction": predicted_text, "num_draft_tokens": draft_tokens}
            passes, ratios = 0, []
            for turn in range(rounds):
                runs: dict[bool, float] = {}
                for predicted in (True, False) if turn % 2 else (False, True):
                    written, count, runs[predicted] = answer(**options if predicted else {})
                    if written != expected:
                        raise SystemExit(f"{kind}: the answer differs from plain decoding")
                    passes = count if predicted else passes
                ratios.append(runs[True] / runs[False])
            figures = {
                "model": name,
                "file": file.__name__.rpartition(".")[2],
                "prediction": kind,
                "tokens": len(expected),
                "passes": passes,
                "share_of_passes": round(passes / plain_passes, 3),
                "seconds_to_plain": [round(ratio, 3) for ratio in sorted(ratios)],
                "median": round(median(ratios), 3),
            }
            print(json.dumps(figures))
            save("predictions", figures)


if __name__ == "__main__":
    main()
