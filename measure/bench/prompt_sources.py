"""Prompts: built-in sets of our own writing, documents of a corpus, or windows over them, in order or at random."""

import hashlib
import heapq
import random
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from spectool import CorpusError
from spectool.corpora import open_corpus
from spectool.measure.bench.experiment import BUILT_IN, CHATTED, COUNT, KINDS, LANGUAGES, Prompts, split
from spectool.tokenization.tokenizer import Tokenizer

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    name: str  # unlike that of any other prompt
    language: str  # code
    kind: str  # of text
    text: str  # the prompt
    chat: bool  # whether it goes through the model's chat template, if the model has one


def load_prompts(sources: Sequence[Prompts], tokenizer: Tokenizer, seed: int = 0) -> list[Prompt]:
    """Return all prompts.

    Args:
        sources: Where they come from.
        tokenizer: By whose tokens windows are measured.
        seed: Of prompts that are drawn at random.

    Raises:
        CorpusError: A source cannot be read, has no prompt, or fewer than are to be drawn.
    """
    found: list[list[Prompt]] = []
    for number, source in enumerate(sources):
        rng = random.Random(f"{seed} {number}")
        try:
            made = list((_built_in if source.source == BUILT_IN else _of_corpus)(source, tokenizer, rng))
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


def draw(items: Iterable[Item], size: int, rng: random.Random, fits: Callable[[Item], bool], where: str) -> list[Item]:
    """Draw items at random, each set of those that fit being equally likely; only ``size`` of them are held.

    Each item gets a random number, and those of the smallest numbers stay. Whether one fits is asked only then.

    Args:
        items: To draw from, read once.
        size: How many.
        rng: Source of chance.
        fits: Whether an item counts.
        where: What an error begins with.

    Raises:
        CorpusError: Fewer than ``size`` fit.
    """
    kept: list[tuple[float, int, Item]] = []  # a heap, the largest random number first
    for place, item in enumerate(items):
        number = -rng.random()
        if (len(kept) < size or number > kept[0][0]) and fits(item):
            (heapq.heappush if len(kept) < size else heapq.heapreplace)(kept, (number, place, item))
    if len(kept) < size:
        raise CorpusError(f"{where}: expected {size} prompts to draw, got {len(kept)}. Draw fewer, or name more text")
    return [item for _, _, item in sorted(kept, key=lambda each: each[1])]


def _built_in(source: Prompts, tokenizer: Tokenizer, rng: random.Random) -> Iterator[Prompt]:
    file = resources.files("spectool.measure.bench") / "prompts" / f"{source.language}.toml"
    sets: dict[str, list[str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    kinds = source.kinds or KINDS
    total = source.sample or source.count or sum(len(sets[kind]) for kind in kinds)
    for kind, share in zip(kinds, split(total, len(kinds)), strict=True):
        mine, where = list(enumerate(sets[kind], 1)), f"{source.language}:{kind}"
        chat = kind in CHATTED if source.chat is None else source.chat
        drawn = draw(mine, share, rng, lambda _: True, where) if source.sample else mine[:share]
        for number, text in drawn:
            yield Prompt(f"{source.language}-{kind}-{number:02}", source.language, kind, text, chat)


def _of_corpus(source: Prompts, tokenizer: Tokenizer, rng: random.Random) -> Iterator[Prompt]:
    kind = source.kinds[0] if source.kinds else "text"
    texts: Iterable[str] = (document.text for document in open_corpus(source.source))
    if source.sample:
        texts = _drawn(texts, source, source.sample, tokenizer, rng)
    elif source.window:
        texts = _windows(texts, source, tokenizer)
    for number, text in enumerate(islice(texts, source.sample or source.count or COUNT), 1):
        yield Prompt(f"{Path(source.source).name}-{number:03}", source.language, kind, text, bool(source.chat))


def _drawn(texts: Iterable[str], source: Prompts, size: int, tokenizer: Tokenizer, rng: random.Random) -> Iterator[str]:
    """Yield documents drawn at random, or one window of each, drawn likewise."""
    window = source.window

    def fits(text: str) -> bool:  # a token has a byte at least
        return not window or (len(text.encode()) >= window and len(tokenizer.encode(text)) >= window)

    for text in draw(texts, size, rng, fits, source.source):
        ids = tokenizer.encode(text) if window else ()
        yield _text(tokenizer, ids, rng.randrange(len(ids) - window + 1), window) if window else text


def _windows(texts: Iterable[str], source: Prompts, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield text of ``window`` tokens each, ``stride`` from one to the next, none beyond the end of a document.

    The first windows of as many documents as prompts are wanted come first, then their second ones, and so on. Windows
    of one document overlap and are alike.
    """
    stride = source.stride or -(-source.window // 2)
    long_enough = (ids for ids in map(tokenizer.encode, texts) if len(ids) >= source.window)
    documents = list(islice(long_enough, source.count or COUNT))
    for first in range(0, max(map(len, documents), default=0), stride):
        for ids in documents:
            if first + source.window <= len(ids) and (text := _text(tokenizer, ids, first, source.window)):
                yield text


def _text(tokenizer: Tokenizer, ids: Sequence[int], first: int, window: int) -> str:
    """Return the text of a window, which may begin or end inside a character."""
    return tokenizer.bytes_of(ids[first : first + window]).decode(errors="ignore")


def encoded(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Return the ids of a prompt by mlx-lm's ``TokenizerWrapper``, as `spectool generate` would feed them."""
    from spectool.runtime.chat_template import messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt

    if prompt.chat and tokenizer.has_chat_template:
        return rendered(tokenizer, messages_of(prompt.text), {})
    return encode_prompt(tokenizer, prompt.text)
