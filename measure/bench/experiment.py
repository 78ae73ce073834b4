"""An experiment: which prompts, models, drafters and draft lengths a benchmark runs over.

An experiment is a TOML file, or the options of ``spectool bench``::

    name = "Polish, cross-family"
    tokens = 128                          # to generate after each prompt
    repetitions = 1
    temperature = 0.0
    seed = 0
    ignore_eos = false                    # true: go on behind the end that the model sees, for outputs of one length
    num_draft_tokens = [2, 4, "auto"]

    [[prompts]]                           # one table for each source
    source = "built-in"                   # or a corpus, as for --corpus
    language = "pl"
    kinds = ["encyclopaedic", "question"] # of the built-in ones; all of them by default
    count = 12                            # of each kind

    [[prompts]]
    source = "wiki-pl"
    language = "pl"
    kinds = ["wikipedia"]                 # what the tables call them
    window = 1024                         # tokens of a prompt; 0 takes every document for a prompt
    stride = 512                          # tokens from one window to the next
    count = 50
    chat = false                          # whether prompts go through the model's chat template

    [[models]]
    name = "Bielik 11B"
    languages = ["pl"]                    # of the prompts that it gets; all of them by default
    path = "speakleash/Bielik-11B-v3.0-Instruct-MLX-8bit"

    [[models.drafters]]                   # at least one for each model
    name = "Qwen"
    draft_model = "mlx-community/Qwen2.5-1.5B-Instruct-4bit"
    alignment = "qwen-bielik.align"
    strategies = ["none", "naive", "context", "anchored"]

    [[models.drafters]]
    name = "dictionary"
    dictionary = "pl.dict"
    history = true
    languages = ["pl"]                    # likewise; drafters for different languages may have one name

Paths are seen from where the command is run, as in its options.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from spectool import SpectoolError
from spectool.artifacts.formats.benchmark import PLAIN
from spectool.runtime.translation.strategies import STRATEGIES

BUILT_IN = "built-in"
LANGUAGES = ("pl", "uk", "en", "crh")  # of the built-in prompts
KINDS = ("encyclopaedic", "instruction", "question", "list")  # likewise
CHATTED = ("instruction", "question")  # kinds that are asked through the chat template, where nothing else is said
COUNT = 12  # prompts of each kind
_LONGEST = 64  # draft tokens
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class Prompts:
    """A source of prompts.

    Attributes:
        source: `BUILT_IN`, or a corpus as for ``--corpus``.
        language: Its code.
        kinds: Of built-in prompts those that are wanted; of a corpus the one name of all its prompts.
        count: Prompts of each kind at most.
        window: Tokens of a prompt; 0 takes every document for a prompt.
        stride: Tokens from the beginning of a window to the next.
        chat: Whether prompts go through the model's chat template; None: those kinds that ask something.
    """

    source: str = BUILT_IN
    language: str = ""
    kinds: tuple[str, ...] = ()
    count: int = COUNT
    window: int = 0
    stride: int = 0
    chat: bool | None = None


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """What drafts.

    Attributes:
        name: In the tables.
        draft_model: Directory or hub id.
        alignment: From the draft model's tokenizer to the target's.
        strategies: Of translation, each measured by itself; none where the tokenizers are the same.
        dictionary: Directory.
        history: Draft from what prompt and output have said before.
        languages: Of the prompts that it drafts for; none for all.
    """

    name: str
    draft_model: str | None = None
    alignment: str | None = None
    strategies: tuple[str, ...] = ()
    dictionary: str | None = None
    history: bool = False
    languages: tuple[str, ...] = ()

    @property
    def artifacts(self) -> list[str]:
        """The paths of its artifacts."""
        return [path for path in (self.dictionary, self.alignment) if path is not None]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A target with its drafters.

    Attributes:
        name: In the tables.
        path: Directory or hub id.
        drafters: What drafts for it.
        languages: Of the prompts that it gets; none for all.
    """

    name: str
    path: str
    drafters: tuple[DrafterSpec, ...]
    languages: tuple[str, ...] = ()

    def drafters_for(self, language: str) -> list[DrafterSpec]:
        """Return the drafters for prompts in a language."""
        return [drafter for drafter in self.drafters if language in (drafter.languages or (language,))]


