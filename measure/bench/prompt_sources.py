"""Prompts: built-in sets that we wrote, or documents of a corpus or windows of these, in order or drawn at random."""

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
from spectool.measure.bench.experiment import BUILT_IN, CHATTED, COUNT, LANGUAGES, PROMPT_KINDS, Prompts, split
from spectool.tokenization.tokenizer import Tokenizer

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt."""

    name: str  # unique
    language: str  # code
    kind: str  # of text
    text: str
    chat: bool  # whether it goes through the chat template of a model that has one


def load_prompts(sources: Sequence[Prompts], tokenizer: Tokenizer, seed: int = 0) -> list[BenchPrompt]:
    """All prompts of some sources; windows are measured in tokens of ``tokenizer``.

    Raises:
        CorpusError: A source cannot be read, has no prompt, or fewer than are to be drawn.
    """
    found: list[list[BenchPrompt]] = []
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


def prompts_hash(prompts: Sequence[BenchPrompt]) -> str:
    """Hash of the prompts, hexadecimal."""
    return hashlib.sha256(repr(list(prompts)).encode()).hexdigest()


def drawn_items(
    items: Iterable[_Item], size: int, rng: random.Random, fits: Callable[[_Item], bool], where: str
) -> list[_Item]:
    """Items drawn at random, in their order; each set of ``size`` items that fit is equally likely.

    Every item gets a random number, and the items with the smallest numbers are kept. So only ``size`` items are held
    in memory, and ``fits`` is asked only about items whose number is small enough.

    Raises:
        CorpusError: Fewer than ``size`` fit; the message begins with ``where``.
    """
    kept: list[tuple[float, int, _Item]] = []  # a heap, the largest random number first
    for place, item in enumerate(items):
        number = -rng.random()
        if (len(kept) < size or number > kept[0][0]) and fits(item):
            (heapq.heappush if len(kept) < size else heapq.heapreplace)(kept, (number, place, item))
    if len(kept) < size:
        raise CorpusError(f"{where}: expected {size} prompts to draw, got {len(kept)}. Draw fewer, or name more text")
    return [item for _, _, item in sorted(kept, key=lambda each: each[1])]


def _built_in(source: Prompts, tokenizer: Tokenizer, rng: random.Random) -> Iterator[BenchPrompt]:
    file = resources.files("spectool.measure.bench") / "prompts" / f"{source.language}.toml"
    sets: dict[str, list[str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    kinds = source.kinds or PROMPT_KINDS
    total = source.sample or source.count or sum(len(sets[kind]) for kind in kinds)
    for kind, share in zip(kinds, split(total, len(kinds)), strict=True):
        mine, where = list(enumerate(sets[kind], 1)), f"{source.language}:{kind}"
        chat = kind in CHATTED if source.chat is None else source.chat
        drawn = drawn_items(mine, share, rng, lambda _: True, where) if source.sample else mine[:share]
        for number, text in drawn:
            yield BenchPrompt(f"{source.language}-{kind}-{number:02}", source.language, kind, text, chat)


def _of_corpus(source: Prompts, tokenizer: Tokenizer, rng: random.Random) -> Iterator[BenchPrompt]:
    kind = source.kinds[0] if source.kinds else "text"
    texts: Iterable[str] = (document.text for document in open_corpus(source.source))
    if source.sample:
        texts = _drawn(texts, source, source.sample, tokenizer, rng)
    elif source.window:
        long_enough = (ids for ids in map(tokenizer.encode, texts) if len(ids) >= source.window)
        texts = (_text(tokenizer, ids, 0, source.window) for ids in long_enough)
    for number, text in enumerate(islice(texts, source.sample or source.count or COUNT), 1):
        yield BenchPrompt(f"{Path(source.source).name}-{number:03}", source.language, kind, text, bool(source.chat))


def _drawn(texts: Iterable[str], source: Prompts, size: int, tokenizer: Tokenizer, rng: random.Random) -> Iterator[str]:
    """Yield documents drawn at random, or one window of each at a random place."""
    window = source.window

    def fits(text: str) -> bool:  # a token has at least one byte
        return not window or (len(text.encode()) >= window and len(tokenizer.encode(text)) >= window)

    for text in drawn_items(texts, size, rng, fits, source.source):
        ids = tokenizer.encode(text) if window else ()
        yield _text(tokenizer, ids, rng.randrange(len(ids) - window + 1), window) if window else text


def _text(tokenizer: Tokenizer, ids: Sequence[int], first: int, window: int) -> str:
    """The text of a window, without the parts of characters at its ends."""
    return tokenizer.bytes_of(ids[first : first + window]).decode(errors="ignore")


def ids_of_prompt(prompt: BenchPrompt, tokenizer: Any) -> list[int]:
    """The ids of a prompt by mlx-lm's ``TokenizerWrapper``, as `spectool generate` would feed them."""
    from spectool.runtime.chat_template import messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt

    if prompt.chat and tokenizer.has_chat_template:
        return rendered(tokenizer, messages_of(prompt.text), {})
    return encode_prompt(tokenizer, prompt.text)
