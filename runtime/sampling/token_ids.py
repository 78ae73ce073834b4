"""Which token ids a model has.

A tokenizer can have more tokens than the model has rows: Gemma 3's has 262,145, the model 262,144. MLX does not check
indices, so an id beyond the last row reads or writes foreign memory in the embedding, a penalty or a bias. The limit is
the number of the model's own logits; mlx-lm makes the embedding of the same size.
"""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import mlx.core as mx

from spectool import RuntimeUnsupported
from spectool.runtime.per_model import once_per_model


class TokenOutOfRange(RuntimeUnsupported):
    """A token id that the model does not have; ``name`` says where it was given, such as ``prompt``."""

    def __init__(self, name: str, token: Any, vocabulary: int, tokenizer: Any = None) -> None:
        self.name, self.token, self.vocabulary = name, token, vocabulary
        text = _text_of(token, tokenizer)
        super().__init__(
            f"{name}: token {token!r}{'' if text is None else f' ({text!r})'}: the model has "
            f"{vocabulary:,} rows, expected an id from 0 to {vocabulary - 1}. Leave this token out"
        )

    def spelled_by(self, tokenizer: Any) -> "TokenOutOfRange":
        """The same error with the text of the token in ``tokenizer``."""
        return TokenOutOfRange(self.name, self.token, self.vocabulary, tokenizer)


@once_per_model
def vocabulary_size(model: Any) -> int:
    """Number of logits that a model gives for one position, which is the number of its token ids.

    It is read once for each model, from the shape of a pass that is built and never computed.
    """
    return int(model(mx.zeros((1, 1), dtype=mx.int32)).shape[-1])


def require_tokens(name: str, tokens: Sequence[int], vocabulary: int, tokenizer: Any = None) -> None:
    """Raise `TokenOutOfRange` if a model with ``vocabulary`` token ids lacks one of ``tokens``, given as ``name``."""
    # Whole lists are compared at the speed of C; only a list with a wrong token is read one by one.
    if tokens and not (set(map(type, tokens)) <= {int} and min(tokens) >= 0 and max(tokens) < vocabulary):
        for token in tokens:
            if not is_id(token) or not 0 <= token < vocabulary:
                raise TokenOutOfRange(name, token, vocabulary, tokenizer)


def require_lengths(max_tokens: Any, num_draft_tokens: Any) -> None:
    """Raise `RuntimeUnsupported` where a number of tokens is not a whole number, or is out of range."""
    if not is_id(max_tokens) or max_tokens < -1:
        raise RuntimeUnsupported(f"max_tokens: expected a whole number, or -1 for no limit, got {max_tokens!r}")
    if not is_id(num_draft_tokens) or num_draft_tokens < 0:
        raise RuntimeUnsupported(
            f"num_draft_tokens: expected None, a whole number of at least 0 or a Policy, got {num_draft_tokens!r}"
        )


def require_count(name: str, number: Any, least: int = 1) -> None:
    """Raise `RuntimeUnsupported` unless ``number``, given as ``name``, is a whole number of at least ``least``."""
    if not is_id(number) or number < least:
        raise RuntimeUnsupported(f"{name}: expected a whole number of at least {least}, got {number!r}")


def prompt_ids(prompt: mx.array | Sequence[int]) -> list[int]:
    """Token ids of a prompt as Python integers; `RuntimeUnsupported` if it is empty or an array of something else."""
    if not hasattr(prompt, "__len__"):
        raise RuntimeUnsupported(f"prompt: expected a text or token ids, got {type(prompt).__name__}")
    if (prompt.size if isinstance(prompt, mx.array) else len(prompt)) == 0:
        raise RuntimeUnsupported("prompt: expected at least one token, got none. Pass a text or a BOS token.")
    return _from_array("prompt", prompt) if isinstance(prompt, mx.array) else as_ids(prompt)


def given_ids(name: str, tokens: mx.array | Iterable[int], expected: str = "token ids") -> list[int]:
    """Token ids given as ``name``, of which the model need not have all; `RuntimeUnsupported` for something else."""
    if isinstance(tokens, mx.array):
        return _from_array(name, tokens)
    ids = as_ids(tokens) if isinstance(tokens, Iterable) else []
    if not isinstance(tokens, Iterable) or not all(map(is_id, ids)):
        raise RuntimeUnsupported(f"{name}: expected {expected}, got {tokens!r:.100}")
    return ids


def require_text(name: str, text: str) -> None:
    """Raise `RuntimeUnsupported` if a text, given as ``name``, has half a character, which tokenizers do not read."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise RuntimeUnsupported(
            f"{name}: expected a text, got the lone surrogate {half!r} at {error.start}, which is half a character. "
            "Leave it out: text.encode(errors='ignore').decode()"
        ) from None


def _from_array(name: str, tokens: mx.array) -> list[int]:
    if tokens.ndim != 1 or not mx.issubdtype(tokens.dtype, mx.integer):
        raise RuntimeUnsupported(
            f"{name}: expected token ids of shape [tokens], got {tokens.dtype} of shape {list(tokens.shape)}."
        )
    ids: list[int] = tokens.tolist()  # type: ignore[assignment]
    return ids


def as_ids(tokens: Iterable[Any]) -> list[int]:
    """Token ids as Python integers; anything else stays, for `require_tokens` to name."""
    return [int(token) if is_id(token) else token for token in tokens]


def is_id(token: Any) -> TypeGuard[int]:
    """Whether this is a whole number; a truth value is not."""
    return isinstance(token, Integral) and not isinstance(token, bool)


def _text_of(token: Any, tokenizer: Any) -> str | None:
    """The text of a token; None where the tokenizer does not have it either."""
    if not is_id(token):
        return None
    try:
        return str(tokenizer.convert_ids_to_tokens([token])[0] or "") or None
    except Exception:  # no tokenizer, or no id: tokenizers raise all kinds of errors
        return None
