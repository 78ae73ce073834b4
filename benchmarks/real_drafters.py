"""Dictionary and history on text that pretrained models wrote, compared with the published look-ups.

    python benchmarks/real_text.py --model gemma3-270m --language pl --temperature 0.7
    python benchmarks/real_drafters.py --model gemma3-270m

Every text of a model that ``real_text.py`` has kept is replayed after its prompt with each drafter, with k draft tokens
per cycle. The replay takes as many passes as generating would have taken, because look-ups propose tokens and no
distributions. Dictionaries are built once, from other text of the language. Intervals are 95% intervals, bootstrapped
over prompts. Look-ups cost microseconds, so the speed is the tokens per pass divided by the cost of a pass of k + 1
tokens, in passes of one token.

With ``--draft``, every text is also replayed with look-ups, a draft model and both, each with a controller for all
texts, on a simulated machine whose passes cost what ``--row-cost`` and ``--draft-cost`` say, and compared with the best
choices in hindsight. The draft model is asked at every position of a text, which takes minutes.

Prints a Markdown table and appends to ``benchmarks/results/real_drafters.jsonl``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median

import click
from real_data import alignment_of, dictionary_of, dictspec_of
from real_ladder import interval
from real_models import real_model
from real_text import FOLDER, read_text, repeated_4_grams

from spectool.artifacts import Dictionary
from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.artifacts.pass_costs import DraftFacts
from spectool.lab.hindsight import Clock, Machine, Saved, SavedMember, best_seconds, play, record
from spectool.lab.prompt_lookup import PromptLookupDrafter, with_prompt_lookup
from spectool.measure.emulate import replay
from spectool.runtime import Controller, HybridDrafter, load_drafter
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


def compared(saved: Sequence[Saved], machine: Machine) -> Iterator[tuple[str, float, float]]:
    """Yield each way of drafting, its speed, and that of the first three texts, in plain decoding's.

    These are medians over six orders of the texts, since what is learnt depends on the order. The second ways begin as
    if `spectool doctor` had measured both models before.
    """
    ways = {"look-ups": ["look-ups"], "draft": ["draft"], "both": ["look-ups", "draft"]}
    orders = [Random(seed).sample(saved, len(saved)) for seed in range(6)]
    for way, names in (*ways.items(), *((f"{way}, measured before", names) for way, names in ways.items())):
        speeds = [_speeds(order, _played(order, names, machine, way not in ways)) for order in orders]
        yield way, *map(median, zip(*speeds, strict=True))
    for way, names in ways.items():
        speeds = [_speeds(order, [best_seconds(text, machine, names) for text in order]) for order in orders]
        yield f"{way}, best in hindsight", *map(median, zip(*speeds, strict=True))


def _played(texts: Sequence[Saved], names: Sequence[str], machine: Machine, measured: bool) -> list[float]:
    clock, controller = Clock(), Controller()
    members: list[Drafter] = [SavedMember(name, machine, clock) for name in names]
    drafter = HybridDrafter(members, clock=clock) if len(members) > 1 else members[0]
    if measured:
        controller.start_from({rows: machine.passes(rows) for rows in range(1, 18)}, None)
        for known in drafter.records if isinstance(drafter, HybridDrafter) else ():
            known.start_from(DraftFacts((), (), 0.0, machine.drafts["draft"], machine.reading))
    return play(texts, drafter, machine, clock, controller)


def _speeds(texts: Sequence[Saved], seconds: Sequence[float]) -> tuple[float, float]:
    plain = [len(text.output) for text in texts]
    return round(sum(plain) / sum(seconds), 2), round(sum(plain[:3]) / sum(seconds[:3]), 2)


@click.command()
@click.option("--model", required=True, help="Of real_models.py, or a directory, or a hub id.")
@click.option("--language", "languages", multiple=True, default=("pl", "uk"), show_default=True)
@click.option("--num-draft-tokens", "lengths", type=int, multiple=True, default=(4,), show_default=True)
@click.option("--draft", help="Draft model with another tokenizer, to be compared with look-ups and with both.")
@click.option("--draft-cost", default=0.1, show_default=True, help="Of a draft token, in plain passes.")
@click.option("--row-cost", default=0.045, show_default=True, help="Of each further token in a pass, likewise.")
def main(
    model: str,
    languages: tuple[str, ...],
    lengths: tuple[int, ...],
    draft: str | None,
    draft_cost: float,
    row_cost: float,
) -> None:
    """Replay all texts of a model with every drafter; save and print."""
    name, rows = Path(model).name, []
    for path in sorted(FOLDER.glob(f"{name}.*.jsonl")):
        told = _TEXT.fullmatch(path.name.removeprefix(f"{name}.").removesuffix(".jsonl"))
        if told is None or told["language"] not in languages:
            continue
        texts = read_text(path)
        if draft:
            where, language = str(real_model(model)), told["language"]
            pair = {"draft_model": str(real_model(draft)), "alignment": alignment_of(draft, model, language)}
            both = load_drafter(where, dictionary=dictionary_of(model, language), **pair)
            assert isinstance(both, HybridDrafter)
            members = dict(zip(("look-ups", "draft"), both.drafters, strict=True))
            machine = Machine(lambda rows: 1 + row_cost * (rows - 1), {"draft": draft_cost}, draft_cost / 8, 0.05)
            saved = [record(text.prompt, text.output, members, 8) for text in texts]
            for way, speed, first in compared(saved, machine):
                click.echo(f"{path.name}: {way}: {speed}; first three texts {first}")
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
