"""The tokenizers of these tests, and a tokenizer asked on strings as the twin of what joins ids."""

from collections.abc import Sequence
from typing import Any

from spectool.tests.tiers import slow
from spectool.tokenization.tokenizer import Tokenizer

QUICK = ("bielik-11b-v2.5", "nanochat-pl-ours6-nfkc", "phi-3-mini")
SLOW = (
    "bielik-4.5b-v3-apt4",
    "claude-legacy",
    "gemma-3",
    "gpt2",
    "gpt4o-o200k",
    "llama-3.2",
    "mistral-7b-v0.1",
    "mistral-nemo",
    "qwen2.5",
)


def counted(quickly: int, slowly: int) -> list[Any]:
    """A test's parameters: a tokenizer of the quick ones with one number, and, marked slow, every one with another."""
    return [*((name, quickly) for name in QUICK), *slow(*((name, slowly) for name in (*QUICK, *SLOW)))]


class Reference:
    """The tokenizer itself, on strings."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._backend = tokenizer.running_backend
        self._token_bytes = tokenizer.token_bytes

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def ends(self, ids: Sequence[int]) -> list[int]:
        """Return the byte at which each id begins, and the end."""
        found = [0]
        for token in ids:
            found.append(found[-1] + len(self._token_bytes[token]))
        return found

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._token_bytes.__getitem__, ids))


def joined(change: tuple[int, Sequence[int]], ids: Sequence[int]) -> list[int]:
    """The ids after a change of their end."""
    return [*ids[: change[0]], *change[1]]
