"""Dictionaries and alignments for the models of a recipe, made by the commands once and kept in .scratch/artifacts."""

import subprocess
import sys
from pathlib import Path

from real_data import SHARED

ARTIFACTS = Path(__file__).parent.parent / ".scratch" / "artifacts"


def dictionary(recipe: Path, language: str) -> Path:
    """Return the dictionary of the recipe's target, from the training text of a language."""
    return dictionary_of(recipe.name, recipe / "target", language)


def dictionary_of(name: str, target: Path, language: str) -> Path:
    """Return the dictionary of a model's tokenizer, of the default size, from the training text of a language."""
    options = "--tokenizer", target, "--corpus", _training_text(language)
    return made(ARTIFACTS / f"{name}.dict", "build-dict", *options)


def alignment(recipe: Path, draft: str, language: str) -> Path:
    """Return the alignment from one of the recipe's drafts to its target."""
    return alignment_of(f"{recipe.name}-{draft}", recipe / draft, recipe / "target", language)


def alignment_of(name: str, draft: Path, target: Path, language: str) -> Path:
    """Return the alignment from one model's tokenizer to another's."""
    sides = "--draft", draft, "--target", target
    return made(ARTIFACTS / f"{name}.align", "align", *sides, "--corpus", _training_text(language))


def dictspec(name: str, target: Path, language: str) -> Path:
    """Return DictSpec's compact dictionary (section 4.5 of its paper) of a model's tokenizer."""
    options = "--method", "dictspec", "--orders", "n123", "--entries", 200_000, "--min-prob", 0.8
    command = "build-dict", *options, "--tokenizer", target, "--corpus", _training_text(language)
    return made(ARTIFACTS / f"{name}.dict", *command)


def _training_text(language: str) -> Path:
    """Return the text to count: of English there is little, and it only says how often tokens occur."""
    train = SHARED / "corpora" / f"{language}.train.txt.zst"
    return train if train.exists() else SHARED / "corpora" / f"{language}.valid.txt.zst"


def made(out: Path, *command: object) -> Path:
    """Return an artifact, from a command of spectool where it is not there yet."""
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "spectool.cli", *map(str, command), "-o", str(out)], check=True)
    return out
