"""Dictionary and history on text that pretrained models wrote, compared with the published look-ups.

    python benchmarks/real_text.py --model gemma3-270m --language pl --temperature 0.7
    python benchmarks/real_drafters.py --model gemma3-270m

Every text of a model that ``real_text.py`` has kept is replayed after its prompt with each drafter, with k draft tokens
per cycle. The replay takes as many passes as generating would have taken, because look-ups propose tokens and no
distributions. Dictionaries are built once, from other text of the language. Intervals are 95% intervals, bootstrapped
over prompts. Look-ups cost microseconds, so the speed is the tokens per pass divided by the cost of a pass of k + 1
tokens, in passes of one token.

Prints a Markdown table and appends to ``benchmarks/results/real_drafters.jsonl``.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
from real_data import dictionary_of, dictspec_of
from real_ladder import interval
from real_text import FOLDER, read_text, repeated_4_grams

from spectool.artifacts import Dictionary
from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.lab.prompt_lookup import PromptLookupDrafter, with_prompt_lookup
from spectool.measure.emulate import replay
from spectool.runtime.decoding.drafter import Drafter
from spectool.runtime.drafters.lookup import LookupDrafter

RESULTS = Path(__file__).parent / "results" / "real_drafters.jsonl"
_TEXT = re.compile(r"(?P<language>\w+)\.t(?P<temperature>[\d.]+?)(\.p(?P<penalty>[\d.]+))?")


def drafters(model: str, language: str) -> Iterator[tuple[str, Drafter]]:
    """Yield every drafter by name."""
    ours = Dictionary(dictionary_of(model, language))
    theirs = Dictionary(dictspec_of(model, language))
    yield "prompt look-up (vLLM)", PromptLookupDrafter()
    yield "DictSpec", LookupDrafter(theirs)
    yield "DictSpec and prompt look-up", with_prompt_lookup(LookupDrafter(theirs, False))
    yield "history", LookupDrafter(None, True, MIN_PROBABILITY)
    yield "dictionary", LookupDrafter(ours, False, MIN_PROBABILITY)
    yield "dictionary and history", LookupDrafter(ours, True, MIN_PROBABILITY)
    yield "dictionary and history, from 0", LookupDrafter(ours, True)


@click.command()
@click.option("--model", required=True, help="Of real_models.py, or a directory, or a hub id.")
@click.option("--language", "languages", multiple=True, default=("pl", "uk"), show_default=True)
@click.option("--num-draft-tokens", "lengths", type=int, multiple=True, default=(4,), show_default=True)
def main(model: str, languages: tuple[str, ...], lengths: tuple[int, ...]) -> None:
    """Replay all texts of a model with every drafter; save and print."""
    name, rows = Path(model).name, []
    for path in sorted(FOLDER.glob(f"{name}.*.jsonl")):
        told = _TEXT.fullmatch(path.name.removeprefix(f"{name}.").removesuffix(".jsonl"))
        if told is None or told["language"] not in languages:
            continue
        texts = read_text(path)
        for length in lengths:
            for label, drafter in drafters(model, told["language"]):
                runs = [replay([text.output], drafter, length, prompts=[text.prompt]) for text in texts]
                tokens, passes, proposed, accepted = (
                    sum(getattr(run, count) for run in runs) for count in ("tokens", "passes", "proposed", "accepted")
                )
                rows.append(
                    {
                        "model": name,
                        "language": told["language"],
                        "temperature": float(told["temperature"]),
                        "penalty": float(told["penalty"]) if told["penalty"] else None,
                        "tokens": tokens,
                        "prompts": len(texts),
                        "repeated 4-grams": round(repeated_4_grams([text.output for text in texts]), 4),
                        "k": length,
                        "drafter": label,
                        "tokens per pass": interval(runs),
                        "acceptance": round(accepted / proposed, 4) if proposed else None,
                        "drafted": round(proposed / passes, 3),
                    }
                )
                click.echo(json.dumps(rows[-1], ensure_ascii=False))
    if not rows:
        raise click.ClickException(f"no text of {name} in {FOLDER}; write some with benchmarks/real_text.py")
    with RESULTS.open("a") as results:
        results.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
