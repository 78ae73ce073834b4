"""A tokenizer inside a running text, where ids are joined: nothing is put before a text, and nothing is normalized."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import tokenizers

from spectool.tokenization.backend import call_backend, with_added_tokens
from spectool.tokenization.token_bytes import Lists
from spectool.tokenization.tokenizer import Tokenizer


class RunningText:
    """What one tokenizer is inside a running text. Properties are computed on first use and kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        """The tokenizer's own token bytes, and bytes for special tokens that merging plain text can end in.

        Nothing else takes these tokens for text, but joining ids has to follow the merges.
        """
        tokenizer, model = self._tokenizer, self._tokenizer.spec["model"]
        # A model that ignores merges finds whole pieces of text, and the name of a special token is split into several.
        merges = model["type"] == "BPE" and not model.get("ignore_merges")
        made = [token for token in tokenizer.specials if merges and tokenizer.encodes_to(token)]
        if not made:
            return tokenizer.token_bytes
        token_bytes = list(tokenizer.token_bytes)
        for token in made:
            token_bytes[token] = tokenizer.shown_bytes_of(token)
        return Lists.of(token_bytes)

    @cached_property
    def added(self) -> Mapping[int, str]:
        """The added tokens that running text can contain: id -> the text that it is found as and decodes to.

        Special tokens are left out, and tokens that decode to something else than they are found as.
        """
        tokenizer, found = self._tokenizer, dict[int, str]()
        normalizer, space = tokenizer.backend.normalizer, tokenizer.normalized_space
        added = {
            token["id"]: token for token in tokenizer.spec["added_tokens"] if token["id"] not in tokenizer.specials
        }
        for (index, token), raw in zip(added.items(), tokenizer.token_bytes_of(added), strict=True):
            sought = token["content"]
            if token["normalized"] and normalizer is not None:
                sought = call_backend(normalizer.normalize_str, sought, tokenizer.name).replace(space, " ")
            if sought and sought.encode() == raw:
                found[index] = sought
        return found

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """A copy of the tokenizer's backend that spells exactly the given text.

        Of the added tokens it finds only `added`. Nothing is prepended, stripped or normalized, but spaces are written
        with their sign.
        """
        tokenizer, plain, sought = self._tokenizer, {"lstrip": False, "rstrip": False}, self.added
        added = [
            token | plain | {"content": sought.get(token["id"], token["content"]), "special": token["id"] not in sought}
            for token in tokenizer.spec["added_tokens"]
        ]
        backend = with_added_tokens(tokenizer.backend, added)
        backend.encode_special_tokens = True
        spaces = tokenizer.normalized_space
        backend.normalizer = None if spaces == " " else tokenizers.normalizers.Replace(" ", spaces)
        backend.pre_tokenizer = tokenizer.text_splits
        return backend
