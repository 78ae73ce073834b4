"""What a run measured, prompt by prompt: the unit over which means and intervals are taken.

A *trial* is one prompt decoded in one way, its repetitions together: they share the text, so that counting
each for itself would make intervals too narrow. Speed-up is taken inside a block, where plain decoding of the
same prompt ran beside, and then averaged over repetitions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from spectool import ArtifactError
from spectool.artifacts.formats.benchmark import PLAIN, Benchmark, Row

_TIMES = ("seconds", "draft_seconds", "pass_seconds", "prompt_seconds", "draft_prompt_seconds")
LEAST = 8  # tokens: the speed of a shorter output is chance


class Way(NamedTuple):
    """A way of decoding.

    Attributes:
        model: The target.
        drafter: The drafter.
        strategy: Translation of drafts; None where nothing is translated.
        k: Draft tokens at most; None for as many as pay, 0 for plain decoding.
        temperature: 0 for the most probable tokens.
    """

    model: str
    drafter: str
    strategy: str | None
    k: int | None
    temperature: float = 0.0

    @property
    def name(self) -> str:
        """Drafter, strategy and temperature.

        >>> Way("m", "qwen", "anchored", 4).name, Way("m", "history", None, 4, 0.7).name
        ('qwen, anchored', 'history, temperature 0.7')
        """
        drawn = [f"temperature {self.temperature:g}"] if self.temperature else []
        return ", ".join([self.drafter, *([] if self.strategy is None else [self.strategy]), *drawn])

    @property
    def label(self) -> str:
        """All but the model.

        >>> Way("m", "qwen", "anchored", 4).label, Way("m", "dictionary", None, None).label
        ('qwen, anchored, k = 4', 'dictionary, k = auto')
        """
        if self.drafter == PLAIN:
            return self.name
        return f"{self.name}, k = auto" if self.k is None else f"{self.name}, k = {self.k}"


class OfPrompt(NamedTuple):
    """What tells a prompt from others.

    Attributes:
        language: Its language.
        kind: Of text.
        name: Its name.
    """

    language: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A prompt decoded in one way; sums are over its repetitions.

    Attributes:
        way: How.
        language: Of the prompt.
        kind: Of the prompt.
        prompt: Its name.
        speedup: Plain seconds per token / these, each in its block; mean over repetitions.
        plain_rate: Tokens per second of plain decoding in the same blocks; mean over repetitions.
        tokens: Committed.
        passes: Of the target.
        proposed: Draft tokens.
        accepted: Of those.
        seconds: In all.
        draft_seconds: Of those, in the drafter.
        pass_seconds: Of those, in the target's passes.
        prompt_seconds: Before, the target reading the prompt.
        draft_prompt_seconds: Before, the drafter reading it.
        joules: Over ``seconds``; None where nothing tells.
        peak_memory: Bytes, the most of the repetitions.
        outputs: How many.
        repetitions: How many; fewer than outputs where prompts share a name.
        gaps: Of the outputs that leave plain decoding's: distance of the two best log-probabilities there.
    """

    way: Way
    language: str
    kind: str
    prompt: str
    speedup: float
    plain_rate: float
    tokens: int
    passes: int
    proposed: int
    accepted: int
    seconds: float
    draft_seconds: float
    pass_seconds: float
    prompt_seconds: float
    draft_prompt_seconds: float
    joules: float | None
    peak_memory: int
    outputs: int
    repetitions: int
    gaps: tuple[float, ...]

    @property
    def of_prompt(self) -> OfPrompt:
        """What tells its prompt from others."""
        return OfPrompt(self.language, self.kind, self.prompt)

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed draft tokens; None where none was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def tokens_per_pass(self) -> float:
        """Committed tokens / passes of the target."""
        return self.tokens / self.passes


@dataclass(frozen=True)
class Trials:
    """All trials of a run, in the order of the experiment.

    Attributes:
        plain: Those of plain decoding.
        drafted: All others.
        left_out: Block and target of outputs that are not looked at, having fewer than `LEAST` tokens in some way;
            and their prompts.
        compared: Whether outputs were compared with plain decoding's, all of them; at a temperature they are drawn.
    """

    plain: Sequence[Trial]
    drafted: Sequence[Trial]
    left_out: Mapping[tuple[int, str], OfPrompt]
    compared: bool

    @property
    def ways(self) -> list[Way]:
        """Every way but plain decoding."""
        return list(dict.fromkeys(trial.way for trial in self.drafted))

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """Model and language of the tables that compare ways."""
        return list(dict.fromkeys((trial.way.model, trial.language) for trial in self.drafted))

    @property
    def models(self) -> list[str]:
        """The targets."""
        return list(dict.fromkeys(way.model for way in self.ways))

    def plain_beside(self, some: Iterable[Trial]) -> list[Trial]:
        """Return plain decoding of the same prompts by the same targets: drafters may serve some languages only."""
        seen = {(trial.way.model, trial.way.temperature, trial.of_prompt) for trial in some}
        return [trial for trial in self.plain if (trial.way.model, trial.way.temperature, trial.of_prompt) in seen]

    def scope_name(self, model: str, language: str) -> str:
        """Name a scope by its language, and by its target where that is not enough."""
        several = sum(found == language for _, found in self.scopes) > 1
        return f"{language} ({model})" if several else language

    def named(self, model: str, name: str) -> str:
        """Put the target before a name, where there are several."""
        return f"{model}: {name}" if len(self.models) > 1 else name

    def here(self, model: str, language: str | None = None) -> str:
        """Say of which target and language a table is, where there are several: a sentence to go on with."""
        parts = [f"language {language}"] if language and len({found for _, found in self.scopes}) > 1 else []
        parts += [f"target {model}"] if len(self.models) > 1 else []
        return f" Here: {', '.join(parts)}." if parts else ""


