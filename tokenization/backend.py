"""A backend of the `tokenizers` library taken apart and put together, without writing out its vocabulary.

Writing a tokenizer with 262k ids as JSON and reading it takes seconds; its steps, options and added tokens take
milliseconds. Copies share the model, which is most of the memory.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import tokenizers

from spectool import TokenizerError

FIX_TOKENIZER = "Fix tokenizer.json, or use another tokenizer"
_AT_ONCE = 1 << 20  # characters that are encoded together, unless a text is longer: results take some 100 bytes a token
_A_TEXT = 1 << 8  # characters that each text counts for besides its own
_STEPS = ("normalizer", "pre_tokenizer", "decoder")
_CHILDREN = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}  # of a Sequence


def sections(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """The sections of a backend's ``tokenizer.json``; of the model only its type and options.

    The library gives all options of BPE, and not those of Unigram.
    """
    parts = {name: getattr(backend, name) for name in _STEPS}
    found: dict[str, Any] = {
        name: None if part is None else json.loads(part.__getstate__()) for name, part in parts.items()
    }
    added = sorted(backend.get_added_tokens_decoder().items())
    found["added_tokens"] = [{"id": index, **token.__getstate__()} for index, token in added]
    model = backend.model
    names = (name for name in dir(model) if not name.startswith("_") and not callable(getattr(model, name)))
    return found | {"model": {"type": type(model).__name__, **{name: getattr(model, name) for name in names}}}


def steps_of(spec: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    """The steps of a section of a ``tokenizer.json`` in order, with those of each ``Sequence`` in its place."""
    node = spec.get(section)
    if node is None:
        return []
    if node["type"] == "Sequence":
        return [step for child in node[_CHILDREN[section]] for step in steps_of({section: child}, section)]
    return [dict(node)]


def with_added_tokens(backend: tokenizers.Tokenizer, added: Sequence[Mapping[str, Any]]) -> tokenizers.Tokenizer:
    """Another backend around the same model, with the same steps and ``added`` tokens, as in `sections`.

    It neither truncates nor pads.
    """
    copy = tokenizers.Tokenizer(backend.model)
    for name in _STEPS:
        if getattr(backend, name) is not None:
            setattr(copy, name, getattr(backend, name))
    for special, tokens in groupby(added, key=lambda token: bool(token["special"])):
        options = ({name: value for name, value in token.items() if name != "id"} for token in tokens)
        add = copy.add_special_tokens if special else copy.add_tokens
        add([tokenizers.AddedToken(**each) for each in options])
    if {token["id"]: token["content"] for token in added} == {
        index: token.content for index, token in copy.get_added_tokens_decoder().items()
    }:
        return copy
    # Only from JSON do added tokens get ids that do not follow each other.
    spec = json.loads(backend.to_str()) | {"added_tokens": list(added), "truncation": None, "padding": None}
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


def encode_many(backend: tokenizers.Tokenizer, texts: Iterable[str], name: str) -> Iterator[tuple[str, list[int]]]:
    """Yield each text with its ids, without template tokens; some thousand texts are read and encoded at once."""
    size = 0

    def batch_of(text: str) -> int:
        nonlocal size
        size += len(text) + _A_TEXT
        return size // _AT_ONCE

    for _, part in groupby(texts, batch_of):
        batch = list(part)
        encodings = call_backend(backend.encode_batch_fast, batch, name, add_special_tokens=False)
        yield from ((text, encoding.ids) for text, encoding in zip(batch, encodings, strict=True))


def call_backend(method: Callable[..., Any], text: str | Sequence[str], name: str, **options: Any) -> Any:
    """What ``method``, of the backend called ``name`` or a part of it, makes of a text or texts."""
    with backend_errors(name):
        return method(text, **options)


@contextmanager
def backend_errors(name: str, problem: str = "cannot encode a text", advice: str = FIX_TOKENIZER) -> Iterator[None]:
    """Turn whatever a library raises into a TokenizerError in one line, also panics, which are not an `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise TokenizerError(f"{name}: {problem} ({reason}). {advice}") from error
