"""What a run measured, prompt by prompt.

A *trial* is one prompt decoded by one configuration, with all its repetitions. Means and intervals are taken over
trials: repetitions share the text, so counting each of them would make intervals too narrow. A speed-up is taken
inside a block, against plain decoding of the same prompt, and then averaged over repetitions.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from spectool import ArtifactError
from spectool.artifacts.benchmark import PLAIN, Benchmark, Row
from spectool.measure.intervals import LEAST, Estimate, geometric_mean, speedup_interval, too_short

_GRAM = 4  # tokens that count as a repetition when they come again
_SUMS = ("tokens", "passes", "proposed", "accepted")
_TIMES = ("seconds", "draft_seconds", "pass_seconds", "draft_prompt_seconds")
_CONFIGURATION = ("model", "temperature", "drafter", "strategy", "num_draft_tokens")


@dataclass(frozen=True, slots=True)
class Trial:
    """One prompt decoded by one configuration; counts and times are sums over its repetitions."""

    language: str
    kind: str
    prompt: str
    speedup: float  # plain decoding's seconds per token / these, geometric mean over repetitions
    repeated: float  # share of the 4-grams of plain decoding's output that it had before, mean over repetitions
    tokens: int
    passes: int
    proposed: int
    accepted: int
    seconds: float
    draft_seconds: float
    pass_seconds: float
    draft_prompt_seconds: float
    plain_tokens: int  # plain decoding in the same blocks
    plain_seconds: float


@dataclass(frozen=True)
class ConfigurationResult:
    """A configuration of one target at one temperature: what it did, and how much faster than plain decoding it was."""

    model: str
    temperature: float
    drafter: str
    strategy: str | None  # of older runs, which compared ways to translate drafts
    num_draft_tokens: int | None  # k; None if chosen while decoding
    trials: Sequence[Trial]
    outputs: int
    gaps: Sequence[float]  # of the two best logits where an output leaves plain decoding's, one for each such output

    @property
    def label(self) -> str:
        """Drafter, strategy and draft length."""
        length = "auto" if self.num_draft_tokens is None else self.num_draft_tokens
        return ", ".join(filter(None, (self.drafter, self.strategy, f"k = {length}")))

    @cached_property
    def speedup(self) -> Estimate:
        """Geometric mean over prompts, with its 95% interval."""
        return speedup_interval(self.speedups)

    @property
    def speedups(self) -> list[float]:
        """The speed-up of each prompt."""
        return [trial.speedup for trial in self.trials]

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed draft tokens; None if none was proposed."""
        return self._total("accepted") / self._total("proposed") if self._total("proposed") else None

    @property
    def tokens_per_pass(self) -> float:
        """Committed tokens / passes of the target."""
        return self._total("tokens") / self._total("passes")

    @property
    def cycle(self) -> dict[str, float]:
        """What an average cycle takes and where, in steps of plain decoding of the same prompts."""
        step = self._total("plain_seconds") / self._total("plain_tokens") * self._total("passes")
        drafting, passing = self._total("draft_seconds"), self._total("pass_seconds")
        rest = self._total("seconds") - self._total("draft_prompt_seconds") - drafting - passing
        return {"drafting": drafting / step, "target's pass": passing / step, "rest": rest / step}

    def figures(self) -> dict[str, Any]:
        """The main figures for programs; "different" is None for drawn outputs, which are not compared."""
        return {
            "model": self.model,
            "drafter": self.drafter,
            "strategy": self.strategy,
            "num_draft_tokens": self.num_draft_tokens,
            "temperature": self.temperature,
            "prompts": self.speedup.n,
            "speedup": self.speedup.value,
            "low": self.speedup.low,
            "high": self.speedup.high,
            "acceptance": self.acceptance,
            "tokens_per_pass": self.tokens_per_pass,
            "different": None if self.temperature else len(self.gaps),
        }

    @property
    def languages(self) -> set[str]:
        """Languages of the prompts."""
        return {trial.language for trial in self.trials}

    def in_language(self, language: str) -> "ConfigurationResult":
        """The same configuration on the prompts in one language only."""
        return replace(self, trials=[trial for trial in self.trials if trial.language == language])

    def _total(self, name: str) -> float:
        return sum(float(getattr(trial, name)) for trial in self.trials)


