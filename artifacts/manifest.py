"""The manifest of an artifact: what it is, and what it was made from.

It has no time stamps, so equal inputs and arguments give equal bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import spectool


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact is, and what it was made from."""

    format: str  # name of the format, such as ``spectool-dictionary``
    version: int  # of the format
    arguments: Mapping[str, Any]  # of the stage, as far as the content depends on them
    tokenizers: Mapping[str, Mapping[str, Any]]  # role -> `Tokenizer.identity`
    inputs: Mapping[str, Any]  # the corpus, with its size
    statistics: Mapping[str, Any]  # figures of the content
    tool: str = f"spectool {spectool.__version__}"  # the program that wrote it

    @property
    def fingerprints(self) -> dict[str, str]:
        """The tokenizers' fingerprints, by role."""
        return {role: str(tokenizer["fingerprint"]) for role, tokenizer in self.tokenizers.items()}

    def to_json(self) -> str:
        """A line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Manifest":
        """The manifest that JSON from anyone is.

        Raises:
            ValueError: It is not JSON, or has numbers or text that readers of JSON do not agree on.
            RecursionError: It is too deep.
            TypeError: A part that readers rely on is missing or has another type, or there is another part.
        """
        value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_number)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be printed
        keys = [each.name for each in fields(cls)]
        if wrong := sorted(set(keys) ^ set(value if isinstance(value, dict) else ())):
            raise TypeError(f"expected the keys {', '.join(keys)}, got others or none: {', '.join(wrong[:3])}")
        manifest = cls(**value)
        parts = dict.fromkeys(("arguments", "tokenizers", "inputs", "statistics"), dict)
        _expect_types("the manifest", asdict(manifest), {"format": str, "version": int, "tool": str, **parts})
        for role, tokenizer in manifest.tokenizers.items():
            _expect_types(f"tokenizer {role!r}", tokenizer, {"name": str, "fingerprint": str, "size": int})
            if tokenizer["size"] < 0:
                raise TypeError(f"tokenizer {role!r} has a negative size")
        texts = {"corpus": str, "documents": int, "characters": int, "repaired": dict, "packs": list}
        _expect_types("the inputs", manifest.inputs, texts, optional=True)
        return manifest


def _number(digits: str) -> int | float:
    if not abs(value := float(digits)) < 1 << 63:
        raise ValueError(f"{digits[:20]} is no number of 64 bits")
    return int(digits) if digits.lstrip("-").isdigit() else value


def _expect_types(what: str, value: Any, types: Mapping[str, type], optional: bool = False) -> None:
    for key, kind in types.items():
        found = value.get(key) if isinstance(value, dict) else None
        if type(found) is not kind and not (optional and found is None):
            raise TypeError(f"{key!r} of {what}: expected {kind.__name__}, got {type(found).__name__}")
