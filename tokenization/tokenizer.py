"""One tokenizer: ids, token bytes, fingerprint and special tokens.

Ids always come from the `tokenizers` backend that will be used when text is generated (`opening`).
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from spectool import FingerprintMismatch, TokenizerError
from spectool.tokenization.backend import around_model, sections, steps_of
from spectool.tokenization.fingerprint import fingerprint_of_json, short, source_digest
from spectool.tokenization.roles import Roles, names_control
from spectool.tokenization.token_bytes import Edges, TokenBytes, byte_symbols, edges, text_of, token_bytes

FIX_TOKENIZER = "Fix tokenizer.json, or use another tokenizer"


@dataclass(frozen=True)
class Tokenizer:
    """One tokenizer, read-only. Properties are computed on first use and kept."""

    name: str  # where it came from, for messages and manifests
    backend: tokenizers.Tokenizer  # encodes
    roles: Roles  # special tokens by role
    notes: tuple[str, ...] = ()  # what a user should know about how it was loaded
    file: Path | None = None  # the ``tokenizer.json`` that it was read from, if known
    rebuilt_as: str = ""  # the class that transformers rebuilt it as; empty if it is as the file says

    # What it is made of.

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The sections of the backend's own ``tokenizer.json``; of the model only its options."""
        return sections(self.backend)

    def steps(self, section: str) -> list[dict[str, Any]]:
        """The steps of a section of the `spec`, such as ``normalizer``, those of a ``Sequence`` one by one."""
        return steps_of(self.spec, section)

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
        """``byte-level BPE``, ``SentencePiece BPE``, ``BPE``, ``Unigram``, ``WordPiece`` or ``WordLevel``."""
        model = self.spec["model"]
        if model["type"] != "BPE":
            return str(model["type"])
        if any(step["type"] == "ByteLevel" for step in self.steps("decoder")):
            return "byte-level BPE"
        return "SentencePiece BPE" if model.get("byte_fallback") else "BPE"

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Token string -> id, added tokens included."""
        vocabulary: dict[str, int] = self.backend.get_vocab(with_added_tokens=True)
        return vocabulary

    @property
    def size(self) -> int:
        """Number of ids: highest id + 1. A model's embedding may have more rows."""
        return len(self.token_bytes)

    # Which one it is.

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 that ties artifacts to this tokenizer, 64 hex digits; takes seconds for 262k ids."""
        return fingerprint_of_json({**self.spec, "model": self.model})

    @cached_property
    def source(self) -> str:
        """SHA-256 of the file that this was read from and of what was made of it; empty without a file."""
        return source_digest(self.file, self.rebuilt_as, self.backend, self.spec) if self.file else ""

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What manifests record: name, fingerprint, number of ids, and the sources that are equal to this tokenizer.

        If transformers rebuilt the same tokenizer that the file describes, the plain file is such a source too.
        """
        sources = [self.source] if self.source else []
        if self.file and self.source:
            plain = replace(self, backend=tokenizers.Tokenizer.from_file(str(self.file)), rebuilt_as="")
            if plain.source != self.source and plain.fingerprint == self.fingerprint:
                sources.append(plain.source)
        return {"name": self.name, "fingerprint": self.fingerprint, "size": self.size, "sources": sources}

    def matches(self, recorded: Mapping[str, Any]) -> bool:
        """Whether the tokenizer's entry in an artifact's manifest is about this one.

        The fingerprint is only computed if the number of ids is the same and the file is another.
        """
        if self.source and self.source in recorded.get("sources", ()):
            return True
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

    # What its tokens stand for.

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes of every id; empty for special and missing ids."""
        return self._token_bytes_of(self._names(), self.specials)

    def token_bytes_of(self, tokens: Iterable[int]) -> list[bytes]:
        """The bytes of a few ids, without computing all of them; empty for missing ids."""
        tokens = list(tokens)
        names = {token: name for token in tokens if (name := self.backend.id_to_token(token)) is not None}
        found = self._token_bytes_of(names, self.specials)
        return [found[token] if token in names else b"" for token in tokens]

    def shown_bytes_of(self, token: int) -> bytes:
        """The bytes that a token shows in a text that shows special tokens, by their names; empty for a missing id."""
        shown = self._shown.get(token)
        if shown is None:
            name = self.backend.id_to_token(token)
            shown = b"" if name is None else self._token_bytes_of({0: name}, frozenset())[0]
            self._shown[token] = shown
        return shown

    @cached_property
    def _shown(self) -> dict[int, bytes]:
        """What `shown_bytes_of` has found: every token of an answer is asked for."""
        return {}

    @cached_property
    def spelled(self) -> Sequence[bytes]:
        """The `token_bytes`, and bytes for special tokens that merging plain text can end in.

        Nothing else takes these tokens for text, but joining ids has to follow the merges.
        """
        names = {token: self.backend.id_to_token(token) or "" for token in self.specials}
        made = {token: name for token, name in names.items() if self._makes(token, name)}
        if not made or self.spec["model"]["type"] != "BPE":
            return self.token_bytes
        token_bytes, found = list(self.token_bytes), self._token_bytes_of(made, frozenset())
        for token in made:
            token_bytes[token] = found[token]
        return TokenBytes.of(token_bytes)

    def _token_bytes_of(self, names: Mapping[int, str], specials: frozenset[int]) -> list[bytes]:
        try:
            return token_bytes(self.spec, names, specials)
        except TokenizerError as error:
            raise TokenizerError(f"{self.name}: {error}") from error

    def _names(self) -> Mapping[int, str]:
        """The name that each id is decoded as; of a normalized added token, its normalized content."""
        names = {index: name for name, index in self.vocabulary.items()}
        added = {
            token["id"]: self.backend.id_to_token(token["id"]) or token["content"]
            for token in self.spec["added_tokens"]
        }
        if len(names) < len(self.vocabulary):
            times = Counter(index for index in self.vocabulary.values() if index not in added)
            several, count = max(times.items(), key=lambda each: each[1])
            if count > 1:
                tokens = ", ".join(repr(name) for name, index in sorted(self.vocabulary.items()) if index == several)
                raise TokenizerError(
                    f"{self.name}: id {several} has several tokens, {tokens}, so that nothing says which of them it "
                    "stands for. Use a tokenizer with an id for each"
                )
        return names | added

    @cached_property
    def specials(self) -> frozenset[int]:
        """Ids that never stand for text: special, unknown and padding tokens, unless they are also `is_ordinary`."""
        added = {token["id"] for token in self.spec["added_tokens"] if token["special"]}
        found = added | {index for index in (self.unknown, self.roles.pad) if index is not None}
        return frozenset(index for index in found if not self.is_ordinary(index))

    def is_ordinary(self, token: int) -> bool:
        """Whether the model makes this token of plain text, and it is not named like a control token.

        Some fine-tunes declare a token such as ``!`` as padding. It still comes out of every text with an exclamation
        mark, so it keeps its bytes.
        """
        name = self.backend.id_to_token(token) or ""
        return token in self.byte_tokens or (not names_control(name) and self._makes(token, name))

    def _makes(self, token: int, name: str) -> bool:
        """Whether the model, without added tokens, turns the text of a token into that token."""
        model, options = self.backend.model, self.spec["model"]
        if model.token_to_id(name) != token:
            return False
        if options["type"] != "BPE" or any(map(options.get, ("continuing_subword_prefix", "end_of_word_suffix"))):
            return True
        if [part.id for part in model.tokenize(name)] != [token]:
            return False
        # A vocabulary that may be used without merging has tokens that the pre-tokenizer never leaves whole.
        text = text_of(self._token_bytes_of({0: name}, frozenset())[0]) if options.get("ignore_merges") else ""
        return not text or self.text_splits is None or len(self.text_splits.pre_tokenize_str(text)) == 1

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
    def lacking(self) -> str:
        """What a model lacks that fails at text without a token; empty if it does not fail."""
        if self.kind == "Unigram":
            return "unk_id" if self.unknown is None else ""
        id_of, named = self.backend.model.token_to_id, self.spec["model"].get("unk_token")
        whole = self.kind == "byte-level BPE" and None not in map(id_of, byte_symbols())
        return "" if named is None or whole or id_of(named) is not None else f"token {named!r}"

    @cached_property
    def redecoded(self) -> Mapping[int, str]:
        """Tokens that decode to other text than the model makes them of: id -> name in the model.

        This happens if a token is added again as a normalized one: if the normalizer prepends ``▁``, ``the`` decodes as
        ``▁the``. It also happens if an added token has the id of another token.
        """
        added = {token["id"] for token in self.spec["added_tokens"]}
        names = [(index, name) for name, index in self.vocabulary.items() if index in added]
        id_of, name_of = self.backend.model.token_to_id, self.backend.id_to_token
        return {index: name for index, name in names if id_of(name) == index and name_of(index) != name}

    # How spaces are written.

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

    @property
    def reads_spaces(self) -> bool:
        """Whether decoding reads the `space_sign` as a space."""
        return self.space_sign == " " or self._token_bytes_of({0: self.space_sign}, frozenset()) == [b" "]

    @cached_property
    def edges(self) -> Edges:
        """The spaces that encoding adds and decoding removes at the ends of a text."""
        text = "a" if self.backend.normalizer is None else self.backend.normalizer.normalize_str("a")
        splits = self.backend.pre_tokenizer
        first = text if splits is None else "".join(piece for piece, _ in splits.pre_tokenize_str(text))
        written = len(first) > 1 or self.kind == "WordPiece" or self.spec["decoder"] is None
        return Edges(written and self._removed.leading_space, self._removed.trailing_space)

    @property
    def writes_token_bytes(self) -> bool:
        """Whether token bytes side by side are the text; where words begin or end with a space, decoding moves it."""
        return self.kind != "WordPiece" and not self.edges.trailing_space

    @cached_property
    def _removed(self) -> Edges:
        """The spaces that decoding removes, even if encoding did not add them."""
        return edges(self.spec)

    @cached_property
    def _with_space(self) -> frozenset[int]:
        """Added tokens that begin with a space which decoding keeps, because it removes only the sign for one."""
        if not any(step["type"] == "Metaspace" for step in self.steps("decoder")):
            return frozenset()
        added = (token["id"] for token in self.spec["added_tokens"])
        return frozenset(index for index in added if (self.backend.id_to_token(index) or "").startswith(" "))

    # The same tokenizer inside a running text.

    @cached_property
    def plain_backend(self) -> tokenizers.Tokenizer:
        """A copy of the backend that finds no special tokens in text, except those that are also ordinary text."""
        added = [token | {"special": token["id"] in self.specials} for token in self.spec["added_tokens"]]
        backend = around_model(self.backend, added)
        backend.encode_special_tokens = True
        return backend

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

    @cached_property
    def in_text(self) -> Mapping[int, str]:
        """The added tokens that running text can contain: id -> the text that it is found as and decodes to.

        Special tokens are left out, and tokens that decode to something else than they are found as.
        """
        added = {token["id"]: token for token in self.spec["added_tokens"] if token["id"] not in self.specials}
        normalizer, found = self.backend.normalizer, dict[int, str]()
        for (index, token), raw in zip(added.items(), self.token_bytes_of(added), strict=True):
            sought = token["content"]
            if token["normalized"] and normalizer is not None:
                sought = normalizer.normalize_str(sought).replace(self.normalized_space, " ")
            if sought and sought.encode() == raw:
                found[index] = sought
        return found

    def drops(self, text: str) -> bool:
        """Whether the pre-tokenizer keeps less than the whole of a text."""
        splits = self.text_splits
        return splits is not None and sum(end - start for _, (start, end) in splits.pre_tokenize_str(text)) < len(text)

    @cached_property
    def text_backend(self) -> tokenizers.Tokenizer:
        """A copy of the backend that spells exactly the given text as it would be inside a running text.

        Only added tokens that are `in_text` are found. Nothing is prepended, stripped or normalized, but spaces are
        written with their sign.
        """
        plain, sought = {"lstrip": False, "rstrip": False}, self.in_text
        added = [
            token | plain | {"content": sought.get(token["id"], token["content"]), "special": token["id"] not in sought}
            for token in self.spec["added_tokens"]
        ]
        backend = around_model(self.backend, added)
        backend.encode_special_tokens = True
        spaces = self.normalized_space
        backend.normalizer = None if spaces == " " else tokenizers.normalizers.Replace(" ", spaces)
        backend.pre_tokenizer = self.text_splits
        return backend

    # Encoding and decoding.

    def encode(self, text: str) -> list[int]:
        """The ids of a whole text, without BOS, EOS or other template tokens."""
        with self._encoding():
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, encoded at once on all cores."""
        with self._encoding():
            return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    @contextmanager
    def _encoding(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises nothing narrower, and its panics are no `Exception`
            lacks = f", since it has no {self.lacking}" if self.lacking else ""
            raise TokenizerError(f"{self.name}: cannot encode a text ({error}){lacks}. {FIX_TOKENIZER}") from error

    def encode_after_space(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts in the middle of a sentence, after a space."""
        prefix = "" if self.edges.leading_space else " "
        return self.encode_batch([prefix + text for text in texts])

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The bytes of a whole text: its joined token bytes, without the spaces that decoding removes at the ends."""
        ids, removed = list(ids), self._removed
        leading = removed.leading_space and not (ids and ids[0] in self._with_space)
        joined = b"".join(map(self.token_bytes.__getitem__, ids))
        return joined.removeprefix(b" " * leading).removesuffix(b" " * removed.trailing_space)

    def keeps(self, text: str) -> bool:
        """Whether the ids of a text have exactly its bytes."""
        return self.bytes_of(self.encode(text)) == text.encode()
