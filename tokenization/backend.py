"""A backend of the `tokenizers` library taken apart and put together, without writing out its vocabulary.

Writing a tokenizer with 262k ids as JSON and reading it takes seconds; its steps, options and added tokens take
milliseconds. Copies share the model, which is most of the memory.
"""

import gc
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import tokenizers

from spectool.tokenization.roles import names_control
from spectool.tokenization.surfaces import byte_symbols

_STEPS = ("normalizer", "pre_tokenizer", "decoder")


def sections(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """Return the sections of a backend's ``tokenizer.json``; of the model its type and options alone.

    The library gives all options of BPE and WordPiece, and not those of Unigram.
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


def around_model(backend: tokenizers.Tokenizer, added: Sequence[Mapping[str, Any]]) -> tokenizers.Tokenizer:
    """Return another backend around the same model, with the same steps and ``added`` tokens (as in `sections`).

    Without truncation and padding.
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
    # Ids of added tokens that do not follow each other come out of the JSON only.
    spec = json.loads(backend.to_str()) | {"added_tokens": list(added), "truncation": None, "padding": None}
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


def part_of(
    file: Path, texts: Iterable[str], keep: Collection[int | str | None], changed: Mapping[str, Any]
) -> tokenizers.Tokenizer | None:
    """Return a backend with that part of a ``tokenizer.json`` which some texts need; they get the ids of the whole.

    The library takes a second for 262k ids and their merges. BPE and Unigram can only need those that have no other
    characters than the text, once normalizer and pre-tokenizer have written it. BPE does without the rest. Unigram
    numbers its pieces by their place, so the rest become one that no text has. Whether the library accepts them is not
    tried.

    Args:
        file: The file.
        texts: All that may be encoded.
        keep: Further tokens, by id or name. Added ones, those for bytes and the one with the highest id always are.
        changed: Sections that take the place of the file's; of the model its options, and added tokens by their ids.

    Returns:
        The backend; None for other models, and where the library may give other ids than are written.
    """
    from pydantic_core import from_json, to_json  # 30 ms that a generation does without

    collects = gc.isenabled()
    gc.disable()  # which would look through a million strings again and again
    try:
        read = from_json(file.read_bytes(), allow_inf_nan=False, cache_strings="none")
        tokens = {token["id"]: token for token in (*read["added_tokens"], *changed.get("added_tokens", ()))}
        model = read["model"] | changed.get("model", {})
        spec = {**read, **changed, "added_tokens": [tokens[index] for index in sorted(tokens)]}
        added = {token["content"]: token["id"] for token in spec["added_tokens"]}
        unigram = model["type"] == "Unigram"
        known = {name: place for place, (name, _) in enumerate(model["vocab"])} if unigram else model["vocab"]
        ids = known | {name: index for name, index in added.items() if name not in known}
        places = list(ids.values())
        plain = not any(map(model.get, ("continuing_subword_prefix", "end_of_word_suffix", "dropout")))
        sure = len(ids) in (len(known), places[-1] + 1)  # the library numbers added tokens that are not in it
        outside = [token for token in spec["added_tokens"] if token["content"] not in known]
        sure &= not any(token["single_word"] or token["content"] == model.get("unk_token") for token in outside)
        if model["type"] not in ("BPE", "Unigram") or not (plain and sure) or places != sorted(set(places)):
            return None

        def made(**part: Any) -> tokenizers.Tokenizer:
            return tokenizers.Tokenizer.from_str(to_json({**spec, "model": {**model, **part}}).decode())

        steps = made(type="BPE", vocab=added, merges=[])
        # Whether special tokens are ordinary text is asked of the model, which needs their parts for that.
        roles = {*keep, *(token["content"] for token in spec["added_tokens"] if token["special"])}
        words = [name for name in roles if isinstance(name, str) and not names_control(name)]
        characters = _characters(steps, texts).union(*words)
        spelled = set(filter(characters.issuperset, ids))
        always = {*added, *keep, *byte_symbols(), *map("<0x{:02X}>".format, range(256)), model.get("unk_token")}
        always |= spelled | {places[-1], model.get("unk_id")}
        kept = {name: index for name, index in ids.items() if name in always or index in always}
        if unigram:
            no_text = next(char for char in map(chr, range(0x10FFFF, 0, -1)) if char not in characters)
            return made(vocab=[[name if name in kept else no_text, score] for name, score in model["vocab"]])
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        return made(vocab=kept, merges=[pair for pair in pairs if pair[0] in spelled and pair[1] in spelled])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # the library's own, panics too, which are no Exception; explained when it reads the file
        return None
    finally:
        if collects:
            gc.enable()


def _characters(steps: tokenizers.Tokenizer, texts: Iterable[str]) -> set[str]:
    """Return all characters of texts, as they are and as a backend's normalizer and pre-tokenizer write them."""
    found = set[str]()
    for written in (part for text in texts for part in (text, *text)):
        normal = written if steps.normalizer is None else steps.normalizer.normalize_str(written)
        pieces = [] if steps.pre_tokenizer is None else steps.pre_tokenizer.pre_tokenize_str(normal)
        found.update(written, normal, *(piece for piece, _ in pieces))
    return found
