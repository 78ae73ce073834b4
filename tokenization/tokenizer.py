"""One tokenizer: which one it is, what it is made of, the bytes of its tokens, and the ids of texts.

Ids always come from the `tokenizers` backend that will be used when text is generated (`opening`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tokenizers

from spectool import FingerprintMismatch, TokenizerError, escaped_name
from spectool.tokenization.backend import call_backend, encode_many, sections, steps_of, with_added_tokens
from spectool.tokenization.fingerprint import fingerprint_of, short
from spectool.tokenization.roles import Roles, names_control
from spectool.tokenization.token_bytes import TokenBytes, decoder_of

MOST_IDS = 1 << 24  # of one tokenizer: lists have a place for each id up to the highest


@dataclass(frozen=True)
class Tokenizer:
    """One tokenizer, read-only. Properties are computed on first use and kept."""

    name: str  # where it came from, for messages and manifests
    backend: tokenizers.Tokenizer  # encodes
    roles: Roles  # special tokens by role

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
        """Raise a FingerprintMismatch unless an artifact, whose manifest has ``recorded``, is for this tokenizer.

        ``artifact`` is its path, and ``rebuild`` the command that builds it again.
        """
        if not self.matches(recorded):
            built, this = short(recorded["fingerprint"]), short(self.fingerprint)
            raise FingerprintMismatch(
                f"{artifact}: built for tokenizer {built} with {recorded['size']:,} ids, {self.name} is {this} with "
                f"{self.size:,}. Rebuild it: {rebuild}"
            )

    # What it is made of.

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The sections of the backend's own ``tokenizer.json``; of the model only its options."""
        return sections(self.backend)

    def steps(self, section: str) -> list[dict[str, Any]]:
        """The steps of a section of the `spec`, such as ``normalizer``, those of a ``Sequence`` one by one."""
        return steps_of(self.spec, section)

    def has_step(self, kind: str, *sections: str) -> bool:
        """Whether one of these sections has a step of a kind, such as ``ByteLevel``."""
        return any(step["type"] == kind for section in sections for step in self.steps(section))

    @cached_property
    def model(self) -> dict[str, Any]:
        """The model of the backend's own ``tokenizer.json``, with vocabulary and merges; takes seconds."""
        model: dict[str, Any] = json.loads(self.backend.to_str())["model"]
        return model

    @property
    def _options(self) -> dict[str, Any]:
        """The options of the model; those of Unigram are only in the backend's JSON."""
        return self.model if self.kind == "Unigram" else self.spec["model"]

    @cached_property
    def kind(self) -> str:
        """``byte-level BPE``, ``SentencePiece BPE``, ``BPE``, ``Unigram`` or ``WordLevel``."""
        model = self.spec["model"]
        if model["type"] != "BPE":
            return str(model["type"])
        if self.has_step("ByteLevel", "decoder"):
            return "byte-level BPE"
        return "SentencePiece BPE" if model.get("byte_fallback") else "BPE"

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Token string -> id, added tokens included."""
        vocabulary: dict[str, int] = self.backend.get_vocab(with_added_tokens=True)
        token = max(vocabulary, key=vocabulary.__getitem__, default="")
        if vocabulary.get(token, 0) >= MOST_IDS:
            raise TokenizerError(
                f"{self.name}: token {token!r} has the id {vocabulary[token]:,}, expected ids below {MOST_IDS:,}. "
                "Use a tokenizer without this token"
            )
        return vocabulary

    @cached_property
    def byte_tokens(self) -> frozenset[int]:
        """Ids of byte-fallback tokens, such as ``<0x0A>``."""
        if not self._options.get("byte_fallback"):
            return frozenset()
        found = (self.backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(index for index in found if index is not None)

    @cached_property
    def unknown(self) -> int | None:
        """Id that stands for text without a token, if the model has one."""
        index: int | None = self._options.get("unk_id")
        return self.backend.token_to_id(self._options.get("unk_token") or "") if index is None else index

    @cached_property
    def specials(self) -> frozenset[int]:
        """Ids that never stand for text: special, unknown and padding tokens, unless they are also `is_text`."""
        added = {token["id"] for token in self.spec["added_tokens"] if token["special"]}
        found = added | {index for index in (self.unknown, self.roles.pad) if index is not None}
        return frozenset(index for index in found if not self.is_text(index))

    def is_text(self, token: int) -> bool:
        """Whether the model makes this token of plain text, and it is not named like a control token.

        Some fine-tunes declare a token such as ``!`` as padding. It still comes out of every text with an exclamation
        mark, so it keeps its bytes.
        """
        named = names_control(self.backend.id_to_token(token) or "")
        return token in self.byte_tokens or (not named and self.encodes_to(token))

    def encodes_to(self, token: int) -> bool:
        """Whether the model, without added tokens, turns the text of a token into that token."""
        model, name = self.backend.model, self.backend.id_to_token(token) or ""
        if model.token_to_id(name) != token or self.spec["model"]["type"] != "BPE":
            return bool(model.token_to_id(name) == token)
        return [part.id for part in call_backend(model.tokenize, name, self.name)] == [token]

    # How it treats spaces and splits.

    @cached_property
    def space_sign(self) -> str:
        """The sign that a normalizer or a pre-tokenizer writes for a space; otherwise a space."""
        signs = (step["replacement"] for step in self.steps("pre_tokenizer") if step["type"] == "Metaspace")
        return str(next(signs, self.normalized_space))

    @cached_property
    def normalized_space(self) -> str:
        """The sign that a normalizer writes for a space; otherwise a space."""
        replaced = (step for step in self.steps("normalizer") if step["type"] == "Replace")
        return str(next((step["content"] for step in replaced if step["pattern"] == {"String": " "}), " "))

    @cached_property
    def leading_space(self) -> bool:
        """Whether encoding puts a space before every text that decoding removes again."""
        return self.writes_space and self._removes_space

    @cached_property
    def space_after_specials(self) -> bool:
        """Whether it also does so before text after a special token, and not only at the very beginning."""
        return self.leading_space and all(s.get("prepend_scheme") != "first" for s in self.steps("pre_tokenizer"))

    @cached_property
    def writes_space(self) -> bool:
        """Whether encoding puts a space before every text."""
        first, normalizer, splits = "a", self.backend.normalizer, self.backend.pre_tokenizer
        if normalizer is not None:
            first = call_backend(normalizer.normalize_str, first, self.name)
        if splits is not None:
            first = "".join(piece for piece, _ in call_backend(splits.pre_tokenize_str, first, self.name))
        return len(first) > 1 or self.spec["decoder"] is None

    @cached_property
    def _removes_space(self) -> bool:
        """Whether decoding removes a leading space, even if encoding did not add it."""
        return self.spec["decoder"] is None or any(
            (step["type"] == "Strip" and step["start"] > 0 and step["content"] == " ")
            or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
            for step in self.steps("decoder")
        )

    @cached_property
    def text_splits(self) -> Any:
        """The pre-tokenizer as it splits inside a running text, where nothing is prepended, if there is one."""
        steps = self.steps("pre_tokenizer")
        if not steps:
            return None
        prepends: dict[str, Any] = {"Metaspace": {"prepend_scheme": "never"}, "ByteLevel": {"add_prefix_space": False}}
        steps = [step | prepends.get(step["type"], {}) for step in steps]
        inside = tokenizers.pre_tokenizers.Sequence([])
        inside.__setstate__(json.dumps({"type": "Sequence", "pretokenizers": steps}).encode())
        return inside

    def loses_text(self, text: str) -> bool:
        """Whether the pre-tokenizer keeps less than the whole of a text."""
        if self.text_splits is None:
            return False
        pieces = call_backend(self.text_splits.pre_tokenize_str, text, self.name)
        return bool(sum(end - start for _, (start, end) in pieces) < len(text))

    # The bytes of its tokens.

    @property
    def size(self) -> int:
        """Number of ids: highest id + 1. A model's embedding may have more rows."""
        return len(self.token_bytes)

    @cached_property
    def decoded(self) -> Callable[[str], bytes]:
        """A function that gives the bytes of a token by its name.

        Raises:
            TokenizerError: The decoder has a step that this version does not know.
        """
        return decoder_of(self.spec, self.name)

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes of every id; empty for special and missing ids."""
        decoded, names = self.decoded, {index: name for name, index in self.vocabulary.items()}
        added = {token["id"]: self.backend.id_to_token(token["id"]) or "" for token in self.spec["added_tokens"]}
        for name, index in self.vocabulary.items() if len(names) < len(self.vocabulary) else ():
            if names[index] != name and index not in added:
                raise TokenizerError(
                    f"{self.name}: id {index} has several tokens, such as {names[index]!r} and {name!r}, so that "
                    "nothing says which of them it stands for. Use a tokenizer with an id for each"
                )
        names |= added  # as which they are decoded: of a normalized one, its normalized content
        found = [b""] * (max(names, default=-1) + 1)
        for index in names.keys() - self.specials:
            found[index] = decoded(names[index])
        return found

    def with_token_bytes(self, token_bytes: Sequence[bytes]) -> "Tokenizer":
        """The same tokenizer with `token_bytes` that are already known, such as those of an alignment."""
        same = copy(self)
        same.__dict__.pop("running_bytes", None)
        same.__dict__["token_bytes"] = token_bytes
        return same

    def token_bytes_of(self, tokens: Iterable[int]) -> list[bytes]:
        """The bytes of a few ids, without computing all of them; empty for special and missing ids."""
        decoded, specials = self.decoded, self.specials
        names = (None if token in specials else self.backend.id_to_token(token) for token in tokens)
        return [b"" if name is None else decoded(name) for name in names]

    def shown_bytes_of(self, token: int) -> bytes:
        """The bytes that a token shows in a text that shows special tokens, by their names; empty for a missing id."""
        name = self.backend.id_to_token(token)
        return b"" if name is None else self.decoded(name)

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The bytes of a whole text: its joined token bytes, without the space that decoding removes before them."""
        data = b"".join(map(self.token_bytes.__getitem__, ids := list(ids)))
        if not (self._removes_space and data.startswith(b" ")):
            return data
        name = self.backend.id_to_token(next(token for token in ids if self.token_bytes[token])) or ""
        # Metaspace removes its sign, and no space that is written in another way, as in an added token or ``<0x20>``.
        signs = tuple(step["replacement"] for step in self.steps("decoder") if step["type"] == "Metaspace")
        return data[1:] if name.startswith(signs or "") else data

    # The ids of texts.

    def encode(self, text: str) -> list[int]:
        """The ids of a whole text, without BOS, EOS or other template tokens."""
        return list(call_backend(self.backend.encode, text, self.name, add_special_tokens=False).ids)

    def encode_each(self, texts: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
        """Yield each of many texts with its ids; a part of them is encoded at a time, on all cores."""
        return encode_many(self.backend, texts, self.name)

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of many texts."""
        return [ids for _, ids in self.encode_each(texts)]

    @cached_property
    def plain_backend(self) -> tokenizers.Tokenizer:
        """A copy of the backend that finds no special tokens in text, except those that are also ordinary text."""
        added = [token | {"special": token["id"] in self.specials} for token in self.spec["added_tokens"]]
        backend = with_added_tokens(self.backend, added)
        backend.encode_special_tokens = True
        return backend

    # Inside a running text, where ids are joined: nothing is put before a text, and nothing is normalized.

    @cached_property
    def running_bytes(self) -> Sequence[bytes]:
        """`token_bytes`, and bytes for special tokens that merging plain text can end in.

        Nothing else takes these tokens for text, but joining ids has to follow the merges.
        """
        model = self.spec["model"]
        # A model that ignores merges finds whole pieces of text, and the name of a special token is split into several.
        merges = model["type"] == "BPE" and not model.get("ignore_merges")
        made = [token for token in self.specials if merges and self.encodes_to(token)]
        if not made:
            return self.token_bytes
        token_bytes = list(self.token_bytes)
        for token in made:
            token_bytes[token] = self.shown_bytes_of(token)
        return TokenBytes.of(token_bytes)

    @cached_property
    def running_added(self) -> Mapping[int, str]:
        """The added tokens that running text can contain: id -> the text that it is found as and decodes to.

        Special tokens are left out, and tokens that decode to something else than they are found as.
        """
        added = {token["id"]: token for token in self.spec["added_tokens"] if token["id"] not in self.specials}
        normalizer, found = self.backend.normalizer, dict[int, str]()
        for (index, token), raw in zip(added.items(), self.token_bytes_of(added), strict=True):
            sought = token["content"]
            if token["normalized"] and normalizer is not None:
                normalized = call_backend(normalizer.normalize_str, sought, self.name)
                sought = normalized.replace(self.normalized_space, " ")
            if sought and sought.encode() == raw:
                found[index] = sought
        return found

    @cached_property
    def running_backend(self) -> tokenizers.Tokenizer:
        """A copy of the backend that spells exactly the given text.

        Of the added tokens it finds only `running_added`. Nothing is prepended, stripped or normalized, but spaces are
        written with their sign.
        """
        plain, sought, spaces = {"lstrip": False, "rstrip": False}, self.running_added, self.normalized_space
        added = [
            token | plain | {"content": sought.get(token["id"], token["content"]), "special": token["id"] not in sought}
            for token in self.spec["added_tokens"]
        ]
        backend = with_added_tokens(self.backend, added)
        backend.encode_special_tokens = True
        backend.normalizer = None if spaces == " " else tokenizers.normalizers.Replace(" ", spaces)
        backend.pre_tokenizer = self.text_splits
        return backend