@dataclass(frozen=True, slots=True)
class Experiment:
    """All that is measured.

    Attributes:
        models: The targets.
        prompts: Where prompts come from.
        name: In the tables.
        num_draft_tokens: Draft lengths; None for as many as pay.
        tokens: Generated after each prompt, at most.
        repetitions: Of every prompt.
        temperature: 0 takes the most probable token, and outputs are compared with plain decoding's.
        seed: Of the order in a block, and of sampling.
        ignore_eos: Go on behind the end that the model sees: all outputs have ``tokens`` tokens.
    """

    models: tuple[ModelSpec, ...]
    prompts: tuple[Prompts, ...]
    name: str = "benchmark"
    num_draft_tokens: tuple[int | None, ...] = (2, 4, None)
    tokens: int = 128
    repetitions: int = 1
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Check what a file and the options of a command can get wrong alike."""
        _expect(self.models, "models", "at least one", "none")
        _expect(self.prompts, "prompts", "at least one source", "none")
        _expect(self.num_draft_tokens, "num_draft_tokens", "at least one draft length", "none")
        for length in self.num_draft_tokens:
            _expect(length is None or 0 < length <= _LONGEST, "num_draft_tokens", f"1 to {_LONGEST} or auto", length)
        for key, least in (("tokens", 1), ("repetitions", 1), ("temperature", 0), ("seed", 0)):
            value = getattr(self, key)
            _expect(isfinite(value) and value >= least, key, f"a number from {least} on", getattr(self, key))
        _different([model.name for model in self.models], "models")
        for model in self.models:
            known = {source.language for source in self.prompts}
            _expect(not model.languages or known & set(model.languages), f"{model.name}: languages", "prompts", "none")
            _expect(model.drafters, f"{model.name}: drafters", "at least one", "none")
            for drafter in model.drafters:
                served = set(drafter.languages or known) & set(model.languages or known) & known
                _expect(served, f"{model.name}: drafter {drafter.name}: languages", "of the model's prompts", "none")
            for language in known & set(model.languages or known):
                _expect(model.drafters_for(language), f"{model.name}: drafters", f"one for {language}", "none")
                names = [drafter.name for drafter in model.drafters_for(language)]
                _different([PLAIN, *names], f"{model.name}: drafters")
            for drafter in model.drafters:
                _check_drafter(f"{model.name}: drafter {drafter.name}", drafter)
        for source in self.prompts:
            _check_prompts(f"prompts of {source.source}", source)

    def described(self) -> dict[str, Any]:
        """Return the experiment as JSON has it."""
        described: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        described["num_draft_tokens"] = ["auto" if k is None else k for k in self.num_draft_tokens]
        return described


def with_paths(keys: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of an experiment with other paths: whatever names a model, an artifact or a corpus."""

    def other(part: Any, *names: str) -> Any:
        given = {name: getattr(part, name) for name in names}
        return replace(part, **{name: paths.get(value, value) for name, value in given.items()})

    models = (
        replace(
            other(model, "path"),
            drafters=tuple(other(drafter, "draft_model", "alignment", "dictionary") for drafter in model.drafters),
        )
        for model in keys.get("models", ())
    )
    prompts = (other(source, "source") for source in keys.get("prompts", ()))
    return {**keys, "models": tuple(models), "prompts": tuple(prompts)}


def read_paths(path: Path) -> dict[str, str]:
    """Read a TOML file of nothing but ``"name in an experiment" = "path here"``.

    Raises:
        SpectoolError: It cannot be read, or says something else.
    """
    found = _read_toml(path)
    for name, value in found.items():
        _expect(isinstance(value, str), f"{path}: {name}", "a path", value)
    return found


def read_experiment(path: Path) -> dict[str, Any]:
    """Read the keys of an experiment from a TOML file; `Experiment` takes them.

    Raises:
        SpectoolError: It cannot be read, or something in it is not what it should be; names the key.
    """
    text = _read_toml(path)
    try:
        return _keys(text)
    except SpectoolError as error:
        raise SpectoolError(f"{path}: {error}") from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpectoolError(f"{path}: expected an experiment in TOML, got {error}{_HELP}") from error


