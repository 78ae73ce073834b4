"""Special-token roles: what begins, ends and pads a text, by id and never by its spelling in text."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Tokens that end a text or a turn in the model families that spectool is used with.
_END_NAMES = (
    "</s>",
    "<eos>",
    "[EOS]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|end|>",
    "<EOT>",
    "<|assistant_end|>",
)
_BEGIN_NAMES = ("<s>", "<bos>", "[BOS]", "[SOS]", "<|begin_of_text|>", "<|bos|>", "[CLS]")
_PAD_NAMES = ("<pad>", "[PAD]", "<|finetune_right_pad_id|>")
_UNKNOWN_NAMES = ("<unk>", "[UNK]")
# Names in brackets with a letter inside, such as ``<s>``, ``<|im_end|>``, ``[PAD]`` and ``▁<EOT>``, and bare ones.
_CONTROL_NAME = re.compile(r"[▁Ġ ]?[<\[][\W\d_]*[^\W\d_].*[>\]]|(?i:bos|eos|pad|unk|sep|cls|mask)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Roles:
    """Ids of special tokens by role."""

    bos: int | None = None  # begins a text
    eos: tuple[int, ...] = ()  # any of these ends a text or a turn; the declared one first, the others ascending
    pad: int | None = None  # fills batches
    unk: int | None = None  # stands for what the vocabulary cannot spell


def names_control(name: str) -> bool:
    """Whether a token is named the way control tokens are, unlike words and punctuation.

    >>> [names_control(name) for name in ("<|EOS|>", "[PAD]", "!", "▁the", "<")]
    [True, True, False, False, False]
    """
    return _CONTROL_NAME.fullmatch(name) is not None


def find_roles(
    id_of: Callable[[str], int | None],
    specials: Iterable[str],
    declared: Mapping[str, Any],
    eos_ids: Iterable[int] = (),
) -> Roles:
    """The roles that a tokenizer's files declare, otherwise those of well-known names among its special tokens.

    Args:
        id_of: Token string -> id, None if there is none.
        specials: Strings of the special added tokens.
        declared: ``bos_token`` and the like, as in ``tokenizer_config.json`` (strings, or objects with ``content``).
        eos_ids: Further ids that end a text (``generation_config.json``, mlx-lm's wrapper).
    """
    named = {name: index for name in specials if (index := id_of(name)) is not None}

    def role(key: str, names: tuple[str, ...]) -> int | None:
        content = declared.get(key)
        content = content.get("content") if isinstance(content, Mapping) else content
        index = id_of(content) if isinstance(content, str) else None
        return next((named[name] for name in names if name in named), None) if index is None else index

    ends = {named[name] for name in _END_NAMES if name in named} | set(eos_ids)
    declared_end = role("eos_token", ())
    first = () if declared_end is None else (declared_end,)
    return Roles(
        bos=role("bos_token", _BEGIN_NAMES),
        eos=(*first, *sorted(ends - set(first))),
        pad=role("pad_token", _PAD_NAMES),
        unk=role("unk_token", _UNKNOWN_NAMES),
    )
