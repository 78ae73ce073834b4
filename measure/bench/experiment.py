"""An experiment: which prompts, models, drafters, draft lengths and temperatures a benchmark runs over.

It is a TOML file, or the options of ``spectool bench``. docs/measuring.md shows a file with every key. Paths are
relative to the folder in which the command is run, as those in options are.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PlainSerializer, PositiveInt, Strict, model_validator

from spectool.artifacts.benchmark import MOST_DRAFT_TOKENS, MOST_TOKENS, PLAIN
from spectool.artifacts.default_paths import AUTO, find_artifact
from spectool.artifacts.dictionary import MIN_PROBABILITY
from spectool.artifacts.json_lines import LONGEST_TEXT
from spectool.measure.checked_toml import Several, TomlTable, check_keys, read_toml

BUILT_IN = "built-in"
LANGUAGES = ("pl", "uk", "en", "crh", "crh-cyrl")  # of the built-in prompts
PROMPT_KINDS = ("encyclopaedic", "instruction", "composition", "question", "list")  # of built-in prompts
CHATTED = ("instruction", "composition", "question")  # kinds that go through the chat template by default
COUNT = 12  # prompts of a corpus by default
_HINT = "docs/measuring.md shows an experiment"


def _draft_length(given: Any) -> int | None:
    if given in ("auto", None):
        return None
    if type(given) is not int or not 0 < given <= MOST_DRAFT_TOKENS:
        raise ValueError(f"expected 1 to {MOST_DRAFT_TOKENS} or auto, got {given}")
    return given


def _as_list(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else [given]


_Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
_Names = Annotated[tuple[_Text, ...], Strict(False)]
_Name = Annotated[_Text, Field(min_length=1)]
_DraftTokens = Annotated[
    int | None, BeforeValidator(_draft_length), PlainSerializer(lambda k: "auto" if k is None else k)
]
_Temperatures = Annotated[Several[Annotated[float, Field(ge=0)]], BeforeValidator(_as_list)]


class Prompts(TomlTable):
    """A source of prompts."""

    source: _Name = BUILT_IN  # or a corpus, as for --corpus
    language: _Text = ""  # its code
    kinds: _Names = ()  # kinds of built-in prompts to use, all by default; or one name for the prompts of a corpus
    # total number of prompts, spread evenly over kinds; by default all built-in ones, or `COUNT` of a corpus
    count: PositiveInt | None = None
    sample: PositiveInt | None = None  # total number of prompts, drawn at random by the experiment's seed instead
    window: NonNegativeInt = 0  # tokens of a prompt from a corpus, one a document; 0 takes whole documents
    chat: bool | None = None  # whether to use the model's chat template; by default for the kinds in `CHATTED`

    @model_validator(mode="after")
    def _check(self) -> "Prompts":
        if self.source == BUILT_IN:
            _expect_of("language", [self.language], LANGUAGES)
            _expect_of("kinds", self.kinds, PROMPT_KINDS)
            _expect(not self.window, "window", "none, but for corpora", self.window)
        else:
            _expect(len(self.kinds) < 2, "kinds", "one name for all", ", ".join(self.kinds))
        return self


class DrafterSpec(TomlTable):
    """A drafter."""

    name: _Name  # in the tables
    draft_model: str | None = None  # directory or hub id
    alignment: str | None = None  # of its tokenizer with the target's
    dictionary: str | _Names | None = None  # directory or name; or a list of several
    history: bool = False
    verify: Literal["exact", "rejection"] | None = None  # as for `spectool generate`; None for its default
    min_draft_prob: Annotated[float, Field(ge=0, le=1)] = MIN_PROBABILITY
    languages: _Names = ()  # of the prompts that it drafts for; all if empty

    @model_validator(mode="after")
    def _check(self) -> "DrafterSpec":
        model = self.draft_model is not None
        _expect(model or self.dictionary or self.history, self.name, "something that drafts", "nothing")
        _expect(model or self.alignment is None, "alignment", "a draft_model with it", "none")
        _expect(model or self.verify != "rejection", "verify", "a draft_model with rejection", "none")
        _expect(AUTO not in self._dictionaries, "dictionary", "names, so that the run says what it measured", AUTO)
        return self

    @property
    def _dictionaries(self) -> Sequence[str]:
        return [self.dictionary] if isinstance(self.dictionary, str) else self.dictionary or ()

    @property
    def artifacts(self) -> list[Path]:
        """The paths of its artifacts."""
        found = [find_artifact(Path(name), ".dict") for name in self._dictionaries]
        return found if self.alignment is None else [*found, find_artifact(Path(self.alignment), ".align")]


class ModelSpec(TomlTable):
    """A target with its drafters."""

    name: _Name  # in the tables
    path: _Name  # directory or hub id
    drafters: Several[DrafterSpec]
    languages: _Names = ()  # of the prompts that it gets; all if empty

    def drafters_for(self, language: str) -> list[DrafterSpec]:
        """The drafters for prompts in a language."""
        return [drafter for drafter in self.drafters if serves(drafter, language)]

    def _check(self, prompts: set[str]) -> None:
        """Check that its languages are those of prompts, that each has drafters, and that names tell them apart."""
        mine = {language for language in prompts if serves(self, language)}
        _expect(mine, f"{self.name}: languages", "prompts", "none")
        for drafter in self.drafters:
            served = any(serves(drafter, language) for language in mine)
            _expect(served, f"{self.name}: drafter {drafter.name}: languages", "of the model's prompts", "none")
        for language in mine:
            found = self.drafters_for(language)
            _expect(found, f"{self.name}: drafters", f"one for {language}", "none")
            _expect_different([PLAIN, *(drafter.name for drafter in found)], f"{self.name}: drafters")


def split(total: int, parts: int) -> list[int]:
    """Shares of ``total`` prompts, as even as possible.

    >>> split(12, 5)
    [3, 3, 2, 2, 2]
    """
    return [total // parts + (place < total % parts) for place in range(parts)]


def serves(spec: ModelSpec | DrafterSpec, language: str) -> bool:
    """Whether a model or a drafter is for prompts in a language."""
    return not spec.languages or language in spec.languages


class Experiment(TomlTable):
    """What a benchmark measures."""

    models: Several[ModelSpec]
    prompts: Several[Prompts]
    name: str = "benchmark"
    num_draft_tokens: Several[_DraftTokens] = (None,)
    tokens: Annotated[PositiveInt, Field(le=MOST_TOKENS)] = 128  # maximum number of tokens generated after each prompt
    repetitions: PositiveInt = 1  # of every prompt
    temperature: _Temperatures = (0.0,)  # 0 takes the most probable tokens, which are compared with plain decoding's
    seed: NonNegativeInt = 0  # for the order in a block, for sampling, and for prompts drawn at random
    ignore_eos: bool = False  # go on after the model ends its text, so that all outputs are equally long

    @model_validator(mode="after")
    def _check(self) -> "Experiment":
        _expect_different([model.name for model in self.models], "models")
        for each in self.models:
            each._check({source.language for source in self.prompts})
        return self


def read_keys(file: Path) -> dict[str, Any]:
    """The keys of an experiment in a TOML file, not yet checked."""
    return read_toml(file, "an experiment", _HINT)


def make_experiment(keys: Mapping[str, Any], file: Path | None = None) -> Experiment:
    """An experiment made from keys, which came from ``file`` in part.

    Raises:
        SpectoolError: Keys are wrong; the message names all of them.
    """
    return check_keys(keys, Experiment, _HINT, "" if file is None else f"{file}: ")


def _expect_different(names: Sequence[str], where: str) -> None:
    for place, name in enumerate(names):
        _expect(name.isprintable(), where, "names that can be printed", repr(name))
        _expect(name not in names[:place], where, "different names", f"{name!r} twice")


def _expect_of(where: str, given: Iterable[str], choices: Sequence[str]) -> None:
    for each in given:
        _expect(each in choices, where, f"one of {', '.join(choices)}", each)


def _expect(holds: Any, where: str, expected: str, found: Any) -> None:
    if not holds:
        raise ValueError(f"{where}: expected {expected}, got {found}")
