"""Prompts: built-in sets of our own writing, documents of a corpus, or windows over them."""

import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from spectool import CorpusError
from spectool.artifacts.tokenizer.tokenizer import Tokenizer
from spectool.corpora import open_corpus
from spectool.measure.bench.experiment import BUILT_IN, CHATTED, KINDS, LANGUAGES, Prompts


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        name: Unlike that of any other prompt.
        language: Code.
        kind: Of text.
        text: The prompt.
        chat: Whether it goes through the model's chat template, if the model has one.
    """

    name: str
    language: str
    kind: str
    text: str
    chat: bool


def load_prompts(sources: Sequence[Prompts], tokenizer: Tokenizer) -> list[Prompt]:
    """Return all prompts.

    Args:
        sources: Where they come from.
        tokenizer: By whose tokens windows are measured.

    Raises:
        CorpusError: A source cannot be read, or has no prompt.
    """
    found: list[list[Prompt]] = []
    for source in sources:
        try:
            made = list(_built_in(source) if source.source == BUILT_IN else _of_corpus(source, tokenizer))
        except CorpusError as error:
            raise CorpusError(f"{error}. Built-in prompts: {', '.join(LANGUAGES)}") from error
        if not made:
            wanted = f"windows of {source.window} tokens" if source.window else "prompts"
            raise CorpusError(f"{source.source}: expected {wanted}, got none. Give longer text or a smaller window")
        found.append(made)
    names = Counter(prompt.name for made in found for prompt in made)
    return [
        replace(prompt, name=f"{prompt.name} of source {number}") if names[prompt.name] > 1 else prompt
        for number, made in enumerate(found, 1)
        for prompt in made
    ]


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """Return a hash of the prompts, hex."""
    return hashlib.sha256(repr(list(prompts)).encode()).hexdigest()


def _built_in(source: Prompts) -> Iterator[Prompt]:
    file = resources.files("spectool.measure.bench") / "prompts" / f"{source.language}.toml"
    sets: list[dict[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))["prompts"]
    for kind in source.kinds or KINDS:
        for prompt in islice((prompt for prompt in sets if prompt["kind"] == kind), source.count):
            chat = kind in CHATTED if source.chat is None else source.chat
            yield Prompt(f"{source.language}-{prompt['name']}", source.language, kind, prompt["text"], chat)


def _of_corpus(source: Prompts, tokenizer: Tokenizer) -> Iterator[Prompt]:
    kind = source.kinds[0] if source.kinds else "text"
    texts = _windows(source, tokenizer) if source.window else (document.text for document in open_corpus(source.source))
    for number, text in enumerate(islice(texts, source.count), 1):
        yield Prompt(f"{Path(source.source).name}-{number:03}", source.language, kind, text, bool(source.chat))


def _windows(source: Prompts, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield text of ``window`` tokens each, ``stride`` from one to the next, none beyond the end of a document.

    The first windows of as many documents as prompts are wanted come first, then their second ones, and so on: windows
    of one document overlap and are alike.
    """
    encoded = (tokenizer.encode(document.text) for document in open_corpus(source.source))
    documents = list(islice((ids for ids in encoded if len(ids) >= source.window), source.count))
    for first in range(0, max(map(len, documents), default=0), source.stride):
        for ids in documents:
            if first + source.window <= len(ids):
                # A window may begin or end inside a character.
                text = tokenizer.bytes_of(ids[first : first + source.window]).decode(errors="ignore")
                if text:
                    yield text


def encoded(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Return the ids of a prompt, as `spectool generate` would feed them.

    Args:
        prompt: The prompt.
        tokenizer: mlx-lm's ``TokenizerWrapper`` of the target.
    """
    from spectool.runtime.commands.chat_template import messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt
    from spectool.runtime.decoding.verification import ids

    if prompt.chat and tokenizer.has_chat_template:
        return rendered(tokenizer, messages_of(prompt.text), {})
    return ids(encode_prompt(tokenizer, prompt.text))
