"""One tokenizer: which one it is, the bytes of its tokens, and the ids of texts.

Ids always come from the `tokenizers` backend that will be used when text is generated (`opening`).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tokenizers

from spectool import FingerprintMismatch, escaped_name
from spectool.tokenization.backend import explained, normalized, pre_tokenized, with_added_tokens
from spectool.tokenization.fingerprint import fingerprint_of, short
from spectool.tokenization.parts import TokenizerParts
from spectool.tokenization.roles import Roles
from spectool.tokenization.specials import find_specials
from spectool.tokenization.token_bytes import removes_leading_space


@dataclass(frozen=True)
class Tokenizer(TokenizerParts):
    """One tokenizer, read-only. Properties are computed on first use and kept."""

    name: str  # where it came from, for messages and manifests
    backend: tokenizers.Tokenizer  # encodes
    roles: Roles  # special tokens by role
    notes: tuple[str, ...] = ()  # what a user should know about how it was loaded
    rebuilt_as: str = ""  # the class that transformers rebuilt it as; empty if it is as the file says

    # Which one it is.

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 that ties artifacts to this tokenizer, 64 hex digits."""
        return fingerprint_of(self.backend, self.spec)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What manifests record: name, fingerprint and number of ids."""
        return {"name": escaped_name(self.name), "fingerprint": self.fingerprint, "size": self.size}

    def matches(self, recorded: Mapping[str, Any]) -> bool:
        """Whether the tokenizer's entry in an artifact's manifest is about this one."""
        size, name_of = recorded["size"], self.backend.id_to_token
        fits = 0 < size < 1 << 31 and name_of(size - 1) is not None and name_of(size) is None
        return fits and bool(recorded["fingerprint"] == self.fingerprint)

    def require(self, recorded: Mapping[str, Any], artifact: str, rebuild: str) -> None:
        """Raise a FingerprintMismatch unless an artifact was built for this tokenizer.

        Args:
            recorded: The tokenizer's entry in the artifact's manifest.
            artifact: The artifact's path, for the message.
            rebuild: Command that builds it again for this tokenizer.
        """
        if not self.matches(recorded):
            built, this = short(recorded["fingerprint"]), short(self.fingerprint)
            if built == this:
                built, this = f"{built} with {recorded['size']:,} ids", f"{this} with {self.size:,}"
            raise FingerprintMismatch(
                f"{artifact}: built for tokenizer {built}, {self.name} is {this}. Rebuild it: {rebuild}"
            )

    def with_token_bytes(self, token_bytes: Sequence[bytes]) -> "Tokenizer":
        """The same tokenizer with `token_bytes` that are already known, such as mapped ones."""
        same = copy(self)
        same.__dict__["token_bytes"] = token_bytes
        return same

    # The bytes of its tokens.

    @cached_property
    def specials(self) -> frozenset[int]:
        """Ids that never stand for text."""
        return find_specials(self, self.roles.pad)

    @property
    def size(self) -> int:
        """Number of ids: highest id + 1. A model's embedding may have more rows."""
        return len(self.token_bytes)

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes of every id; empty for special and missing ids."""
        return self.bytes_of_names(self.decoded_names(), self.specials)

    def token_bytes_of(self, tokens: Iterable[int]) -> list[bytes]:
        """The bytes of a few ids, without computing all of them; empty for missing ids."""
        tokens = list(tokens)
        names = {token: name for token in tokens if (name := self.backend.id_to_token(token)) is not None}
        found = self.bytes_of_names(names, self.specials)
        return [found[token] if token in names else b"" for token in tokens]

    def shown_bytes_of(self, token: int) -> bytes:
        """The bytes that a token shows in a text that shows special tokens, by their names; empty for a missing id."""
        shown = self._shown.get(token)
        if shown is None:
            name = self.backend.id_to_token(token)
            shown = b"" if name is None else self.bytes_of_names({0: name})[0]
            self._shown[token] = shown
        return shown

    @cached_property
    def _shown(self) -> dict[int, bytes]:
        """What `shown_bytes_of` has found: every token of an answer is asked for."""
        return {}

    @cached_property
    def leading_space(self) -> bool:
        """Whether encoding puts a space before every text that decoding removes again."""
        return self.writes_space and self._removes_space

    @cached_property
    def writes_space(self) -> bool:
        """Whether encoding puts a space before every text."""
        first, splits = normalized(self.backend.normalizer, "a", self.name), self.backend.pre_tokenizer
        if splits is not None:
            first = "".join(piece for piece, _ in pre_tokenized(splits, first, self.name))
        return len(first) > 1 or self.spec["decoder"] is None

    @cached_property
    def _removes_space(self) -> bool:
        """Whether decoding removes a leading space, even if encoding did not add it."""
        return removes_leading_space(self.spec)

    @cached_property
    def _with_space(self) -> frozenset[int]:
        """Added tokens that begin with a space which decoding keeps, because it removes only the sign for one."""
        if not any(step["type"] == "Metaspace" for step in self.steps("decoder")):
            return frozenset()
        added = (token["id"] for token in self.spec["added_tokens"])
        return frozenset(index for index in added if (self.backend.id_to_token(index) or "").startswith(" "))

    # Encoding and decoding.

    @cached_property
    def plain_backend(self) -> tokenizers.Tokenizer:
        """A copy of the backend that finds no special tokens in text, except those that are also ordinary text."""
        added = [token | {"special": token["id"] in self.specials} for token in self.spec["added_tokens"]]
        backend = with_added_tokens(self.backend, added)
        backend.encode_special_tokens = True
        return backend

    def encode(self, text: str) -> list[int]:
        """The ids of a whole text, without BOS, EOS or other template tokens."""
        with self._encoding():
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, encoded at once on all cores."""
        with self._encoding():
            return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _encoding(self) -> AbstractContextManager[None]:
        return explained(self.name, lambda: f", since it has no {self.missing_unk}" if self.missing_unk else "")

    def encode_after_space(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts in the middle of a sentence, after a space."""
        prefix = "" if self.leading_space else " "
        return self.encode_batch([prefix + text for text in texts])

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The bytes of a whole text: its joined token bytes, without the space that decoding removes before them."""
        ids = list(ids)
        removed = self._removes_space and not (ids and ids[0] in self._with_space)
        return b"".join(map(self.token_bytes.__getitem__, ids)).removeprefix(b" " * removed)
