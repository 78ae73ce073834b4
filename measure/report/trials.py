"""What a run measured, prompt by prompt: the unit over which means and intervals are taken.

A *trial* is one prompt decoded by one configuration, its repetitions together. They share the text, so that counting
each for itself would make intervals too narrow. Speed-up is taken inside a block, where plain decoding of the same
prompt ran beside, and then averaged over repetitions. A trial is a row of these columns:

    model, language, kind, prompt       the target and the prompt
    drafter, strategy, k, temperature   the configuration; k is NaN for as many draft tokens as pay
    name, label                         of the configuration, without and with its draft length; they have the
                                        temperature where there are several
    same                                the label without the temperature
    row                                 the label, behind the target where there are several
    scope                               the language, and the target where several have prompts in it
    tokens, passes, proposed, accepted  sums over repetitions, as all that follows but where it says otherwise
    seconds, draft_seconds, pass_seconds, prompt_seconds, draft_prompt_seconds, first_token_seconds
    joules                              NaN where nothing measures them
    peak_memory                         the most
    outputs, repetitions                how many; fewer repetitions than outputs where prompts share a name
    speedup                             plain seconds per token / these, geometric mean over repetitions
    plain_rate                          tokens per second of plain decoding in the same blocks
    repeated                            share of the outputs' 4-grams of tokens that they had before, mean likewise
    rate, acceptance                    tokens per second; accepted / proposed, NaN where nothing was proposed
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import pandas as pd

from spectool import ArtifactError
from spectool.artifacts.benchmark import PLAIN, Benchmark
from spectool.measure.intervals import geometric_mean
from spectool.measure.sample_size import LEAST

_GRAM = 4  # tokens that count as a repetition when they come again
SCOPE = ["model", "language"]  # there all configurations decode the same prompts, at each temperature
PROMPT = ["model", "temperature", "language", "kind", "prompt"]
_CONFIGURATION = ["drafter", "strategy", "k", "name", "label", "same", "row", "scope"]
_ORDER = ["model", "language", "drafter", "strategy", "temperature", "k", "kind", "prompt"]
_SUMS = (
    *("tokens", "passes", "proposed", "accepted"),
    *("seconds", "draft_seconds", "pass_seconds", "prompt_seconds", "draft_prompt_seconds"),
    "first_token_seconds",
)
Frame: TypeAlias = Any  # pandas ships no types


@dataclass(frozen=True, eq=False)
class Trials:
    """All that was measured, in the order of the experiment."""

    run: Benchmark  # where it comes from
    drafted: Frame  # trials of all drafters
    plain: Frame  # trials of plain decoding
    generations: Frame  # what they are made of, a row for each output: columns as in `GENERATIONS`, and those above
    cycles: Frame  # every cycle of these generations: columns as in `CYCLES`, with model, drafter, label and row
    left_out: int  # prompts whose output has fewer than `LEAST` tokens with some configuration

    @property
    def every(self) -> Frame:
        """All trials, those of plain decoding first."""
        return pd.concat([self.plain, self.drafted])

    @cached_property
    def cycles_by_row(self) -> dict[str, Frame]:
        """The cycles of every configuration, by its ``row``."""
        return dict(list(self.cycles.groupby("row")))

    def plain_beside(self, some: Frame) -> Frame:
        """Return plain decoding of the same prompts by the same targets: drafters may serve some languages only."""
        return self.plain.merge(some[PROMPT].drop_duplicates())


def read_trials(run: Benchmark) -> Trials:
    """Gather the generations of a run.

    Raises:
        ArtifactError: Nothing to compare: no drafted generation has plain decoding beside it; or generations are of
            a model or a drafter that the manifest does not name.
    """
    every = _generations(run)
    named = {
        (model["name"], drafter)
        for model in run.manifest.arguments["models"]
        for drafter in (PLAIN, *(each["name"] for each in model["drafters"]))
    }
    if strangers := set(zip(every.model, every.drafter, strict=True)) - named:
        model, drafter = min(strangers)
        raise ArtifactError(
            f"{run.path}: has generations of model {model!r} with drafter {drafter!r}, expected models and drafters "
            f"that its manifest names. {run.again}"
        )
    block = ["block", "model"]
    plain = every.loc[every.drafter == PLAIN, [*block, "step"]].rename(columns={"step": "plain_step"})
    rows = every[every.groupby(block).tokens.transform("min") >= LEAST].merge(plain, on=block)
    if (rows.drafter == PLAIN).all():
        raise ArtifactError(
            f"{run.path}: {len(every)} generations, none drafted beside plain decoding with {LEAST} tokens or more; "
            "expected some. Measure with a drafter and longer outputs: spectool bench --help"
        )
    rows["speedup"] = rows.plain_step / rows.step
    trials = _sorted(_trials(rows), run.manifest.arguments)
    cycles = run.cycles.to_pandas().merge(rows[["block", "order", "model", "drafter", "label", "row"]])
    drafted = trials.drafter != PLAIN
    left_out = every.loc[every.tokens < LEAST, ["language", "kind", "prompt"]].drop_duplicates()
    return Trials(run, trials[drafted], trials[~drafted], rows, cycles, len(left_out))


def by_scope(trials: Frame, make: Callable[[Frame], Any], scope: Sequence[str] = SCOPE) -> dict[str, Any]:
    """Make a table, or whatever else, from the trials of every target and language, or of every other ``scope``.

    Returns:
        What was made, by a sentence that ends its caption and says of which target and language it is, where there
        are several.
    """
    several = [column for column in reversed(scope) if trials[column].nunique() > 1]

    def here(some: Frame) -> str:
        parts = [f"{'target' if column == 'model' else column} {some[column].iloc[0]}" for column in several]
        return f" Here: {', '.join(parts)}." if parts else ""

    return {here(some): make(some) for _, some in trials.groupby(scope, sort=False)}


by_model = partial(by_scope, scope=["model"])


def per(frame: Frame, column: str, row: Callable[[Frame], Mapping[str, str]], names: str = "configuration") -> Frame:
    """Return a table with a row for each value of a column, in the order of the frame.

    Args:
        frame: Trials, cycles or generations.
        column: Its values become the rows' names.
        row: From the part of the frame with one value to the cells by column.
        names: What the rows are.
    """
    return table_of({name: row(some) for name, some in frame.groupby(column, sort=False)}, names)


def table_of(rows: Mapping[str, Mapping[str, str]], names: str) -> Frame:
    """Return a table of cells by row and column; ``names`` says what the rows are."""
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(names)


def pooled_acceptance(trials: Frame) -> float | None:
    """Return accepted / proposed over all trials together; None where nothing was proposed."""
    return float(trials.accepted.sum() / trials.proposed.sum()) if trials.proposed.any() else None


def pooled_tokens_per_pass(trials: Frame) -> float:
    """Return committed tokens / passes over all trials together."""
    return float(trials.tokens.sum() / trials.passes.sum())


def repeated_share(output: Sequence[int]) -> float:
    """Return the share of an output's 4-grams of tokens that it had before.

    >>> repeated_share([1, 2, 3, 4, 5]), repeated_share([1, 2, 1, 2, 1, 2, 1])
    (0.0, 0.5)
    """
    grams = list(zip(*(output[start:] for start in range(_GRAM)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _generations(run: Benchmark) -> Frame:
    """Return the generations, with the names of their configurations and their seconds per token."""
    rows = run.generations.to_pandas().rename(columns={"num_draft_tokens": "k"})
    rows["language"] = rows.language.replace("", "unnamed")
    rows["step"] = rows.seconds / rows.tokens
    rows["repeated"] = rows.output.map(repeated_share)
    translated = rows.drafter + (", " + rows.strategy).fillna("")
    drawn = ", temperature " + rows.temperature.map("{:g}".format) if rows.temperature.nunique() > 1 else ""
    lengths = rows.k.map(lambda k: "auto" if pd.isna(k) else f"{k:.0f}").astype(str)
    length = (", k = " + lengths).where(rows.drafter != PLAIN, "")
    rows["name"], rows["same"] = translated + drawn, translated + length
    rows["label"] = rows.name + length
    rows["row"] = rows.model + ": " + rows.label if rows.model.nunique() > 1 else rows.label
    shared = rows.groupby("language").model.transform("nunique") > 1
    rows["scope"] = rows.language + (" (" + rows.model + ")").where(shared, "")
    return rows


def _trials(rows: Frame) -> Frame:
    trials = rows.groupby([*PROMPT, *_CONFIGURATION], sort=False, dropna=False, as_index=False).agg(
        **{name: (name, "sum") for name in _SUMS},
        joules=("joules", lambda values: values.sum(skipna=False)),
        peak_memory=("peak_memory", "max"),
        outputs=("tokens", "size"),
        repetitions=("repetition", "nunique"),
        speedup=("speedup", geometric_mean),
        plain_rate=("plain_step", lambda seconds: 1 / seconds.mean()),
        repeated=("repeated", "mean"),
    )
    return trials.assign(rate=trials.tokens / trials.seconds, acceptance=trials.accepted / trials.proposed)


def _sorted(trials: Frame, arguments: Mapping[str, Any]) -> Frame:
    """Sort trials as the experiment names models, drafters, strategies, languages and kinds."""
    models, prompts = arguments.get("models", ()), arguments.get("prompts", ())
    drafters = [drafter for model in models for drafter in model["drafters"]]
    named = {
        "model": [model["name"] for model in models],
        "drafter": [drafter["name"] for drafter in drafters],
        "strategy": [strategy for drafter in drafters for strategy in drafter.get("strategies") or ()],
        "language": [prompt["language"] for prompt in prompts],
        "kind": [kind for prompt in prompts for kind in prompt.get("kinds") or ()],
    }

    def place(values: Frame) -> Frame:
        ordered = dict.fromkeys([*named.get(values.name, ()), *sorted(values.dropna().unique())])
        return values.map({name: place for place, name in enumerate(ordered)})

    return trials.sort_values(_ORDER, key=place)
