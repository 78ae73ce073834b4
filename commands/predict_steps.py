"""What ``spectool predict`` does: reads a text, asks a draft model at its places, and replays it on each machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import click

from spectool.artifacts.default_paths import find_artifact
from spectool.artifacts.dictionary import Dictionary
from spectool.build.corpus_reading import encode_text, with_progress
from spectool.commands.shared.console import open_text, progress, say, show
from spectool.commands.shared.display import by_drafter
from spectool.commands.shared.tokenizers import named_tokenizer, own_tokenizer
from spectool.corpora import sample_names
from spectool.measure.chips import cheaper_weight_formats, chip_of
from spectool.measure.drafts import require_smaller
from spectool.measure.machines import Machine, machine_here, machines_on
from spectool.measure.predict import ALWAYS_UNKNOWN, Forecast, on_a_draft_model, predict, spanning
from spectool.measure.recorded import NO_COST, Recording, Text, first_right, record
from spectool.runtime.drafters.drafter import DrafterSet
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.loading import LEAST_OF_LOOKUPS, load_drafter, open_dictionaries
from spectool.runtime.mlx_lm_compat import get_total_parameters
from spectool.runtime.policy.record import DraftCost
from spectool.tokenization.tokenizer import Tokenizer

_CAUTIOUS = 0.2  # least probability of a draft where nobody knows what passes cost
_TOKENS = 20_000  # replayed for a machine, unless said otherwise
_SECONDS = 60.0  # in which a draft model is asked, likewise
LOOK_UPS, MODEL, BOTH = "look-ups", "draft model", "both together"


class Asked(NamedTuple):
    """A draft model that was asked at every place of the text, and the least and the most that it costs by machine."""

    recording: Recording
    costs: Mapping[str, tuple[DraftCost, DraftCost]]


@dataclass
class Prediction:
    """What the user asked for, which are the options of the command."""

    corpus: str | None
    tokenizer: str | None
    max_tokens: int | None
    dictionaries: Sequence[Path]
    history: bool
    draft_model: str | None
    alignment: Path | None
    min_probability: float | None
    here: bool
    chip: str | None
    bits: int
    mode: str
    size: float | None
    experts: bool
    context: int

    def run(self, as_json: bool) -> None:
        """Replay the text, and print what it says."""
        self._check()
        machines = self._machines()
        found = [Dictionary(find_artifact(path, ".dict")) for path in self.dictionaries]
        text = open_text(self.corpus or _sample_for(found))
        say(f"opening {self.tokenizer}" if self.tokenizer else "opening the dictionary's tokenizer")
        target = named_tokenizer(self.tokenizer) if self.tokenizer else own_tokenizer(found[0])
        limit = self.max_tokens or (_TOKENS if machines else 0)
        documents = encode_text(target, (document.text for document in with_progress(text)), limit)
        texts = [Text((), ids) for ids in documents]
        look_ups = self._look_ups(target, cautious=not machines)
        model = self._asked(texts, target, machines) if self.draft_model else None
        texts = texts if model is None else model.recording.texts
        speeds = self._forecasts(texts, machines or {"": Machine()}, look_ups, model)
        facts = self._speeds(speeds, machines, as_json) if machines else _without_machine(speeds)
        if model is not None:
            facts |= _about(model, texts, look_ups)
        facts |= {"corpus": text.spec, "documents": len(texts), "tokenizer": target.name}
        facts |= _figures(speeds[list(speeds)[-1]]) | self._other_weights(as_json)
        if not as_json:
            click.echo(f"{facts.pop('summary')}\n")
        show(facts, as_json)

    def _check(self) -> None:
        if self.here and self.tokenizer is None:
            raise click.UsageError("--here: name the model that `spectool doctor` has measured: --model M")
        if not self.dictionaries and (self.tokenizer is None or not (self.history or self.draft_model)):
            raise click.UsageError(
                "without --dict FILE, name the target's tokenizer with --tokenizer, and keep --history"
            )
        if self.alignment and not self.draft_model:
            raise click.UsageError("--alignment is for a draft model: name it with --draft-model D")
        if self.draft_model and not (self.here or self.chip):
            raise click.UsageError("--draft-model: what it gains depends on the machine: add --here, or --on CHIP")
        if self.draft_model and self.chip and self.experts:
            raise click.UsageError("--draft-model: what a plain pass of experts takes is not known; measure it, --here")

    def _machines(self) -> dict[str, Machine]:
        found = machine_here(self.tokenizer) if self.here and self.tokenizer else {}
        if self.chip:
            asked: dict[str, Any] = {"experts": self.experts, "size": self.size, "context": self.context}
            found |= machines_on(self.chip, self.bits, self.mode, **asked)
        return found

    def _look_ups(self, target: Tokenizer, *, cautious: bool) -> LookupDrafter | None:
        least = _CAUTIOUS if cautious else LEAST_OF_LOOKUPS
        least = least if self.min_probability is None else self.min_probability
        dictionaries = open_dictionaries(self.dictionaries, target)
        return LookupDrafter(dictionaries, self.history, least) if dictionaries or self.history else None

    def _asked(self, texts: Sequence[Text], target: Tokenizer, machines: Mapping[str, Machine]) -> Asked:
        """Ask the draft model at every place, for a minute unless the number of tokens is given."""
        assert self.draft_model is not None
        say(f"loading {self.draft_model}")
        found = load_drafter(
            target,
            draft_model=self.draft_model,
            alignment=self.alignment,
            history=False,
            min_probability=self.min_probability,
        )
        assert isinstance(found, DrafterSet) and found.cache is not None
        for each in machines.values():
            if each.parameters is not None:
                require_smaller(self.draft_model, get_total_parameters(found.cache.model), each.parameters)
        costs = {name: each.draft_costs(found.cache.model, self.draft_model) for name, each in machines.items()}
        tokens, began = sum(len(text.output) for text in texts), monotonic()
        until = None if self.max_tokens else began + _SECONDS
        title, total, unit = "asking the draft model", float(tokens if until is None else _SECONDS), "tokens"
        with progress(title, total, unit if until is None else "s") as update:
            shown = began

            def advance(places: int) -> None:
                nonlocal shown
                now = monotonic()
                update(places if until is None else now - shown)
                shown = now

            recording = record(
                texts, found.members[0], progress=advance, more=lambda: until is None or monotonic() < until
            )
        return Asked(recording, costs)

    def _forecasts(
        self,
        texts: Sequence[Text],
        machines: Mapping[str, Machine],
        look_ups: LookupDrafter | None,
        model: Asked | None,
    ) -> dict[str, dict[str, Forecast]]:
        """What each way of drafting gains, by way and machine; the one with all that was named is the last."""
        recording = None if model is None else model.recording
        named: dict[str, tuple[LookupDrafter | None, Recording | None]] = {}
        if look_ups is not None:
            named[LOOK_UPS] = look_ups, None
        if recording is not None:
            named[MODEL] = None, recording
        if look_ups is not None and recording is not None:
            named[BOTH] = look_ups, recording
        steps = sum(len(text.output) for text in texts) * len(machines)
        steps *= sum(1 if each[1] is None else 2 for each in named.values())
        with progress("replaying", steps, "tokens") as update:
            return {
                way: {
                    name: predict(
                        texts,
                        machine,
                        *drafters,
                        (NO_COST,) if model is None or drafters[1] is None else model.costs[name],
                        context=self.context,
                        progress=update,
                    )
                    for name, machine in machines.items()
                }
                for way, drafters in named.items()
            }

    def _speeds(
        self, speeds: Mapping[str, Mapping[str, Forecast]], machines: Mapping[str, Machine], as_json: bool
    ) -> dict[str, Any]:
        """What to expect on the machines, and what is not known."""
        spans = {way: spanning(each.values()) for way, each in speeds.items()}
        best = spans[list(spans)[-1]]
        plain = [machine.plain for machine in machines.values() if machine.plain]
        summary = best.sentence(*plain[:1])
        if len(spans) == len((LOOK_UPS, MODEL, BOTH)):
            summary += f" {on_a_draft_model(spans[LOOK_UPS], spans[MODEL], best)}"
        measured = {each: None for one in machines.values() if one.row for each in one.row.chips}
        if self.chip and chip_of(self.chip) not in measured:
            summary += f" Nobody has published this of {chip_of(self.chip)}: it is a range over {', '.join(measured)}."
        facts: dict[str, Any] = {"summary": summary}
        facts |= {"low": round(best.low, 3), "high": round(best.high, 3)} if as_json else {}
        if len(spans) > 1:
            facts["by drafter"] = {way: each.range for way, each in spans.items()}
        facts["by measurement"] = {name: each.range for name, each in speeds[list(speeds)[-1]].items()}
        unknown = [note for each in machines.values() for note in each.not_known(self.size, self.context)]
        if self.draft_model and self.chip:
            unknown.append("draft model: its cost is worked out from its bytes, the bandwidth and a time for each pass")
        return facts | {"not known": [*dict.fromkeys(unknown), *ALWAYS_UNKNOWN]}

    def _other_weights(self, as_json: bool) -> dict[str, Any]:
        others = cheaper_weight_formats(self.chip, self.bits, self.mode) if self.chip else []
        return {"other weights": others} if others or (self.chip and as_json) else {}


def _without_machine(speeds: Mapping[str, Mapping[str, Forecast]]) -> dict[str, Any]:
    counts = spanning(next(iter(speeds.values())).values()).counts
    saved = 1 - counts.passes / max(1, counts.tokens)
    return {"summary": f"{saved:.0%} fewer passes. What that gains depends on the machine: add --here, or --on CHIP."}


def _about(model: Asked, texts: Sequence[Text], look_ups: LookupDrafter | None) -> dict[str, Any]:
    """How often the first guesses of drafters are right, and what a draft token costs."""
    right = {MODEL: round(model.recording.first_right, 3)}
    if look_ups is not None:
        right[LOOK_UPS] = round(first_right(texts, look_ups), 3)
    costs = {name: f"{low.token:.3f} to {high.token:.3f} plain passes" for name, (low, high) in model.costs.items()}
    return {"first guesses right": right, "cost of a draft token": costs}


def _figures(forecasts: Mapping[str, Forecast]) -> dict[str, Any]:
    """What was counted where most was drafted."""
    counts = spanning(forecasts.values()).counts
    figures = {
        "tokens per pass": counts.tokens_per_pass,
        "coverage": counts.coverage,
        "mean accepted length": counts.mean_accepted_length,
        "acceptance": counts.acceptance_rate,
        "proposed per pass": counts.proposed / max(1, counts.passes),
    }
    facts: dict[str, Any] = {"tokens": counts.tokens, "passes": counts.passes}
    facts |= {name: round(figure, 4) for name, figure in figures.items()}
    return facts | {"accepted by source": by_drafter(counts)}


def _sample_for(dictionaries: Sequence[Dictionary]) -> str:
    """The bundled text in the language of the packs that dictionaries were made from."""
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
