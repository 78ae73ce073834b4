"""The command ``predict``: a text replayed as if a model had written it, to say what drafts would gain on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spectool.commands.shared.console import open_text, progress, say, show
from spectool.commands.shared.model_options import min_draft_prob_option
from spectool.commands.shared.options import Finite, Whole, command, option, path_option, tokenizer_option

_CAUTIOUS = 0.2  # least probability of a draft where nobody knows what passes cost
_TOKENS = 20_000  # replayed for a machine, unless said otherwise
_MODES = click.Choice(["affine", "mxfp4", "nvfp4", "mxfp8"])


@command("predict")
@option("--corpus", metavar="C", default="sample:pl", help="Text to replay.", heading="Text")
@tokenizer_option("--target", help="The target's tokenizer; by default that of the dictionary.", heading="Text")
@option("--max-tokens", type=Whole(1), help="Replay this many tokens, not the whole text.", heading="Text")
@path_option("--dict", "dictionaries", multiple=True, metavar="FILE", help="May be repeated.", heading="Drafting")
@option("--history/--no-history", default=True, help="Draft from the text too.", heading="Drafting")
@option("--here", is_flag=True, help="This machine, as `spectool doctor` has measured --model.", heading="Machine")
@option("--on", "chip", metavar="CHIP", help="An Apple chip, such as 'M4 Pro'.", heading="Machine")
@option("--bits", type=Whole(1, 32), default=4, help="Bits of a weight.", heading="Machine")
@option("--mode", type=_MODES, default="affine", help="Form of the weights.", heading="Machine")
@option("--size", type=Finite(0.001), metavar="B", help="Billions of weights, such as 8.", heading="Machine")
@option("--experts", is_flag=True, help="The model is a mixture of experts.", heading="Machine")
@option("--context", type=Whole(0), default=0, help="Tokens before the text.", heading="Machine")
@min_draft_prob_option(help="Stop drafting below this probability.", heading="Drafting")
def predict(
    corpus: str,
    tokenizer: str | None,
    max_tokens: int | None,
    dictionaries: tuple[Path, ...],
    history: bool,
    min_probability: float | None,
    as_json: bool,
    **machine: Any,
) -> None:
    """Say what drafts from dictionaries and history would gain on a text, without running a model.

    Replays the text as if the model had written it, each document as a generation of its own. Counts passes and, for a
    machine, works out the speed from what passes cost there: --here takes what `doctor` has measured on this machine,
    and --on what others have published of Apple chips. Use a text that the dictionary was not built from.

    \b
    tokens per pass       1.0 is plain decoding
    coverage              passes with a proposal / passes
    mean accepted length  accepted draft tokens / passes with a proposal
    acceptance            accepted draft tokens / proposed ones
    proposed per pass     draft tokens / passes: what --min-draft-prob limits

    \b
    Examples:
        spectool predict --dict pl.dict --corpus news.txt
        spectool predict --dict pl.dict --corpus news.txt --on "M2 Air" --size 8
        spectool predict --dict pl.dict --corpus news.txt --model ./Bielik-11B --here
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.build.corpus_reading import encode_text, with_progress
    from spectool.commands.shared.display import by_drafter
    from spectool.measure.precision import flatter_forms
    from spectool.measure.predict import ALWAYS_UNKNOWN, Forecast, Machine, machines_on, predict
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import LEAST_OF_LOOKUPS, open_dictionaries
    from spectool.tokenization.opening import open_named

    machines, chip = _measured(tokenizer) if machine["here"] else {}, machine["chip"]
    if chip:
        machines |= machines_on(chip, machine["bits"], machine["mode"], experts=machine["experts"])
    text = open_text(corpus)
    if not dictionaries and (tokenizer is None or not history):
        raise click.UsageError("without --dict FILE, name the target's tokenizer with --tokenizer, and keep --history")
    found = [Dictionary(find_artifact(path, ".dict")) for path in dictionaries]
    recorded: Mapping[str, Any] = found[0].tokenizer if found and tokenizer is None else {}
    say(f"opening {tokenizer or recorded['name']}")
    target = open_named(tokenizer, recorded, "the dictionary's")
    limit = max_tokens or (_TOKENS if machines else 0)
    documents = encode_text(target, (document.text for document in with_progress(text)), limit)
    least = (LEAST_OF_LOOKUPS if machines else _CAUTIOUS) if min_probability is None else min_probability
    drafter = LookupDrafter(open_dictionaries(dictionaries, target), history, least)
    among = machines or {"": Machine()}
    with progress("replaying", sum(map(len, documents)) * len(among), "tokens") as update:
        speeds = {name: predict(documents, drafter, each, machine["context"], update) for name, each in among.items()}
    counts = max((each.counts for each in speeds.values()), key=lambda each: each.tokens_per_pass)
    facts: dict[str, Any] = {}
    if machines:
        low, high = min(each.low for each in speeds.values()), max(each.high for each in speeds.values())
        facts |= {"speed": Forecast(low, high, counts).in_words, "low": round(low, 3), "high": round(high, 3)}
        facts["by measurement"] = {name: each.in_words for name, each in speeds.items()}
        asked = chip, machine["size"], machine["context"]
        unknown = dict.fromkeys(note for each in machines.values() for note in each.not_known(*asked))
        facts["not known"] = [*unknown, *ALWAYS_UNKNOWN]
    facts |= {"corpus": text.spec, "documents": len(documents)}
    facts |= {"tokenizer": target.name, "tokens": counts.tokens, "passes": counts.passes}
    figures = {
        "tokens per pass": counts.tokens_per_pass,
        "coverage": counts.coverage,
        "mean accepted length": counts.mean_accepted_length,
        "acceptance": counts.acceptance_rate,
        "proposed per pass": counts.proposed / max(1, counts.passes),
    }
    facts |= {name: round(figure, 4) for name, figure in figures.items()} | {"accepted by source": by_drafter(counts)}
    if chip:
        facts["other forms"] = flatter_forms(chip, machine["bits"], machine["mode"])
    show(facts, as_json)


def _measured(name: str | None) -> dict[str, Any]:
    """What passes of a model cost on this machine."""
    from spectool.measure.predict import APART, MEASURED, Machine
    from spectool.runtime.loading import load_model
    from spectool.runtime.machine import machine_name
    from spectool.runtime.policy.costs import known_costs
    from spectool.runtime.policy.curve import PassCurve

    if name is None:
        raise click.UsageError("--here: name the model that `spectool doctor` has measured: --model M")
    costs = known_costs(load_model(name, lazy=True)[0])
    if costs is None or not costs.whole:
        raise click.UsageError(f"{name} was not measured on {machine_name()}. Run: spectool doctor --model {name}")
    curve = PassCurve(costs.seconds, costs.plain, costs.final)
    return {costs.machine: Machine(curve, MEASURED, context=max(costs.seconds), noise=APART)}
