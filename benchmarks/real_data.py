"""Real tokenizers and corpora from the folder named by SPECTOOL_SHARED, and artifacts that are built from them.

Dictionaries and alignments are built once, by the commands, and kept in .scratch/artifacts.
"""

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from real_models import PACKAGES, SHARED, real_model

from spectool.corpora import Corpus, open_corpus
from spectool.lab.dictspec import DictSpecOptions, PhraseTable, WordNgrams, dictspec_table
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

_BATCH = 512  # documents encoded at once


def real_tokenizer(name: str) -> Tokenizer:
    """Open ``tokenizers/NAME/tokenizer.json``."""
    return open_tokenizer(SHARED / "tokenizers" / name / "tokenizer.json")


def real_corpus(language: str, part: str) -> Corpus:
    """Open ``corpora/LANGUAGE.PART.txt.zst``; part is train or valid."""
    return open_corpus(str(SHARED / "corpora" / f"{language}.{part}.txt.zst"))


def encoded(tokenizer: Tokenizer, corpus: Corpus, tokens: int) -> Iterator[list[int]]:
    """Ids of whole documents from the beginning of a corpus, until there are ``tokens`` ids."""
    texts = iter(corpus)
    while tokens > 0 and (batch := list(islice(texts, _BATCH))):
        for ids in tokenizer.encode_batch(batch):
            yield ids
            tokens -= len(ids)
            if tokens <= 0:
                return


def tokenizer_of(name: str) -> Path:
    """The directory of a model, or of a tokenizer without a model."""
    shared = SHARED / "tokenizers" / name
    return shared if name not in PACKAGES and shared.is_dir() else Path(real_model(name))


def dictionary_of(model: str, language: str, *options: object) -> Path:
    """The dictionary for a real model's tokenizer from the training text of a language."""
    return made(
        f"{model}-{language}.dict", "build-dict", "--tokenizer", tokenizer_of(model), *_corpus(language), *options
    )


def dictspec_of(model: str, language: str) -> PhraseTable:
    """The compact dictionary of the DictSpec paper (section 4.5) for the same tokenizer and text."""
    words = WordNgrams(open_corpus(str(_corpus(language)[1])))
    return dictspec_table(open_tokenizer(tokenizer_of(model)), words, DictSpecOptions(min_probability=0.8))


def alignment_of(draft: str, target: str, language: str) -> Path:
    """The alignment from one real model's tokenizer to another's."""
    sides = "--draft", tokenizer_of(draft), "--target", tokenizer_of(target)
    return made(f"{draft}-{target}-{language}.align", "align", *sides, *_corpus(language))


def _corpus(language: str) -> tuple[str, Path]:
    train, valid = (SHARED / "corpora" / f"{language}.{part}.txt.zst" for part in ("train", "valid"))
    return "--corpus", train if train.exists() else valid  # of English there is little


def made(name: str, *command: object) -> Path:
    """The path of an artifact, which a command of spectool builds if it does not exist yet."""
    out = Path(__file__).parent.parent / ".scratch" / "artifacts" / name
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "spectool.cli", *map(str, command), "-o", str(out)], check=True)
    return out
