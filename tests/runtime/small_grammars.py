"""Grammars for small models, and masks of their texts."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm import load
from mlx_lm.tokenizer_utils import TokenizerWrapper
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from spectool.runtime.demo_models import demo_path
from spectool.runtime.grammar import Grammar, GrammarConstraint

ROWS = 1536  # of the demo models
PATTERNS = [
    r'\{"imię": "[A-ZŻ][a-ząęłńóśź]{2,8}", "wiek": [1-9][0-9]?\}',
    r"(tak|nie|nie wiem)(, bo [a-zà-ż ]{5,30})?\.",
    r"[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9](T[0-9]{2}:[0-9]{2})?",
    r"( ?(мова|міст|дім)){3,6}!*",
    r"most",
]


def closed(**properties: Any) -> dict[str, Any]:
    """The schema of an object that has all of these properties, and no others."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


ADDRESS = closed(ulica={"type": "string", "maxLength": 9}, numer={"type": "integer", "maximum": 999})
SCHEMAS: list[Any] = [
    closed(nazwisko={"type": "string", "maxLength": 12}),
    {"type": "array", "items": {"enum": ["czerwony", "niebieski", 7, None]}, "minItems": 3, "maxItems": 5},
    {
        "$defs": {"n": {"type": "integer", "minimum": 3, "maximum": 1200}},
        "type": "array",
        "items": {"$ref": "#/$defs/n"},
        "maxItems": 6,
    },
    {
        "anyOf": [
            {"type": "string", "pattern": "^[a-f]{4}$"},
            {"type": "integer", "minimum": 0, "maximum": 99},
            {"const": {"a": [True, "ґ"]}},
        ]
    },
    closed(adres=ADDRESS, data={"type": "string", "format": "date"}, czynny={"type": "boolean"})
    | {"x-guidance": {"whitespace_flexible": False}},
]


@cache
def demo() -> tuple[Any, Any, Any]:
    """The demo target, its tokenizer, and the demo draft."""
    model, tokenizer, *_ = load(str(demo_path("target")))
    return model, tokenizer, load(str(demo_path("draft")))[0]


def grammars() -> Iterator[tuple[str, Grammar]]:
    tokenizer = demo()[1]
    for pattern in PATTERNS:
        yield pattern, Grammar(tokenizer, "regex", pattern)
    for schema in SCHEMAS:
        yield json.dumps(schema), Grammar(tokenizer, "json_schema", schema)


def bits(masks: mx.array) -> NDArray[np.bool_]:
    return np.array(masks)


def committed_to(grammar: Grammar, tokens: list[int], rows: int = ROWS) -> GrammarConstraint:
    constraint = grammar.constraint(rows)
    constraint.commit(tokens)
    return constraint


@cache
def letters() -> TokenizerWrapper:
    """A tokenizer of the bytes a, b, c, two merges of them, and an end: ids 0 to 7."""
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "<s>": 5, "<end>": 6}
    backend = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("b", "c")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "<end>"])
    return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="<end>"))
