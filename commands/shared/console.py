"""Output of commands: results to stdout, progress and notes to stderr, errors in one line."""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from spectool import SpectoolError, escaped_name, printable
from spectool.artifacts.manifest import Manifest
from spectool.corpora import Corpus, open_corpus
from spectool.tokenization.fingerprint import short

_KINDS = 5  # of files that are left out, in a note
_DEEPEST = 4  # levels of a value
_wrapped = partial(wrap, width=100, break_long_words=False, break_on_hyphens=False)


def say(message: str) -> None:
    """Write a note to stderr."""
    click.echo(printable(message, "\n"), err=True)


def say_next(command: Sequence[str], ending: str = "--prompt …") -> None:
    """Write the next command to stderr, quoted for a shell, with an ``ending`` to fill in."""
    say(f"next: spectool {shlex.join(command)} {ending}".rstrip())


def model_of(tokenizer: str, otherwise: str) -> str:
    """The model that a tokenizer was opened from, or ``otherwise`` if it is only a tokenizer."""
    path = Path(tokenizer)
    return otherwise if path.exists() and not (path / "config.json").is_file() else tokenizer


def open_text(spec: str) -> Corpus:
    """The corpus of that name, as from `open_corpus`; a note on stderr says which files of a folder are left out."""
    corpus = open_corpus(spec)
    if left := corpus.left_out:
        kinds = [f"{number:,} {name}" for name, number in left.most_common(_KINDS)] + ["…"] * (len(left) > _KINDS)
        say(f"{spec}: left out {', '.join(kinds)}. Any file or folder can be read by its own name")
    return corpus


def show(facts: Mapping[str, Any], as_json: bool, err: bool = False) -> None:
    """Print facts as aligned ``key  value`` lines, with a line for each element of a list or mapping, or as JSON."""
    if as_json:
        named = {key.replace(" ", "_"): value for key, value in facts.items()}
        click.echo(printable(json.dumps(named, ensure_ascii=False, indent=1), "\n", json.dumps))
        return
    width = max(map(len, facts), default=0)
    for key, value in facts.items():
        lines = [line for part in _in_words(value) or ["none"] for line in _wrapped(printable(part))]
        for name, line in zip_longest([key], lines, fillvalue=""):
            click.echo(f"{name:<{width}}  {line}", err=err)


def _in_words(value: Any, depth: int = 0) -> list[str]:
    """The elements of a value from JSON, each in a line; what is nested too deeply is left out.

    >>> _in_words({"max_bytes": 5_000_000, "exact": False, "reason": "", "sides": {"draft": [0.123456, None]}})
    ['max bytes 5,000,000', 'exact no', 'reason none', 'sides (draft 0.1235, none)']
    """
    if isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else [("", each) for each in value]
        return ["…"] if depth == _DEEPEST else [_named(key, each, depth + 1) for key, each in pairs]
    if value is None or isinstance(value, bool):
        return [{None: "none", True: "yes", False: "no"}[value]]
    if isinstance(value, int | float):
        return [f"{round(value, 4):,}"]
    return [short(value) if re.fullmatch("[0-9a-f]{64}", str(value)) else str(value) or "none"]


def _named(key: str, value: Any, depth: int) -> str:
    words = ", ".join(_in_words(value, depth)) or "none"
    name = key if "." in key else key.replace("_", " ")  # files keep their names
    return f"{name} ({words})" if name and isinstance(value, Mapping) else f"{name} {words}".lstrip()


def print_result(out: Path, manifest: Manifest, as_json: bool, **more: Any) -> None:
    """Print what a stage has written, with ``more`` facts of its own."""
    inputs, files = manifest.inputs, out.iterdir() if out.is_dir() else [out]
    facts: dict[str, Any] = {"path": escaped_name(out), "bytes": sum(file.stat().st_size for file in files)}
    facts |= {f"{role} fingerprint": digest for role, digest in manifest.fingerprints.items()}
    facts |= {name: inputs[name] for name in ("documents", "repaired") if inputs.get(name)}
    facts |= {name.replace("_", " "): value for name, value in more.items()}
    show(facts | ({"statistics": manifest.statistics} if as_json else {}), as_json)


@contextmanager
def guarded() -> Iterator[None]:
    """End with an error in one line and exit status 1, or with 130 after Ctrl-C; ``--debug`` shows tracebacks."""
    try:
        yield
    except KeyboardInterrupt as stop:
        say(str(stop) or "Interrupted.")
        sys.exit(130)
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError):  # click ends without a word as with `| head`
        raise
    except Exception as error:
        context = click.get_current_context(silent=True)
        if context is not None and context.find_root().params.get("debug"):
            raise
        raise click.ClickException(_in_a_line(error)) from error


def _in_a_line(error: Exception) -> str:
    if isinstance(error, SpectoolError):
        return printable(str(error))
    if isinstance(error, OSError):
        what = f"{error.filename}: " if error.filename else ""
        return printable(f"{what}{error.strerror or error}. Check the disk and permissions")
    first = printable((str(error).strip().splitlines() or [""])[0][:300])
    return f"unexpected {type(error).__name__}: {first}. `spectool --debug …` shows where; please report it"