@dataclass(frozen=True)
class Trials:
    """Everything that a run measured, in the order of its experiment."""

    run: Benchmark
    results: Sequence[ConfigurationResult]
    left_out: int  # prompts with an output of fewer than `LEAST` tokens


def read_trials(run: Benchmark) -> Trials:
    """The generations of a run, gathered by configuration and prompt.

    Raises:
        ArtifactError: No drafted output can be compared with plain decoding, or the rows are not the manifest's.
    """
    rows: list[Row] = run.generations.to_pylist()
    blocks = defaultdict[tuple[int, str], list[Row]](list)  # by number and target
    for row in rows:
        row["language"] = row["language"] or "unnamed"
        blocks[row["block"], row["model"]].append(row)
    # By configuration: each drafted generation with plain decoding of the same block.
    pairs = defaultdict[tuple[Any, ...], list[tuple[Row, Row]]](list)
    for block in blocks.values():
        plain = next((row for row in block if row["drafter"] == PLAIN), None)
        if plain is not None and min(row["tokens"] for row in block) >= LEAST:
            for row in block:
                if row["drafter"] != PLAIN:
                    pairs[tuple(row[name] for name in _CONFIGURATION)].append((row, plain))
    if not pairs:
        raise ArtifactError(f"{run.path}: {too_short(0)}")
    measured = [_measured(configuration, some) for configuration, some in pairs.items()]
    place = _order(run.manifest.arguments)
    short = {(row["language"], row["kind"], row["prompt"]) for row in rows if row["tokens"] < LEAST}
    return Trials(run, sorted(measured, key=place), len(short))


def part_named(parts: Sequence[Any], name: str) -> Any:
    """The part of an experiment, such as a model, with a name.

    Raises:
        ArtifactError: There is none, because rows and manifest do not belong together.
    """
    for part in parts:
        if part["name"] == name:
            return part
    known = ", ".join(repr(part["name"]) for part in parts)
    raise ArtifactError(
        f"the rows of this run are of {name!r}, expected {known}, which its manifest names. Copy or measure the run "
        "again"
    )


def repeated_share(output: Sequence[int]) -> float:
    """Share of an output's 4-grams of tokens that it had before.

    >>> repeated_share([1, 2, 3, 4, 5]), repeated_share([1, 2, 1, 2, 1, 2, 1])
    (0.0, 0.5)
    """
    grams = list(zip(*(output[start:] for start in range(_GRAM)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _measured(configuration: Sequence[Any], pairs: Sequence[tuple[Row, Row]]) -> ConfigurationResult:
    prompts = defaultdict[tuple[str, ...], list[tuple[Row, Row]]](list)
    for row, plain in pairs:
        prompts[row["language"], row["kind"], row["prompt"]].append((row, plain))
    return ConfigurationResult(
        **dict(zip(_CONFIGURATION, configuration, strict=True)),
        trials=[_trial(some) for some in prompts.values()],
        outputs=len(pairs),
        gaps=[row["gap"] or 0.0 for row, _ in pairs if row["first_difference"] is not None],
    )


def _trial(pairs: Sequence[tuple[Row, Row]]) -> Trial:
    """The trial of one prompt, from its generations, each with plain decoding in the same block."""
    first, _ = pairs[0]
    ratios = [plain["seconds"] / plain["tokens"] / (row["seconds"] / row["tokens"]) for row, plain in pairs]
    return Trial(
        **{name: first[name] for name in ("language", "kind", "prompt")},
        speedup=geometric_mean(ratios),
        repeated=sum(repeated_share(plain["output"]) for _, plain in pairs) / len(pairs),
        **{name: sum(row[name] for row, _ in pairs) for name in (*_SUMS, *_TIMES)},
        **{f"plain_{name}": sum(plain[name] for _, plain in pairs) for name in ("tokens", "seconds")},
    )


def _order(arguments: Mapping[str, Any]) -> Any:
    """A sort key: as the experiment names models, drafters and strategies, then by temperature and draft length."""
    models = arguments["models"]

    def place(one: ConfigurationResult) -> tuple[float, ...]:
        model = part_named(models, one.model)
        drafter = part_named(model["drafters"], one.drafter)
        strategies = list(drafter.get("strategies") or ())
        strategy = strategies.index(one.strategy) if one.strategy in strategies else len(strategies)
        length = float("inf") if one.num_draft_tokens is None else one.num_draft_tokens
        return models.index(model), model["drafters"].index(drafter), strategy, one.temperature, length

    return place
