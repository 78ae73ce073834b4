"""The answer: does drafting pay here, with which configuration, how sure is that, where least, and what to do next."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from spectool.measure.intervals import LEVEL, Estimate, speedup_interval
from spectool.measure.report.costs import cycle_seconds, plain_step
from spectool.measure.report.tables import speedup
from spectool.measure.report.trials import SCOPE, Frame, Trials, pooled_acceptance, pooled_tokens_per_pass
from spectool.measure.sample_size import ENOUGH, too_short

_NOTABLE = 500  # prompts: what needs more to be told is too small a difference to matter


class Verdict(NamedTuple):
    """What a run says of a target, a language and a temperature: there all configurations decode the same prompts."""

    scope: str  # the target, and language and temperature where there are several
    label: str  # the fastest configuration
    trials: Frame  # of that one
    speedup: Estimate  # its speed-up, geometric mean over prompts, with its 95% interval
    # the same with the interval that allows for the choice (Bonferroni's): the luckiest of many looks faster than it is
    allowing: Estimate
    every: Sequence[Estimate]  # the speed-ups of all configurations, each with its own 95% interval

    @property
    def faster(self) -> int:
        """How many configurations are faster than plain decoding, each taken by itself."""
        return sum(one.low is not None and one.low > 1 for one in self.every)

    @property
    def slower(self) -> int:
        """How many are slower, likewise."""
        return sum(one.high is not None and one.high < 1 for one in self.every)

    @property
    def pays(self) -> bool | None:
        """Whether drafting pays; None where that cannot be told."""
        if self.slower == len(self.every):  # no choice flatters that
            return False
        return True if self.allowing.low is not None and self.allowing.low > 1 else None

    @property
    def sentence(self) -> str:
        """The verdict as one sentence, target and language first."""
        if self.speedup.low is None:
            return f"{self.scope}: {too_short(self.speedup.n)}."
        says = {True: "drafting pays", False: "drafting does not pay", None: "it cannot be told whether drafting pays"}
        several, found = len(self.every) > 1, self.speedup
        which = f"the fastest of {len(self.every)} configurations" if several else "the only one measured"
        interval = f"95% interval {found.ends} over {found.n} prompts"
        interval += f"; {self.allowing.ends} allowing for the choice of the fastest" if several else ""
        return (
            f"{self.scope}: {says[self.pays]}; {which}, {self.label}, is {found.value:.2f} times as fast as "
            f"plain decoding ({interval})."
        )

    @property
    def prompts_to_tell(self) -> int | None:
        """Prompts with which a difference of this size would be told; None where one so small does not matter."""
        found = self.allowing
        if found.low is None or found.high is None:
            return ENOUGH
        wanted = found.n * (math.log(found.high / found.low) / 2 / (abs(math.log(found.value)) or 1e-9)) ** 2
        return max(ENOUGH, math.ceil(wanted)) if wanted < _NOTABLE else None


def verdicts(trials: Trials) -> list[Verdict]:
    """Find the fastest configuration for every target, language and temperature."""
    several = {column: trials.drafted[column].nunique() > 1 for column in ("language", "temperature")}
    found = []
    for (model, language, temperature), here in trials.drafted.groupby([*SCOPE, "temperature"], sort=False):
        parts = [model]
        parts += [language] if several["language"] else []
        parts += [f"temperature {temperature:g}"] if several["temperature"] else []
        speedups = {label: speedup(some) for label, some in here.groupby("label", sort=False)}
        best = max(speedups, key=lambda label: speedups[label].value)
        fastest = here[here.label == best]
        allowing = speedup_interval(fastest.speedup, 1 - (1 - LEVEL) / len(speedups))
        found.append(Verdict(", ".join(parts), best, fastest, speedups[best], allowing, list(speedups.values())))
    return found


def main_figures(trials: Trials) -> list[dict[str, Any]]:
    """Return the main figures of every configuration, for programs; "different" is None where outputs were drawn."""
    found = []
    different = trials.generations.groupby("row").first_difference.count()
    for row, some in trials.drafted.groupby("row", sort=False):
        mean, first = speedup(some), some.iloc[0]
        found.append(
            {
                "model": first.model,
                "drafter": first.drafter,
                "strategy": None if pd.isna(first.strategy) else first.strategy,
                "num_draft_tokens": None if pd.isna(first.k) else int(first.k),
                "temperature": float(first.temperature),
                "prompts": mean.n,
                "speedup": mean.value,
                "low": mean.low,
                "high": mean.high,
                "acceptance": pooled_acceptance(some),
                "tokens_per_pass": pooled_tokens_per_pass(some),
                "different": None if first.temperature else int(different[row]),
            }
        )
    return found


def answers(trials: Trials) -> list[dict[str, Any]]:
    """Return what the opening section says of every target, language and temperature, as names for its template."""
    found = []
    for verdict in verdicts(trials):
        some, first = verdict.trials, verdict.trials.iloc[0]
        kinds = [(kind, speedup(of_kind)) for kind, of_kind in some.groupby("kind", sort=False)]
        parts = cycle_seconds(some) / plain_step(trials, some)
        found.append(
            {
                "verdict": verdict,
                "model": first.model,
                "language": first.language,
                "acceptance": pooled_acceptance(some),
                "tokens": pooled_tokens_per_pass(some),
                "cost": parts.sum(),
                "parts": parts,
                "kinds": sorted(kinds, key=lambda item: item[1].value),
                "command": generate_command(first, trials.run.manifest.arguments),
            }
        )
    return found


def generate_command(trial: Any, arguments: Mapping[str, Any]) -> str:
    """Return the command that generates with the configuration of a trial."""
    model = next(model for model in arguments["models"] if model["name"] == trial.model)
    drafter = next(drafter for drafter in model["drafters"] if drafter["name"] == trial.drafter)
    options = {
        "--model": model["path"],
        "--dict": drafter.get("dictionary"),
        "--draft-model": drafter.get("draft_model"),
        "--alignment": drafter.get("alignment"),
        "--strategy": None if pd.isna(trial.strategy) or trial.strategy == "anchored" else trial.strategy,
        "--no-history": not drafter.get("history"),
        "--min-draft-prob": f"{drafter['min_draft_prob']:g}" if "min_draft_prob" in drafter else None,
        "--verify": "rejection" if drafter.get("verify") == "rejection" else None,
        "--num-draft-tokens": None if pd.isna(trial.k) else f"{trial.k:.0f}",
        "--temp": f"{trial.temperature:g}" if trial.temperature else None,
    }
    given = [part for name, value in options.items() if value for part in ((name,) if value is True else (name, value))]
    return f'spectool generate {shlex.join(given)} --prompt "…"'