_HELP = ". docs/measuring.md shows an experiment"
_TYPES: Mapping[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    str | None: ((str,), "a text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    bool | None: ((bool,), "true or false"),
}


def _keys(text: dict[str, Any]) -> dict[str, Any]:
    """Check the types of an experiment's keys and make its parts."""
    tables: dict[str, Callable[[str, Any], Any]] = {
        "models": _model,
        "prompts": lambda where, table: _table(Prompts, where, table),
    }
    found = {}
    for key, value in text.items():
        if key in tables:
            _expect(isinstance(value, list), key, "tables, [[…]] each", value)
            found[key] = tuple(tables[key](f"{key} {number}", table) for number, table in enumerate(value, 1))
        elif key == "num_draft_tokens":
            _expect(isinstance(value, list), key, "a list", value)
            for k in value:
                _expect(k == "auto" or type(k) is int, key, 'numbers or "auto"', k)
            found[key] = tuple(None if k == "auto" else k for k in value)
        else:
            found |= _typed(Experiment, "experiment", {key: value})
    return found


def _model(where: str, table: Any) -> ModelSpec:
    _expect(isinstance(table, dict), where, "a table", table)
    drafters = table.get("drafters", [])
    _expect(isinstance(drafters, list), f"{where}: drafters", "tables, [[models.drafters]] each", drafters)
    made = tuple(
        _table(DrafterSpec, f"{where}, drafter {number}", drafter) for number, drafter in enumerate(drafters, 1)
    )
    others = {key: value for key, value in table.items() if key != "drafters"}
    return ModelSpec(**_required(ModelSpec, where, _typed(ModelSpec, where, others)), drafters=made)


def _table(kind: type[Table], where: str, table: Any) -> Table:
    _expect(isinstance(table, dict), where, "a table", table)
    return kind(**_required(kind, where, _typed(kind, where, table)))


def _typed(kind: Any, where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a table, each of its type."""
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}
    found: dict[str, Any] = {}
    for key, value in table.items():
        _expect(key in types, f"{where}: {key}", f"one of {', '.join(types)}", "another key")
        if types[key] == tuple[str, ...]:
            good = isinstance(value, list) and all(isinstance(part, str) for part in value)
            _expect(good, f"{where}: {key}", "a list of texts", value)
            found[key] = tuple(value)
        else:
            expected, words = _TYPES[types[key]]
            _expect(type(value) in expected, f"{where}: {key}", words, value)
            found[key] = value
    return found


def _required(kind: Any, where: str, found: dict[str, Any]) -> dict[str, Any]:
    for key in ("name", "path"):
        if key in {field.name for field in fields(kind)}:
            _expect(found.get(key), f"{where}: {key}", "a text", "none")
    return found


def _check_drafter(where: str, drafter: DrafterSpec) -> None:
    model = drafter.draft_model is not None
    _expect(model or drafter.dictionary is not None or drafter.history, where, "something that drafts", "nothing")
    _expect(model or drafter.alignment is None, f"{where}: alignment", "a draft_model with it", "none")
    _expect(drafter.alignment or not drafter.strategies, f"{where}: strategies", "an alignment with them", "none")
    for strategy in drafter.strategies:
        _expect(strategy in STRATEGIES, f"{where}: strategies", f"of {', '.join(STRATEGIES)}", strategy)


def _check_prompts(where: str, source: Prompts) -> None:
    if source.source == BUILT_IN:
        _expect(source.language in LANGUAGES, f"{where}: language", f"one of {', '.join(LANGUAGES)}", source.language)
        for kind in source.kinds:
            _expect(kind in KINDS, f"{where}: kinds", f"of {', '.join(KINDS)}", kind)
        _expect(not source.window, f"{where}: window", "none, but for corpora", source.window)
    else:
        _expect(len(source.kinds) < 2, f"{where}: kinds", "one name for all", ", ".join(source.kinds))
    _expect(source.count > 0, f"{where}: count", "a number from 1 on", source.count)
    good = source.window == source.stride == 0 or 0 < source.stride <= source.window
    _expect(good, f"{where}: stride", "1 to the window", source.stride)


def _different(names: list[str], where: str) -> None:
    for place, name in enumerate(names):
        _expect(name.isprintable(), where, "names that can be printed", repr(name))
        _expect(name not in names[:place], where, "different names", f"{name!r} twice")


def _expect(holds: Any, where: str, expected: str, found: Any) -> None:
    if not holds:
        raise SpectoolError(f"{where}: expected {expected}, got {found}{_HELP}")
