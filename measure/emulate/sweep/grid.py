"""The grid of a sweep: what is measured, on which text and with which tokenizers.

A grid is a TOML file. What it leaves out is as in the paper's section 4, so that tokenizers and
languages alone repeat the paper::

    num_draft_tokens = [8]                # longest proposals
    replay_tokens = 0                     # tokens to replay of each text, 0 for all

    [tokenizers]                          # name = what `--tokenizer` takes
    "gemma-3" = "google/gemma-3-4b-it"

    [languages.uk]                        # one table for each language
    build = "wiki-uk.txt"                 # what `--corpus` takes; without it, fertility alone is measured
    counts = "uk.counts"                  # of that text, from `spectool count`; counted for this sweep if not given
    replay = "news-uk.txt"
    script = "cyrillic"                   # keep the lines in one script: cyrillic or latin
    split_as = "uk"                       # as build-dict's --language

    [dictspec]                            # one table for each method
    readings = ["whole"]
    orders = ["n1", "n12", "n123"]
    entries = [10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000]
    min_prob = [0.2, 0.5, 0.8, 0.9, 1.0]

    [backoff]                             # not in the paper
    max_bytes = [500_000, 1_000_000, 2_000_000, 5_000_000]
    min_prob = [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]    # of the proposal, at run time
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from spectool import SpectoolError

Script = Literal["cyrillic", "latin"]
Axes: TypeAlias = Mapping[str, tuple[Any, ...]]

PAPER = "paper"
_ORDERS = ("n1", "n12", "n123")
_READINGS = ("whole", "path")
AXES: Mapping[str, Axes] = {  # method -> axis -> values where a grid names none; dictspec's are the paper's (4.4)
    "dictspec": {
        "readings": ("whole",),
        "orders": _ORDERS,
        "entries": (10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000),
        "min_prob": (0.2, 0.5, 0.8, 0.9, 1.0),
    },
    "backoff": {
        "max_bytes": (500_000, 1_000_000, 2_000_000, 5_000_000),
        "min_prob": (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    },
}
_PAPER_DRAFT_LENGTH = 8  # section 4.5
# Table 3 with folders that hold its tokenizers. What stands in for one has another vocabulary.
_PAPER_TOKENIZERS = {
    "Gemma 3": (("gemma-3",), ()),
    "Mistral 7B": (("mistral-7b-v0.1", "mistral-7b"), ()),
    "Mistral NeMo": (("mistral-nemo",), ()),
    "Qwen 3.5": (("qwen3.5", "qwen-3.5"), ("qwen3", "qwen2.5")),
    "Llama 3.3": (("llama-3.3", "llama-3.2", "llama-3.1", "llama-3"), ()),
}
_PAPER_LANGUAGES: Mapping[str, tuple[str, Script | None]] = {  # Table 2: corpora LANG.train.* and LANG.valid.*, script
    "uk": ("uk", None),
    "crh-cyrl": ("crh", "cyrillic"),
    "crh-latn": ("crh", "latin"),
}


@dataclass(frozen=True, slots=True)
class Language:
    """Text of one language, or of one script of it.

    Attributes:
        build: Corpus to build from, as for ``--corpus``.
        replay: Corpus to replay.
        counts: Word n-grams of ``build`` as `spectool count` wrote them. Without either, only fertility is measured.
        script: Keep only the lines that are mostly in this script.
        split_as: Language code for splitting words, as for build-dict.
    """

    build: str | None
    replay: str
    counts: str | None = None
    script: Script | None = None
    split_as: str | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A sweep, in full.

    Attributes:
        tokenizers: Name -> what ``--tokenizer`` takes.
        languages: By name.
        methods: Method -> its axes.
        num_draft_tokens: Longest proposals, tokens.
        replay_tokens: Tokens to replay of each text: whole documents until there are so many; 0 for all.
    """

    tokenizers: Mapping[str, str]
    languages: Mapping[str, Language]
    methods: Mapping[str, Axes]
    num_draft_tokens: tuple[int, ...] = (_PAPER_DRAFT_LENGTH,)
    replay_tokens: int = 0


def paper_grid(
    tokenizers: Path, corpora: Path, readings: tuple[str, ...] = (), note: Callable[[str], None] = lambda text: None
) -> Grid:
    """Return the paper's grid over folders of tokenizers and corpora.

    Args:
        tokenizers: Has a folder for each tokenizer of the paper's Table 3.
        corpora: Has ``uk.train.*``, ``uk.valid.*``, ``crh.train.*`` and ``crh.valid.*``.
        readings: Of the minimum probability; the paper's literal one if none is given.
        note: Told of a tokenizer that stands in for one of the paper's.

    Raises:
        SpectoolError: Something is missing there.
    """
    found = {}
    for family, (same, like) in _PAPER_TOKENIZERS.items():
        name = next((name for name in (*same, *like) if (tokenizers / name).exists()), None)
        if name is None:
            raise SpectoolError(
                f"{tokenizers}: expected a tokenizer of {family} in a folder named {' or '.join(same)}, got none. "
                "Name yours in a grid of your own: --sweep GRID.toml, with [tokenizers] and [languages]"
            )
        if name in like:
            note(f"{name} stands in for {family}, which has another vocabulary")
        found[name] = str(tokenizers / name)
    languages = {
        name: Language(_only(corpora, f"{code}.train.*"), _only(corpora, f"{code}.valid.*"), script=script)
        for name, (code, script) in _PAPER_LANGUAGES.items()
    }
    axes = {**AXES["dictspec"], **({"readings": readings} if readings else {})}
    return Grid(found, languages, {"dictspec": axes})


