"""The command ``predict``: a text replayed as if a model had written it, to say what drafts would gain on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectool.commands.shared.console import open_text, progress, say, show
from spectool.commands.shared.model_options import min_draft_prob_option
from spectool.commands.shared.options import Finite, Whole, command, option, path_option, tokenizer_option

if TYPE_CHECKING:
    from spectool.artifacts.dictionary import Dictionary

_CAUTIOUS = 0.2  # least probability of a draft where nobody knows what passes cost
_TOKENS = 20_000  # replayed for a machine, unless said otherwise
_MODES = click.Choice(["affine", "mxfp4", "nvfp4", "mxfp8"])


@command("predict")
@option(
    "--corpus",
    metavar="C",
    help="Text to replay; by default a bundled one in the language of the dictionary's pack, if there is one.",
    heading="Text",
)
@tokenizer_option(
    "--target", help="The target's tokenizer; by default the dictionary's, if you have it.", heading="Text"
)
@option("--max-tokens", type=Whole(1), help="Replay this many tokens, not the whole text.", heading="Text")
@path_option("--dict", "dictionaries", multiple=True, metavar="FILE", help="May be repeated.", heading="Drafting")
@option("--history/--no-history", default=True, help="Draft from the text too.", heading="Drafting")
@option("--here", is_flag=True, help="This machine, as `spectool doctor` has measured --model.", heading="Machine")
@option("--on", "chip", metavar="CHIP", help="An Apple chip, such as 'M4 Pro'.", heading="Machine")
@option("--bits", type=Whole(1, 32), default=4, help="Bits of a weight.", heading="Machine")
@option("--mode", type=_MODES, default="affine", help="Form of the weights.", heading="Machine")
@option(
    "--size",
    type=Finite(0.001),
    metavar="B",
    help="Billions of weights, such as 8: leaves out far other sizes.",
    heading="Machine",
)
@option("--experts", is_flag=True, help="The model is a mixture of experts.", heading="Machine")
@option("--context", type=Whole(0), default=0, help="Tokens before the text.", heading="Machine")
@min_draft_prob_option(help="Stop drafting below this probability.", heading="Drafting")
def predict(
    corpus: str | None,
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
        spectool predict --dict pl.dict --corpus news.txt --on "MacBook Pro M4 Pro"
        spectool predict --dict pl.dict --corpus news.txt --model ./Bielik-11B --here
    """
    from spectool.artifacts.default_paths import find_artifact
    from spectool.artifacts.dictionary import Dictionary
    from spectool.build.corpus_reading import encode_text, with_progress
    from spectool.commands.shared.display import by_drafter
    from spectool.commands.shared.tokenizers import named_tokenizer, own_tokenizer
    from spectool.measure.chips import cheaper_weight_formats, chip_of
    from spectool.measure.predict import ALWAYS_UNKNOWN, Forecast, Machine, machines_on, predict
    from spectool.runtime.drafters.lookup import LookupDrafter
    from spectool.runtime.loading import LEAST_OF_LOOKUPS, open_dictionaries

    machines, chip = _measured(tokenizer) if machine["here"] else {}, machine["chip"]
    if chip:
        asked = {name: machine[name] for name in ("experts", "size", "context")}
        machines |= machines_on(chip, machine["bits"], machine["mode"], **asked)
    if not dictionaries and (tokenizer is None or not history):
        raise click.UsageError("without --dict FILE, name the target's tokenizer with --tokenizer, and keep --history")
    found = [Dictionary(find_artifact(path, ".dict")) for path in dictionaries]
    text = open_text(corpus or _sample_for(found))
    say(f"opening {tokenizer}" if tokenizer else "opening the dictionary's tokenizer")
    target = named_tokenizer(tokenizer) if tokenizer else own_tokenizer(found[0])
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
        plain = [machine.plain for machine in machines.values() if machine.plain]
        summary = Forecast(low, high, counts).sentence(*plain[:1])
        measured = {each: None for one in machines.values() if one.row for each in one.row.chips}
        if chip and chip_of(chip) not in measured:
            summary += f" Nobody has published this of {chip_of(chip)}: it is a range over {', '.join(measured)}."
        facts |= {"low": round(low, 3), "high": round(high, 3)} if as_json else {}
        facts["by measurement"] = {name: each.range for name, each in speeds.items()}
        unknown = (note for each in machines.values() for note in each.not_known(machine["size"], machine["context"]))
        facts["not known"] = [*dict.fromkeys(unknown), *ALWAYS_UNKNOWN]
    else:
        saved = 1 - counts.passes / max(1, counts.tokens)
        summary = f"{saved:.0%} fewer passes. What that gains depends on the machine: add --here, or --on CHIP."
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
    others = cheaper_weight_formats(chip, machine["bits"], machine["mode"]) if chip else []
    if others or (chip and as_json):
        facts["other weights"] = others
    if as_json:
        facts = {"summary": summary, **facts}
    else:
        click.echo(f"{summary}\n")
    show(facts, as_json)


def _sample_for(dictionaries: "Sequence[Dictionary]") -> str:
    """The bundled text in the language of the packs that dictionaries were made from."""
    from spectool.corpora import sample_names

    packs: list[Any] = []
    for each in dictionaries:
        named = each.manifest.inputs.get("packs")
        packs += named if isinstance(named, list) else []
    languages = {str(pack.get("language")) for pack in packs if isinstance(pack, dict)}
    code = languages.pop().partition("-")[0] if len(languages) == 1 else ""
    if code not in sample_names():
        bundled = " and ".join(f"sample:{name}" for name in sample_names())
        raise click.UsageError(
            "name the text to replay, in the language that the model will write: --corpus FILE. Take one that the "
            f"dictionary was not built from. Bundled are {bundled}" + f", none in {code!r}" * bool(code)
        )
    return f"sample:{code}"


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
    plain = 1 / costs.plain[min(costs.plain)]
    return {costs.machine: Machine(curve, MEASURED, context=max(costs.seconds), noise=APART, plain=plain)}
