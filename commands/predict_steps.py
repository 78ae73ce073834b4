"""What ``spectool predict`` does: reads a text, asks a draft model at its places, and replays it on each machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from spectool.artifacts.default_paths import find_artifact
from spectool.artifacts.dictionary import Dictionary
from spectool.build.corpus_reading import encode_text, with_progress
from spectool.commands.shared.console import open_text, say, show
from spectool.commands.shared.display import by_drafter
from spectool.commands.shared.tokenizers import named_tokenizer, own_tokenizer
from spectool.corpora import sample_names
from spectool.measure.chips import chip_of
from spectool.measure.machines import Machine, machine_here, machines_on
from spectool.measure.predict import ALWAYS_UNKNOWN, Forecast, RecordedModel, Text, on_a_draft_model, predict, spanning
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, members_of
from spectool.runtime.loading import load_drafter, load_model

_CAUTIOUS = 0.2  # least probability of a draft where nobody knows what passes cost
_TOKENS, _ASKED = 20_000, 2_000  # replayed for a machine, and if a draft model is asked, unless said otherwise
LOOK_UPS, MODEL, BOTH = "look-ups", "draft model", "both together"
Ways = Mapping[str, tuple[Drafter | None, RecordedModel | None]]
"""What drafts, by name; the one with all that was named is the last."""


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

    def run(self, as_json: bool) -> None:
        """Replay the text, and print what it says."""
        self._check()
        found = [Dictionary(find_artifact(path, ".dict")) for path in self.dictionaries]
        text = open_text(self.corpus or _sample_for(found))
        machines, draft = self._machines(), None
        if self.draft_model:
            say(f"loading {self.draft_model}")
            draft = load_model(self.draft_model)
            costs = {name: each.draft_costs(draft[0], self.draft_model) for name, each in machines.items()}
            machines = {name: each._replace(draft=costs[name]) for name, each in machines.items()}
        say(f"opening {self.tokenizer}" if self.tokenizer else "opening the dictionary's tokenizer")
        target = named_tokenizer(self.tokenizer) if self.tokenizer else own_tokenizer(found[0])
        limit = self.max_tokens or (_ASKED if self.draft_model else _TOKENS if machines else 0)
        documents = with_progress(text)
        texts = [Text((), ids) for ids in encode_text(target, documents, limit)]
        least = _CAUTIOUS if self.min_probability is None and not machines else self.min_probability
        made = load_drafter(target, dictionary=self.dictionaries, history=self.history, min_probability=least)
        look_ups = made.members[0] if made else None
        ways: Ways = {LOOK_UPS: (look_ups, None)} if look_ups else {}
        if draft:
            options: Any = {"alignment": self.alignment, "min_probability": self.min_probability, "history": False}
            model = RecordedModel(*members_of(load_drafter(target, draft_model=draft, **options)))
            ways = {**ways, MODEL: (None, model)} | ({BOTH: (look_ups, model)} if look_ups else {})
        speeds = _forecasts(texts, ways, machines or {"": Machine()})
        counts = spanning(list(speeds.values())[-1].values()).counts
        if machines:
            facts = self._speeds(speeds, machines, as_json)
        else:
            saved = f"{1 - counts.passes / max(1, counts.tokens):.0%} fewer passes"
            facts = {"summary": f"{saved}. What that gains depends on the machine: add --here, or --on CHIP."}
        if draft:
            spans = {name: f"{low.token:.3f} to {high.token:.3f} plain passes" for name, (low, high) in costs.items()}
            facts |= {"cost of a draft token": spans}
        facts |= {"corpus": text.spec, "documents": len(texts), "tokenizer": target.name} | _figures(counts)
        if not as_json:
            click.echo(f"{facts.pop('summary')}\n")
        show(facts, as_json)

    def _check(self) -> None:
        if self.here and self.tokenizer is None:
            raise click.UsageError("--here: name the model that `spectool doctor` has measured: --model M")
        if not self.dictionaries and (self.tokenizer is None or not (self.history or self.draft_model)):
            raise click.UsageError("without --dict FILE, name a tokenizer with --tokenizer, and keep --history")
        if self.alignment and not self.draft_model:
            raise click.UsageError("--alignment is for a draft model: name it with --draft-model D")
        if self.draft_model and not (self.here or self.chip):
            raise click.UsageError("--draft-model: what it gains depends on the machine: add --here, or --on CHIP")
        if not self.chip and (self.bits, self.mode, self.size) != (4, "affine", None):
            raise click.UsageError("--bits, --mode and --size say what runs on another machine: add --on CHIP")

    def _machines(self) -> dict[str, Machine]:
        found: dict[str, Machine] = {}
        if self.here and self.tokenizer:
            here = machine_here(load_model(self.tokenizer, lazy=True)[0], self.tokenizer)
            found |= {here.costs.machine: here} if here.costs else {}
        if self.chip:
            found |= machines_on(self.chip, self.bits, self.mode, self.size)
        return found

    def _speeds(
        self, speeds: Mapping[str, Mapping[str, Forecast]], machines: Mapping[str, Machine], as_json: bool
    ) -> dict[str, Any]:
        """What to expect on the machines, and what is not known."""
        spans = {way: spanning(each.values()) for way, each in speeds.items()}
        best = list(spans.values())[-1]
        summary = best.sentence(*(1 / each.plain for each in machines.values() if each.plain))
        if BOTH in spans:
            summary += f" {on_a_draft_model(spans[LOOK_UPS], spans[MODEL], best)}"
        measured = {each: None for one in machines.values() if one.row for each in one.row.chips}
        if self.chip and chip_of(self.chip) not in measured:
            summary += f" Nobody has published this of {chip_of(self.chip)}: it is a range over {', '.join(measured)}."
        facts: dict[str, Any] = {"summary": summary}
        facts |= {"low": round(best.low, 3), "high": round(best.high, 3)} if as_json else {}
        if len(spans) > 1:
            facts["by drafter"] = {way: each.range for way, each in spans.items()}
        facts["by measurement"] = {name: each.range for name, each in list(speeds.values())[-1].items()}
        unknown = [note for each in machines.values() for note in each.not_known(self.size)]
        if self.draft_model and self.chip:
            unknown.append("draft model: its cost is worked out from its bytes, the bandwidth and a time for each pass")
        return facts | {"not known": [*dict.fromkeys(unknown), *ALWAYS_UNKNOWN]}


def _forecasts(texts: Sequence[Text], ways: Ways, machines: Mapping[str, Machine]) -> dict[str, dict[str, Forecast]]:
    """What each way of drafting gains, by way and machine."""
    steps = sum(len(text.output) for text in texts) * len(machines)
    steps *= sum(1 if model is None else 2 for _, model in ways.values())
    with tqdm(total=steps, desc="replaying", unit=" tokens", unit_scale=True, disable=None) as bar:
        forecast = partial(predict, texts, progress=bar.update)
        return {
            way: {name: forecast(machine, *drafters) for name, machine in machines.items()}
            for way, drafters in ways.items()
        }


def _figures(counts: DraftStatistics) -> dict[str, Any]:
    figures = {
        "tokens per pass": counts.tokens_per_pass,
        "coverage": counts.coverage,
        "mean accepted length": counts.mean_accepted_length,
        "acceptance": counts.acceptance_rate,
        "proposed per pass": counts.proposed / max(1, counts.passes),
    }
    rounded = {name: round(figure, 4) for name, figure in figures.items()}
    return {"tokens": counts.tokens, "passes": counts.passes, **rounded, "accepted by source": by_drafter(counts)}


def _sample_for(dictionaries: Sequence[Dictionary]) -> str:
    """The bundled text in the language of the packs that dictionaries were made from."""
    packs = [pack for each in dictionaries for pack in each.manifest.inputs.get("packs") or []]
    languages = {str(pack.get("language")).partition("-")[0] for pack in packs if isinstance(pack, dict)}
    if len(languages) != 1 or not languages <= set(sample_names()):
        bundled = " and ".join(f"sample:{name}" for name in sample_names())
        raise click.UsageError(
            "name the text to replay, in the language that the model will write: --corpus FILE. Take one that the "
            f"dictionary was not built from. Bundled are {bundled}"
        )
    return f"sample:{languages.pop()}"