def read_grid(path: Path) -> Grid:
    """Read a grid from a TOML file.

    Args:
        path: The file.

    Raises:
        SpectoolError: It cannot be read, or something in it is not what it should be; names the key.
    """
    try:
        with path.open("rb") as stream:
            text = tomllib.load(stream)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpectoolError(
            f"{path}: expected a grid in TOML, or `{PAPER}`, got {error}. `spectool emulate --help` shows one"
        ) from error
    known = ("tokenizers", "languages", "num_draft_tokens", "replay_tokens", *AXES)
    strange = min(set(text) - set(known), default=None)
    _expect(strange is None, path, str(strange), f"one of {', '.join(known)}", "another key")
    for table in ("tokenizers", "languages"):
        _expect(isinstance(text.get(table), dict) and text[table], path, f"[{table}]", "at least one", "none")
    for name, source in text["tokenizers"].items():
        _expect(isinstance(source, str), path, f"tokenizers.{name}", "a directory, tokenizer.json or hub id", source)
    chosen = {name: text[name] for name in AXES if name in text} or {"dictspec": {}}
    lengths = text.get("num_draft_tokens", [_PAPER_DRAFT_LENGTH])
    _expect(_all(lengths, (int,), 0, 64), path, "num_draft_tokens", "a list of numbers from 0 to 64", lengths)
    limit = text.get("replay_tokens", 0)
    _expect(_all([limit], (int,), 0), path, "replay_tokens", "a number of tokens, or 0 for all", limit)
    return Grid(
        text["tokenizers"],
        {name: _language(path, f"languages.{name}", table) for name, table in text["languages"].items()},
        {name: _axes(path, name, table, AXES[name]) for name, table in chosen.items()},
        tuple(dict.fromkeys(lengths)),
        limit,
    )


def _language(path: Path, name: str, table: Any) -> Language:
    known = ("build", "counts", "replay", "script", "split_as")
    _expect(isinstance(table, dict), path, name, "a table with build and replay", table)
    strange = min(set(table) - set(known), default=None)
    _expect(strange is None, path, f"{name}.{strange}", f"one of {', '.join(known)}", "another key")
    for key, value in table.items():
        _expect(isinstance(value, str), path, f"{name}.{key}", "a text", value)
    _expect("replay" in table, path, f"{name}.replay", "a corpus to replay", "none")
    script = table.get("script")
    _expect(script in (None, *get_args(Script)), path, f"{name}.script", " or ".join(get_args(Script)), script)
    return Language(table.get("build"), table["replay"], table.get("counts"), script, table.get("split_as"))


def _axes(path: Path, method: str, table: Any, defaults: Axes) -> Axes:
    _expect(isinstance(table, dict), path, f"[{method}]", "a table", table)
    strange = min(set(table) - set(defaults), default=None)
    _expect(strange is None, path, f"{method}.{strange}", f"one of {', '.join(defaults)}", "another key")
    checks: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "readings": (f"a list of {', '.join(_READINGS)}", lambda values: _each_of(values, _READINGS)),
        "orders": (f"a list of {', '.join(_ORDERS)}", lambda values: _each_of(values, _ORDERS)),
        "entries": ("a list of numbers from 1 on", lambda values: _all(values, (int,), 1)),
        "max_bytes": ("a list of bytes from 1 on", lambda values: _all(values, (int,), 1)),
        "min_prob": ("a list of probabilities from 0 to 1", lambda values: _all(values, (int, float), 0, 1)),
    }
    for axis, values in table.items():
        expected, check = checks[axis]
        _expect(check(values), path, f"{method}.{axis}", expected, values)
    return {axis: tuple(dict.fromkeys(table.get(axis, values))) for axis, values in defaults.items()}


def _all(values: Any, kinds: tuple[type, ...], low: float, high: float = float("inf")) -> bool:
    """Whether ``values`` is a list, not empty, of numbers in a range."""
    if not isinstance(values, list) or not values:
        return False
    return all(type(value) in kinds and low <= value <= high for value in values)


def _each_of(values: Any, known: tuple[str, ...]) -> bool:
    return isinstance(values, list) and bool(values) and all(value in known for value in values)


def _expect(holds: Any, path: Path, key: str, expected: str, found: Any) -> None:
    if not holds:
        got = found if isinstance(found, str) else repr(found)
        raise SpectoolError(f"{path}: {key}: expected {expected}, got {got}. `spectool emulate --help` shows a grid")


def _only(folder: Path, pattern: str) -> str:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SpectoolError(
            f"{folder}: expected one file {pattern}, got {', '.join(path.name for path in found) or 'none'}. "
            "Name yours in a grid of your own: --sweep GRID.toml, with [tokenizers] and [languages]"
        )
    return str(found[0])
