"""Dictionaries and alignments for the models of a recipe, made by the commands once and kept in .scratch/artifacts."""

import subprocess
import sys
from pathlib import Path

from real_data import SHARED

ARTIFACTS = Path(__file__).parent.parent / ".scratch" / "artifacts"


def dictionary(recipe: Path, language: str) -> Path:
    """Return the dictionary of the recipe's target, from the training text of a language."""
    out = ARTIFACTS / f"{recipe.name}.dict"
    return _made(out, "build-dict", "--tokenizer", recipe / "target", "--corpus", _training_text(language))


def alignment(recipe: Path, draft: str, language: str) -> Path:
    """Return the alignment from one of the recipe's drafts to its target."""
    out = ARTIFACTS / f"{recipe.name}-{draft}.align"
    sides = "--draft", recipe / draft, "--target", recipe / "target"
    return _made(out, "align", *sides, "--corpus", _training_text(language))


def _training_text(language: str) -> Path:
    return SHARED / "corpora" / f"{language}.train.txt.zst"


def _made(out: Path, *command: object) -> Path:
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "spectool.cli", *map(str, command), "-o", str(out)], check=True)
    return out
