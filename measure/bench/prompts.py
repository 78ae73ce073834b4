"""Prompts: built-in sets that we wrote, or documents of a corpus, or their beginnings."""

import tomllib
from collections.abc import Iterator
from importlib import resources
from itertools import islice
from typing import Any, NamedTuple

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.tokenization.tokenizer import Tokenizer

LANGUAGES = ("pl", "uk", "en", "crh", "crh-cyrl")  # of the built-in prompts
KINDS = ("encyclopaedic", "instruction", "composition", "question", "list")  # of built-in prompts
_CHATTED = ("instruction", "composition", "question")  # kinds that go through the chat template
_COUNT = 12  # prompts of a corpus by default


class BenchPrompt(NamedTuple):
    """One prompt."""

    name: str  # unique
    kind: str  # of text
    text: str


def is_built_in(spec: str) -> bool:
    """Whether a source is a set of built-in prompts and not a corpus.

    >>> is_built_in("pl"), is_built_in("pl:list"), is_built_in("pl.txt")
    (True, True, False)
    """
    return spec.partition(":")[0] in LANGUAGES


def load_prompts(spec: str, tokenizer: Tokenizer, count: int | None, window: int) -> list[BenchPrompt]:
    """The first ``count`` prompts of a language, such as ``pl`` or ``pl:list``, or of a corpus.

    By default these are all of a language and `_COUNT` of a corpus. A ``window`` is the number of tokens to take from
    the beginning of each document of a corpus; 0 takes whole documents.
    """
    try:
        prompts = _built_in(spec) if is_built_in(spec) else _of_corpus(spec, tokenizer, window)
        found = list(islice(prompts, count or (None if is_built_in(spec) else _COUNT)))
    except CorpusError as error:
        raise CorpusError(f"{error}. Built-in prompts: {', '.join(LANGUAGES)}") from error
    if not found:
        wanted = f"windows of {window} tokens" if window else "prompts"
        raise CorpusError(f"{spec}: expected {wanted}, got none. Give longer text or a smaller window")
    return found


def _built_in(spec: str) -> Iterator[BenchPrompt]:
    """The prompts of a language, one of each kind in turn, or those of one kind."""
    language, _, kind = spec.partition(":")
    if kind and kind not in KINDS:
        raise CorpusError(f"{spec}: expected one of the kinds {', '.join(KINDS)}, got {kind}")
    file = resources.files("spectool.measure.bench") / "prompts" / f"{language}.toml"
    sets: dict[str, list[str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    kinds = [kind] if kind else KINDS
    for number, texts in enumerate(zip(*(sets[each] for each in kinds), strict=True), 1):
        for each, text in zip(kinds, texts, strict=True):
            yield BenchPrompt(f"{language}-{each}-{number:02}", each, text)


def _of_corpus(spec: str, tokenizer: Tokenizer, window: int) -> Iterator[BenchPrompt]:
    texts = (document.text for document in open_corpus(spec))
    if window:
        long_enough = (ids for ids in map(tokenizer.encode, texts) if len(ids) >= window)
        # A character of which the window has only a part is left out.
        texts = (tokenizer.bytes_of(ids[:window]).decode(errors="ignore") for ids in long_enough)
    return (BenchPrompt(f"{spec}-{number:03}", "text", text) for number, text in enumerate(texts, 1))


def ids_of_prompt(prompt: BenchPrompt, tokenizer: Any) -> list[int]:
    """The ids of a prompt by mlx-lm's ``TokenizerWrapper``, as `spectool generate` would feed them."""
    from spectool.runtime.chat_template import messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt

    if prompt.kind in _CHATTED and tokenizer.has_chat_template:
        return rendered(tokenizer, messages_of(prompt.text), {})
    return encode_prompt(tokenizer, prompt.text)
