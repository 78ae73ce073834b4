"""What a tokenizer is made of: the steps, options and tokens of its backend."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import tokenizers

from spectool import TokenizerError
from spectool.tokenization.backend import pre_tokenized, sections, steps_of
from spectool.tokenization.token_bytes import byte_symbols, token_bytes

MOST_IDS = 1 << 24  # of one tokenizer: lists have a place for each id up to the highest


class TokenizerParts:
    """The parts of a backend of the `tokenizers` library, read-only. Properties are computed on first use and kept."""

    name: str
    backend: tokenizers.Tokenizer

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
        """``byte-level BPE``, ``SentencePiece BPE``, ``BPE``, ``Unigram`` or ``WordLevel``."""
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
        token = max(vocabulary, key=vocabulary.__getitem__, default="")
        if vocabulary.get(token, 0) >= MOST_IDS:
            raise TokenizerError(
                f"{self.name}: token {token!r} has the id {vocabulary[token]:,}, expected ids below {MOST_IDS:,}. "
                "Use a tokenizer without this token"
            )
        return vocabulary

    def decoded_names(self) -> Mapping[int, str]:
        """The name that each id is decoded as; of a normalized added token, its normalized content."""
        names = {index: name for name, index in self.vocabulary.items()}
        added = {
            token["id"]: self.backend.id_to_token(token["id"]) or token["content"]
            for token in self.spec["added_tokens"]
        }
        if len(names) < len(self.vocabulary):
            times = Counter(index for index in self.vocabulary.values() if index not in added)
            several = min((index for index, count in times.items() if count > 1), default=None)
            if several is not None:
                tokens = ", ".join(repr(name) for name, index in sorted(self.vocabulary.items()) if index == several)
                raise TokenizerError(
                    f"{self.name}: id {several} has several tokens, {tokens}, so that nothing says which of them it "
                    "stands for. Use a tokenizer with an id for each"
                )
        return names | added

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
    def missing_unk(self) -> str:
        """The unknown token that is missing, if encoding can therefore fail; else empty."""
        if self.kind == "Unigram":
            return "unk_id" if self.unknown is None else ""
        id_of, named = self.backend.model.token_to_id, self.spec["model"].get("unk_token")
        whole = self.kind == "byte-level BPE" and None not in map(id_of, byte_symbols())
        return "" if named is None or whole or id_of(named) is not None else f"token {named!r}"

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
        return sum(end - start for _, (start, end) in pre_tokenized(self.text_splits, text, self.name)) < len(text)

    def bytes_of_names(self, names: Mapping[int, str], specials: frozenset[int] = frozenset()) -> list[bytes]:
        """The bytes of ids that are decoded as these names; empty for ``specials`` and for ids without a name.

        Raises:
            TokenizerError: The decoder has a step that this version does not know.
        """
        try:
            return token_bytes(self.spec, names, specials)
        except TokenizerError as error:
            raise TokenizerError(f"{self.name}: {error}") from error
