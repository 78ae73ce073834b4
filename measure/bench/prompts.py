"""Prompts: built-in sets that we wrote, or documents of a corpus, or their beginnings."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from typing import Any

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.tokenization.tokenizer import Tokenizer

LANGUAGES = ("pl", "uk", "en", "crh", "crh-cyrl")  # of the built-in prompts
KINDS = ("encyclopaedic", "instruction", "composition", "question", "list")  # of built-in prompts
_CHATTED = ("instruction", "composition", "question")  # kinds that go through the chat template
_COUNT = 12  # prompts of a corpus by default


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt."""

    name: str  # unique
    source: str  # language of a built-in prompt, or corpus
    kind: str  # of text
    text: str
    chat: bool = False  # whether it goes through the chat template of a model that has one


def is_built_in(spec: str) -> bool:
    """Whether a source is a set of built-in prompts and not a corpus.

    >>> is_built_in("pl"), is_built_in("pl:list"), is_built_in("pl.txt")
    (True, True, False)
    """
    return spec.partition(":")[0] in LANGUAGES


def load_prompts(specs: Sequence[str], tokenizer: Tokenizer, count: int | None, window: int) -> list[BenchPrompt]:
    """The prompts of some sources.

    Args:
        specs: Languages of built-in prompts, possibly with a kind (``pl:list``), or corpora.
        tokenizer: Of the target, whose tokens a window has.
        count: Total number of prompts, spread evenly over sources and kinds; None for all built-in ones, and for
            `_COUNT` of a corpus.
        window: Tokens of a prompt from a corpus, one a document; 0 takes whole documents.

    Raises:
        CorpusError: A source cannot be read, has no prompt, or is named twice.
    """
    shares = [None] * len(specs) if count is None else split(count, len(specs))
    found: dict[str, BenchPrompt] = {}
    for spec, share in zip(specs, shares, strict=True):
        if share == 0:
            raise CorpusError(f"expected a prompt of each source, got {count} for {len(specs)}. Give a larger --count")
        try:
            made = list(_built_in(spec, share) if is_built_in(spec) else _of_corpus(spec, tokenizer, share, window))
        except CorpusError as error:
            raise CorpusError(f"{error}. Built-in prompts: {', '.join(LANGUAGES)}") from error
        if not made:
            wanted = f"windows of {window} tokens" if window else "prompts"
            raise CorpusError(f"{spec}: expected {wanted}, got none. Give longer text or a smaller window")
        for prompt in made:
            if found.setdefault(prompt.name, prompt) is not prompt:
                raise CorpusError(f"{spec}: expected other prompts, got {prompt.name} twice. Name each source once")
    return list(found.values())


def split(total: int, parts: int) -> list[int]:
    """Shares of ``total``, as even as possible.

    >>> split(12, 5)
    [3, 3, 2, 2, 2]
    """
    return [total // parts + (place < total % parts) for place in range(parts)]


def _built_in(spec: str, count: int | None) -> Iterator[BenchPrompt]:
    language, _, kind = spec.partition(":")
    if kind and kind not in KINDS:
        raise CorpusError(f"{spec}: expected one of the kinds {', '.join(KINDS)}, got {kind}")
    file = resources.files("spectool.measure.bench") / "prompts" / f"{language}.toml"
    sets: dict[str, list[str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    kinds = [kind] if kind else KINDS
    shares = [None] * len(kinds) if count is None else split(count, len(kinds))
    for each, share in zip(kinds, shares, strict=True):
        for number, text in enumerate(sets[each][:share], 1):
            yield BenchPrompt(f"{language}-{each}-{number:02}", language, each, text, each in _CHATTED)


def _of_corpus(spec: str, tokenizer: Tokenizer, count: int | None, window: int) -> Iterator[BenchPrompt]:
    texts = (document.text for document in open_corpus(spec))
    if window:
        long_enough = (ids for ids in map(tokenizer.encode, texts) if len(ids) >= window)
        # A character of which the window has only a part is left out.
        texts = (tokenizer.bytes_of(ids[:window]).decode(errors="ignore") for ids in long_enough)
    for number, text in enumerate(islice(texts, count or _COUNT), 1):
        yield BenchPrompt(f"{spec}-{number:03}", spec, "text", text)


def ids_of_prompt(prompt: BenchPrompt, tokenizer: Any) -> list[int]:
    """The ids of a prompt by mlx-lm's ``TokenizerWrapper``, as `spectool generate` would feed them."""
    from spectool.runtime.chat_template import messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt

    if prompt.chat and tokenizer.has_chat_template:
        return rendered(tokenizer, messages_of(prompt.text), {})
    return encode_prompt(tokenizer, prompt.text)
