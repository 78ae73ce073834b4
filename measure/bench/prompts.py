"""Prompts: built-in sets that we wrote, or documents of a corpus, or their beginnings."""

import tomllib
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from spectool.corpora import open_corpus

_FOLDER = Path(__file__).with_name("prompts")
LANGUAGES = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
"""Codes of the languages that have built-in prompts, one file each."""
_CHATTED = ("instruction", "composition", "question")  # kinds that go through the chat template
_COUNT = 12  # prompts of a corpus by default


class BenchPrompt(NamedTuple):
    """One prompt."""

    name: str  # unique
    kind: str  # of text
    text: str


def load_prompts(spec: str, tokenizer: Any, count: int | None, window: int) -> list[BenchPrompt]:
    """The first ``count`` prompts of a language or of a corpus, by default all of a language and `_COUNT` of a corpus.

    Those of a language are one of each kind in turn. A prompt of a corpus is a document, or its first ``window`` tokens
    by a `Tokenizer` if that is not 0.
    """
    if spec in LANGUAGES:
        sets: dict[str, list[str]] = tomllib.loads((_FOLDER / f"{spec}.toml").read_text(encoding="utf-8"))
        return [
            BenchPrompt(f"{spec}-{kind}-{number:02}", kind, text)
            for number, texts in enumerate(zip(*sets.values(), strict=True), 1)
            for kind, text in zip(sets, texts, strict=True)
        ][:count]
    texts = list(islice(open_corpus(spec), count or _COUNT))
    if window:  # a character of which the window has only a part is left out
        texts = [tokenizer.bytes_of(tokenizer.encode(text)[:window]).decode(errors="ignore") for text in texts]
    return [BenchPrompt(f"{spec}-{number:03}", "text", text) for number, text in enumerate(texts, 1)]


def ids_of_prompt(prompt: BenchPrompt, tokenizer: Any) -> list[int]:
    """The ids of a prompt by mlx-lm's ``TokenizerWrapper``, as `spectool generate` would feed them."""
    from spectool.runtime.chat_template import messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt

    if prompt.kind in _CHATTED and tokenizer.has_chat_template:
        return rendered(tokenizer, messages_of(prompt.text), {})
    return encode_prompt(tokenizer, prompt.text)
