"""The answer in words: does drafting pay here, in which way, how sure is that, and where least."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from spectool.measure.intervals import LEVEL, Estimate, mean_interval
from spectool.measure.report.cells import percent, size
from spectool.measure.report.costs import cycle_seconds, plain_step
from spectool.measure.report.page import Section
from spectool.measure.report.trials import LEAST, Trial, Trials, Way, chosen, pooled_acceptance, pooled_tokens_per_pass


class Verdict(NamedTuple):
    """What a run says about a target and a language: there all ways decode the same prompts.

    Attributes:
        scope: The target, and the language where there are several.
        language: The language.
        way: The fastest way of drafting.
        speedup: Its speed-up, mean over prompts, with its 95% interval.
        best_of: How many ways it is the best of.
        allowing: The same with the interval that allows for this (Bonferroni's): the luckiest of many looks faster
            than it is.
        all_slower: Whether every way, by its own 95% interval, is slower than plain decoding: no choice flatters that.
    """

    scope: str
    language: str
    way: Way
    speedup: Estimate
    best_of: int
    allowing: Estimate
    all_slower: bool

    @property
    def pays(self) -> bool | None:
        """Whether drafting pays; None where that cannot be told."""
        if self.all_slower:
            return False
        return True if self.allowing.low is not None and self.allowing.low > 1 else None

    @property
    def sentence(self) -> str:
        """The verdict as one sentence, target and language first."""
        says = {True: "drafting pays", False: "drafting does not pay", None: "it cannot be told whether drafting pays"}
        which = f"the fastest of {self.best_of} ways" if self.best_of > 1 else "the only way measured"
        return (
            f"{self.scope}: {says[self.pays]}; {which}, {self.way.label}, is "
            f"{self.speedup.value:.2f} times as fast as plain decoding ({_interval(self)})."
        )


def verdicts(trials: Trials) -> list[Verdict]:
    """Find the fastest way for every target and language."""
    several = len({language for _, language in trials.scopes}) > 1
    found = []
    for model, language in trials.scopes:
        speedups = {way: [trial.speedup for trial in some] for way, some in _by_way(trials, model, language).items()}
        best = max(speedups, key=lambda way: fmean(speedups[way]))
        highs = [mean_interval(values).high for values in speedups.values()]
        all_slower = all(high is not None and high < 1 for high in highs)
        allowing = mean_interval(speedups[best], 1 - (1 - LEVEL) / len(speedups))
        scope = f"{model}, {language}" if several else model
        own = mean_interval(speedups[best])
        found.append(Verdict(scope, language, best, own, len(speedups), allowing, all_slower))
    return found


def figures_of_ways(trials: Trials) -> list[dict[str, Any]]:
    """Return the main figures of every way, for programs; "different" is None where outputs were not compared."""
    found = []
    for way in trials.ways:
        some = chosen(trials.drafted, way)
        speedup = mean_interval([trial.speedup for trial in some])
        found.append(
            {
                "model": way.model,
                "drafter": way.drafter,
                "strategy": way.strategy,
                "num_draft_tokens": way.k,
                "temperature": way.temperature,
                "prompts": speedup.n,
                "speedup": speedup.value,
                "low": speedup.low,
                "high": speedup.high,
                "acceptance": pooled_acceptance(some),
                "tokens_per_pass": pooled_tokens_per_pass(some),
                "different": sum(len(trial.gaps) for trial in some) if not way.temperature else None,
            }
        )
    return found


def answer(trials: Trials) -> Section:
    """The opening section."""
    text = []
    for verdict in verdicts(trials):
        text += [verdict.sentence, _reason(trials, verdict), _least(trials, verdict), _others(trials, verdict)]
    same = "The text stays the same." if trials.compared else "The text is drawn with the same probabilities."
    text += [
        "Drafting means that something cheap guesses the next k tokens and the large model, the target, checks all of "
        f"them in one pass; it keeps those that it would have written itself. {same} Whether it comes "
        "sooner depends on how many guesses are right (acceptance) and on what guessing and checking cost here.",
        "Intervals are over prompts: they say what other prompts of these kinds would give on this machine, in the "
        "state it was in. They say nothing about other machines, models or texts.",
    ]
    return Section("The answer", [paragraph for paragraph in text if paragraph])


def measured(trials: Trials, arguments: Mapping[str, Any], statistics: Mapping[str, Any]) -> Section:
    """What was measured, where and when."""
    machine = statistics.get("machine", {})
    made_of = [str(machine[key]) for key in ("system", "processor", "device") if machine.get(key)]
    versions = [f"{key} {machine[key]}" for key in ("spectool", "mlx", "mlx_lm") if machine.get(key)]
    began, minutes = str(statistics.get("began"))[:16].replace("T", " "), statistics.get("seconds", 0) / 60
    text = [
        f"“{arguments.get('name')}”, begun {began}; decoding took {minutes:.1f} minutes on {', '.join(made_of)}, "
        f"{machine.get('cores')} cores, {size(machine.get('memory_bytes'))} of memory, with {', '.join(versions)}."
    ]
    for model in trials.models:
        prompts = [
            f"{len(some)} in {language} ({', '.join(dict.fromkeys(trial.kind for trial in some))})"
            for name, language in trials.scopes
            if name == model and (some := chosen(trials.plain, None, model, language))
        ]
        weights = size(statistics.get("sizes", {}).get(model))
        drafts = statistics.get("draft_sizes", {}).get(model, {}).items()
        beside = f"; draft models: {', '.join(f'{name}, {size(draft)}' for name, draft in drafts)}" if drafts else ""
        text.append(f"Target {model}, {weights} of weights{beside}; prompts: {', '.join(prompts)}.")
    repetitions = max(trial.repetitions for trial in trials.plain)
    text.append(
        f"Every prompt was decoded in all ways that are for its language, one after the other and in an order that "
        f"changes, to at most {arguments.get('tokens')} tokens, "
        f"{'once' if repetitions == 1 else f'{repetitions} times'} in each, {_sampling(arguments)}."
    )
    if trials.left_out:
        count = len(set(trials.left_out.values()))
        text.append(
            f"Left out of all that follows: {count} prompt{'' if count == 1 else 's'} whose output "
            f"has fewer than {LEAST} tokens in some way, wherever that is so, since such a speed is chance."
        )
    return Section("What was measured", text)


def _reason(trials: Trials, verdict: Verdict) -> str:
    """Why: what a cycle yields, and what it costs."""
    some = chosen(trials.drafted, verdict.way, language=verdict.language)
    step = plain_step(trials, some)
    draft, passing, rest = (seconds / step for seconds in cycle_seconds(some))
    tokens, cost = pooled_tokens_per_pass(some), draft + passing + rest
    return (
        f"The reason: the target accepts {percent(pooled_acceptance(some))} of the draft tokens, so that a cycle "
        f"yields {tokens:.2f} tokens; it takes {cost:.2f} times as long as a "
        f"step of plain decoding, of which {passing:.2f} go to the target's pass, {draft:.2f} to drafting and "
        f"{rest:.2f} to the rest. That is {tokens / cost:.2f} times as fast for all prompts taken together; the figure "
        "above is the mean over prompts, where a short one counts as much as a long one."
    )


def _least(trials: Trials, verdict: Verdict) -> str:
    """Where this way helps least and most."""
    groups: dict[str, list[float]] = {}
    for trial in chosen(trials.drafted, verdict.way, language=verdict.language):
        groups.setdefault(trial.kind, []).append(trial.speedup)
    if len(groups) < 2:
        return ""
    means = {name: mean_interval(values) for name, values in groups.items()}
    least, most = (pick(means, key=lambda name: means[name].value) for pick in (min, max))
    slower = [name for name, found in means.items() if found.value < 1]
    rest = f" On average it slows these down: {'; '.join(slower)}." if slower else ""
    return f"It helps least for {least} ({_spelt(means[least])}) and most for {most} ({_spelt(means[most])}).{rest}"


def _others(trials: Trials, verdict: Verdict) -> str:
    """How the other ways do."""
    if verdict.best_of < 2:
        return ""
    by_way = _by_way(trials, verdict.way.model, verdict.language).values()
    found = [mean_interval([trial.speedup for trial in some]) for some in by_way]
    faster = sum(one.low is not None and one.low > 1 for one in found)
    slower = sum(one.high is not None and one.high < 1 for one in found)
    unsure = len(found) - faster - slower
    told = f"; for {unsure} that cannot be told" if unsure else ""
    return (
        f"Of {len(found)} ways, {faster} {_are(faster)} faster than plain decoding and {slower} {_are(slower)} slower, "
        f"each taken by itself at 95%{told}."
    )


def _by_way(trials: Trials, model: str, language: str) -> dict[Way, list[Trial]]:
    """Return the drafted trials of a target and language."""
    found: dict[Way, list[Trial]] = {}
    for trial in chosen(trials.drafted, model=model, language=language):
        found.setdefault(trial.way, []).append(trial)
    return found


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _interval(verdict: Verdict) -> str:
    found, allowing = verdict.speedup, verdict.allowing
    if found.low is None:
        return "one prompt, from which nothing follows for others"
    spelt = f"95% interval {_ends(found)} over {found.n} prompts"
    if verdict.best_of < 2:
        return spelt
    return f"{spelt}; {_ends(allowing)} allowing for the choice of the fastest"


def _spelt(found: Estimate) -> str:
    if found.low is None:
        return f"{found.value:.2f} times, one prompt"
    return f"{found.value:.2f} times, {_ends(found)}, {found.n} prompts"


def _ends(found: Estimate) -> str:
    return f"{max(0.0, found.low or 0.0):.2f} to {found.high:.2f}"  # no speed-up is negative


def _sampling(arguments: Mapping[str, Any]) -> str:
    given = arguments.get("temperature", 0)
    drawn = [f"{each:g}" for each in (given if isinstance(given, list) else [given])]
    seed = "" if drawn == ["0"] else f", seed {arguments.get('seed')}"
    return f"at temperature {' and '.join(drawn)}{seed}"