def read_trials(run: Benchmark) -> Trials:
    """Gather the generations of a run.

    Raises:
        ArtifactError: Nothing to compare: no drafted generation has plain decoding beside it.
    """
    rows = run.generations.drop_columns(["output"]).to_pylist()
    plain = {(row["block"], row["model"]): row for row in rows if row["drafter"] == PLAIN}
    short = {(row["block"], row["model"]): _prompt(row) for row in rows if row["tokens"] < LEAST}
    # A drafter's cache lives on inside a block, so that only its first draft length reads the whole prompt.
    reading: dict[tuple[Any, ...], float] = defaultdict(float)
    for row in rows:
        reading[_reader(row)] = max(reading[_reader(row)], row["draft_prompt_seconds"])
    groups: dict[tuple[Way, OfPrompt], list[tuple[Row, Row]]] = defaultdict(list)
    for row in rows:
        of_block = row["block"], row["model"]
        if of_block in plain and of_block not in short:
            whole = row | {"draft_prompt_seconds": reading[_reader(row)]}
            groups[_way(row), _prompt(row)].append((whole, plain[of_block]))
    place = _places(run.manifest.arguments)
    trials = [_trial(way, prompt, pairs) for (way, prompt), pairs in groups.items()]
    trials.sort(key=lambda trial: (place(trial), trial.prompt))
    found = Trials(
        [trial for trial in trials if trial.way.drafter == PLAIN],
        [trial for trial in trials if trial.way.drafter != PLAIN],
        short,
        not any(row["temperature"] for row in rows),
    )
    if not found.drafted:
        raise ArtifactError(
            f"{run.path}: {len(rows)} generations, none drafted beside plain decoding with {LEAST} tokens or more; "
            "expected some. Measure with a drafter and longer outputs: spectool bench --help"
        )
    return found


def chosen(
    trials: Iterable[Trial],
    way: Way | None = None,
    model: str | None = None,
    language: str | None = None,
    kind: str | None = None,
) -> list[Trial]:
    """Return the trials of a way, a model, a language, a kind, as far as these are named."""
    return [
        trial
        for trial in trials
        if (way is None or trial.way == way)
        and (model is None or trial.way.model == model)
        and (language is None or trial.language == language)
        and (kind is None or trial.kind == kind)
    ]


def pooled_acceptance(trials: Iterable[Trial]) -> float | None:
    """Return accepted / proposed over all trials together; None where nothing was proposed."""
    trials = list(trials)
    proposed = sum(trial.proposed for trial in trials)
    return sum(trial.accepted for trial in trials) / proposed if proposed else None


def pooled_tokens_per_pass(trials: Sequence[Trial]) -> float:
    """Return committed tokens / passes over all trials together."""
    return sum(trial.tokens for trial in trials) / sum(trial.passes for trial in trials)


def _way(row: Row) -> Way:
    return Way(row["model"], row["drafter"], row["strategy"], row["num_draft_tokens"], row["temperature"])


def _prompt(row: Row) -> OfPrompt:
    return OfPrompt(row["language"] or "unnamed", row["kind"], row["prompt"])


def _reader(row: Row) -> tuple[Any, ...]:
    """What reads a prompt once for all draft lengths."""
    return row["block"], row["model"], row["drafter"], row["strategy"]


def _trial(way: Way, prompt: OfPrompt, pairs: Sequence[tuple[Row, Row]]) -> Trial:
    rows = [row for row, _ in pairs]
    sums = {name: sum(row[name] for row in rows) for name in ("tokens", "passes", "proposed", "accepted", *_TIMES)}
    joules = [row["joules"] for row in rows]
    return Trial(
        way=way,
        language=prompt.language,
        kind=prompt.kind,
        prompt=prompt.name,
        speedup=fmean(_step(beside) / _step(row) for row, beside in pairs),
        plain_rate=fmean(1 / _step(beside) for _, beside in pairs),
        **sums,
        joules=None if None in joules else sum(joules),
        peak_memory=max(row["peak_memory"] or 0 for row in rows),
        outputs=len(rows),
        repetitions=len({row["repetition"] for row in rows}),
        gaps=tuple(row["gap"] for row in rows if row["first_difference"] is not None),
    )


def _step(row: Row) -> float:
    """Seconds per token."""
    return float(row["seconds"] / row["tokens"])


def _places(arguments: Any) -> Callable[[Trial], tuple[Any, ...]]:
    """Sort trials as the experiment names models, drafters, strategies, languages and kinds."""
    models = [model["name"] for model in arguments.get("models", ())]
    drafters = [drafter for model in arguments.get("models", ()) for drafter in model["drafters"]]
    names = [drafter["name"] for drafter in drafters]
    strategies = [strategy for drafter in drafters for strategy in drafter.get("strategies") or ()]
    prompts = arguments.get("prompts", ())
    languages = [prompt["language"] for prompt in prompts]
    kinds = [kind for prompt in prompts for kind in prompt.get("kinds") or ()]

    def at(names: Sequence[Any], name: Any) -> tuple[int, str]:
        return (names.index(name) if name in names else len(names)), name or ""

    def place(trial: Trial) -> tuple[Any, ...]:
        way = trial.way
        return (
            at(models, way.model),
            at(languages, trial.language),
            at(names, way.drafter),
            at(strategies, way.strategy),
            way.temperature,
            (way.k is None, way.k or 0),
            at(kinds, trial.kind),
        )

    return place
