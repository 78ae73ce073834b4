"""Verdicts: does drafting pay, with which configuration, how sure is that, and what to do next."""

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from spectool.measure.intervals import ENOUGH_PROMPTS, LEVEL, Estimate, speedup_interval, too_short
from spectool.measure.report.trials import ConfigurationResult, Trials, part_named

_NOTABLE = 500  # prompts: a difference that needs more of them to be seen is too small to matter


class RunVerdict(NamedTuple):
    """The verdict for one target, language and temperature, in which all configurations decode the same prompts."""

    scope: str  # the target, with language and temperature if the run has several
    fastest: ConfigurationResult  # the configuration with the largest speed-up
    results: Sequence[ConfigurationResult]  # all configurations, on these prompts
    # the speed-up of the fastest with an interval that allows for having chosen it (Bonferroni): the luckiest of many
    # configurations looks faster than it is
    allowing: Estimate

    @property
    def faster(self) -> int:
        """Number of configurations that are faster than plain decoding, each by its own interval."""
        return sum(one.speedup.low is not None and one.speedup.low > 1 for one in self.results)

    @property
    def slower(self) -> int:
        """Number of configurations that are slower, each by its own interval."""
        return sum(one.speedup.high is not None and one.speedup.high < 1 for one in self.results)

    @property
    def pays(self) -> bool | None:
        """Whether drafting pays; None if that cannot be told."""
        if self.slower == len(self.results):  # true of all of them, so nothing was chosen
            return False
        return True if self.allowing.low is not None and self.allowing.low > 1 else None

    @property
    def sentence(self) -> str:
        """The verdict as one sentence that begins with its scope."""
        found, number = self.fastest.speedup, len(self.results)
        if short := too_short(found.n):
            return f"{self.scope}: {short}."
        says = {True: "drafting pays", False: "drafting does not pay", None: "it cannot be told whether drafting pays"}
        which = f"the fastest of {number} configurations" if number > 1 else "the only configuration"
        interval = f"95% interval {found.ends} over {found.n} prompts"
        interval += f"; {self.allowing.ends} allowing for the choice of the fastest" if number > 1 else ""
        return (
            f"{self.scope}: {says[self.pays]}; {which}, {self.fastest.label}, is {found.value:.2f} times as fast as "
            f"plain decoding ({interval})."
        )

    @property
    def prompts_to_tell(self) -> int | None:
        """Number of prompts that would show a difference of this size; None if it is too small to matter."""
        found = self.allowing
        if found.low is None or found.high is None:
            return ENOUGH_PROMPTS
        wanted = found.n * (math.log(found.high / found.low) / 2 / (abs(math.log(found.value)) or 1e-9)) ** 2
        return max(ENOUGH_PROMPTS, math.ceil(wanted)) if wanted < _NOTABLE else None

    @property
    def kinds(self) -> list[tuple[str, Estimate]]:
        """Speed-up of the fastest configuration by kind of prompt, the smallest first."""
        trials = self.fastest.trials
        speedups = {
            kind: speedup_interval([trial.speedup for trial in trials if trial.kind == kind])
            for kind in dict.fromkeys(trial.kind for trial in trials)
        }
        return sorted(speedups.items(), key=lambda item: item[1].value)

    @property
    def repeated(self) -> float:
        """Share of repeated 4-grams in what plain decoding wrote, mean over prompts."""
        return sum(trial.repeated for trial in self.fastest.trials) / len(self.fastest.trials)

    def command(self, arguments: Mapping[str, Any]) -> str:
        """The command that generates with the fastest configuration; ``arguments`` are those of the run's manifest."""
        one = self.fastest
        model = part_named(arguments["models"], one.model)
        drafter = part_named(model["drafters"], one.drafter)
        options = {
            "--model": model["path"],
            "--dict": drafter.get("dictionary"),
            "--draft-model": drafter.get("draft_model"),
            "--alignment": drafter.get("alignment"),
            "--no-history": not drafter.get("history"),
            "--min-draft-prob": f"{drafter['min_draft_prob']:g}" if "min_draft_prob" in drafter else None,
            "--verify": "rejection" if drafter.get("verify") == "rejection" else None,
            "--num-draft-tokens": None if one.num_draft_tokens is None else str(one.num_draft_tokens),
            "--temp": f"{one.temperature:g}" if one.temperature else None,
        }
        given: list[str] = []
        for name, value in options.items():
            for each in value if isinstance(value, list) else [value] if value else []:
                given += [name] if each is True else [name, each]
        return f'spectool generate {shlex.join(given)} --prompt "…"'


def verdicts(trials: Trials) -> list[RunVerdict]:
    """A verdict for every target, language and temperature, in the order of the experiment."""
    measured, prompts = trials.results, trials.run.manifest.arguments.get("prompts", ())
    spoken = set[str]().union(*(one.languages for one in measured))
    ordered = dict.fromkeys([*(source["language"] for source in prompts), *sorted(spoken)])
    languages = [language for language in ordered if language in spoken]
    models = list(dict.fromkeys(one.model for one in measured))
    temperatures = sorted({one.temperature for one in measured})
    found = []
    for model, language, temperature in product(models, languages, temperatures):
        some = [one for one in measured if (one.model, one.temperature) == (model, temperature)]
        here = [one.in_language(language) for one in some if language in one.languages]
        if here:
            scope = [model]
            scope += [language] if len(languages) > 1 else []
            scope += [f"temperature {temperature:g}"] if len(temperatures) > 1 else []
            fastest = max(here, key=lambda one: one.speedup.value)
            allowing = speedup_interval(fastest.speedups, 1 - (1 - LEVEL) / len(here))
            found.append(RunVerdict(", ".join(scope), fastest, here, allowing))
    return found
