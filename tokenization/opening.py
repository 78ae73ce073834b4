"""Opening a tokenizer: a hub id, a directory, a ``tokenizer.json``, or one that is already loaded.

Directories and hub ids go through transformers, as in mlx-lm, because transformers rebuilds some tokenizers from their
class name. If the rebuilt one encodes differently from ``tokenizer.json``, it is used, because mlx-lm will use it too,
and a note says so.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers

from spectool import TokenizerError
from spectool.tokenization.backend import FIX_TOKENIZER, normalized, sections, steps_of, with_added_tokens
from spectool.tokenization.fingerprint import PROBES, probed
from spectool.tokenization.hub_names import cached_snapshot, looks_like_hub_id, reason_of, require_on_hub, where
from spectool.tokenization.roles import content_of, find_roles
from spectool.tokenization.tokenizer import Tokenizer

_SAVED = "Expected what AutoTokenizer.from_pretrained(ID).save_pretrained(DIR) writes"
_MOST_GROWTH = 100  # U+FDFA becomes 18 characters
_LONGEST_CONTENT = 1000  # characters that a step writes for a piece of text
_POINTER = b"version https://git-lfs"  # what Git LFS leaves of a file that it has not downloaded

_AS_THE_FILE = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that rebuild nothing
_NAMED = {f"{role}_token" for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")}


def open_tokenizer(source: Any) -> Tokenizer:
    """The tokenizer in a directory with ``tokenizer.json``, in such a file, or on the hub (``owner/name``).

    ``source`` can also be a `tokenizers.Tokenizer`, a transformers fast tokenizer, or mlx-lm's ``TokenizerWrapper``.

    Raises:
        TokenizerError: Nothing usable is there; the message says what was looked for.
    """
    if isinstance(source, Tokenizer):
        return source
    if isinstance(source, tokenizers.Tokenizer):
        return _build("(loaded tokenizer)", source, {}, ())
    if not isinstance(source, str | os.PathLike):
        inner = getattr(source, "_tokenizer", source)
        if isinstance(inner, tokenizers.Tokenizer):  # a transformers tokenizer keeps its backend there
            inner = source
        name = str(getattr(inner, "name_or_path", "") or "(loaded tokenizer)")
        return _from_transformers(name, inner, _ids(getattr(source, "eos_token_ids", None)))
    path = Path(source).expanduser()
    try:
        is_file, is_directory = path.is_file(), path.is_dir()
    except OSError as error:
        raise TokenizerError(f"{source}: cannot be read ({error.strerror}). Check name and permissions") from error
    if is_file:
        config, eos = _settings(path)
        return _build(str(path), _read_backend(path), config, eos)
    if is_directory:
        return _from_directory(path)
    require_plain(path)
    name = str(source)
    if not looks_like_hub_id(name):
        raise TokenizerError(
            f"{name}: no such file or directory, and not a hub id of the form owner/name. "
            "Give a directory with tokenizer.json, the file itself, or a hub id such as "
            "speakleash/Bielik-11B-v2.5-Instruct"
        )
    if (cached := cached_snapshot(name, "tokenizer.json", "*.model", "vocab.json")) is not None:
        return replace(_from_directory(cached), name=name)
    require_on_hub(name)
    return _from_transformers(name, _load_with_transformers(name), ())


def open_named(named: str | None, recorded: Mapping[str, Any], whose: str) -> Tokenizer:
    """The tokenizer that ``--tokenizer`` names, or else the one that an artifact's manifest records.

    If that has moved, the error asks for ``whose`` tokenizer, such as ``the dictionary's``.
    """
    try:
        return open_tokenizer(named or recorded["name"])
    except TokenizerError as error:
        if named:
            raise
        raise TokenizerError(f"{error}. Give {whose} tokenizer with --tokenizer") from error


def _from_directory(path: Path) -> Tokenizer:
    for each in path.glob("*"):
        require_plain(each)
    file = path / "tokenizer.json"
    config, eos = _settings(file, "config.json")
    if file.is_file():
        backend = _read_backend(file)
        if not config and not (path / "config.json").is_file():  # transformers could not say more
            return _build(str(path), backend, config, eos)
        rebuilt = _load_with_transformers(str(path))
        return _from_transformers(str(path), rebuilt, eos, _differences(backend, rebuilt))
    for other in sorted(path.glob("tokenizer*")):
        _require_downloaded(other)
    converted = _load_with_transformers(str(path))
    note = "there is no tokenizer.json: transformers converts another vocabulary, as it does when mlx-lm loads it."
    tokenizer = _from_transformers(str(path), converted, eos, (note,))
    if not any(tokenizer.token_bytes):
        raise TokenizerError(f"{path}: transformers makes an empty {type(converted).__name__} of this. {_SAVED}")
    return tokenizer


def _settings(file: Path, *more: str) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The ``tokenizer_config.json`` next to a file, and the end-of-text ids of its neighbours."""
    names = ("generation_config.json", *more)
    eos = tuple(index for name in names for index in _ids(_read_json(file.with_name(name)).get("eos_token_id")))
    return _read_json(file.with_name("tokenizer_config.json")), eos


def _load_with_transformers(name: str) -> Any:
    # transformers announces a missing PyTorch on import; the tokenizers need none.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        what = f"{where(name)}transformers cannot load this tokenizer"
        helps = "If the hub cannot be reached, download it first and give its directory, or give a tokenizer.json file"
        if (Path(name) / "tokenizer.json").is_file():
            helps = "To use tokenizer.json as it is, give the file instead of the directory"
        elif Path(name).is_dir():
            what = f"{name}: no tokenizer.json in this directory, and transformers makes none of what is there"
            helps = f"{_SAVED}. Vocabularies of other formats may need: pip install 'spectool[formats]'"
        raise TokenizerError(f"{what} ({reason_of(error)}). {helps}") from error


def _differences(plain: tokenizers.Tokenizer, rebuilt: Any) -> tuple[str, ...]:
    pairs = zip(probed(plain), probed(_backend_of(rebuilt)), strict=True)
    differing = sum(found != expected for found, expected in pairs)
    if not differing:
        return ()
    return (
        f"transformers rebuilds this tokenizer as {type(rebuilt).__name__}: {differing} of {len(PROBES)} probe "
        "strings get other ids than from tokenizer.json. spectool uses the rebuilt "
        "one, since mlx-lm generates with it; to use tokenizer.json as it is, give the file instead of the directory.",
    )


def _from_transformers(name: str, loaded: Any, eos: tuple[int, ...], notes: tuple[str, ...] = ()) -> Tokenizer:
    """The tokenizer that transformers loaded."""
    kind = type(loaded).__name__
    declared = {role: getattr(loaded, role, None) for role in _NAMED}
    return _build(name, _backend_of(loaded), declared, eos, notes, "" if kind in _AS_THE_FILE else kind)


def _backend_of(loaded: Any) -> tokenizers.Tokenizer:
    backend = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        which = ": ".join(filter(None, (getattr(loaded, "name_or_path", ""), type(loaded).__name__)))
        raise TokenizerError(
            f"{which}: not backed by the `tokenizers` library. Expected a fast tokenizer (tokenizer.json), a "
            "directory, a hub id, or mlx-lm's TokenizerWrapper"
        )
    return backend


def _build(
    name: str,
    backend: tokenizers.Tokenizer,
    declared: Mapping[str, Any],
    eos_ids: tuple[int, ...],
    notes: tuple[str, ...] = (),
    rebuilt_as: str = "",
) -> Tokenizer:
    if backend.truncation is not None or backend.padding is not None:
        # Both would change the ids of a text; on a copy, since the caller's object may be in use.
        backend = with_added_tokens(backend, sections(backend)["added_tokens"])
    if dropout := getattr(backend.model, "dropout", None):
        raise TokenizerError(
            f"{name}: its BPE leaves out merges at random (dropout {dropout:g}), so that no two encodings need be the "
            'same. Set "dropout" to null in tokenizer.json'
        )
    _require_causal(name, backend.model)
    require_bounded(name, backend)
    added = backend.get_added_tokens_decoder().values()
    specials = [token.content for token in added if token.special]
    # Models may declare ids beyond the tokenizer.
    known = [index for index in eos_ids if index >= 0 and backend.id_to_token(index) is not None]
    roles = find_roles(backend.token_to_id, specials, declared, known)
    tokenizer = Tokenizer(name, backend, roles, notes, rebuilt_as)
    return replace(tokenizer, notes=(*notes, *_role_notes(tokenizer, declared)))


def _require_causal(name: str, model: Any) -> None:
    """Refuse kinds of tokenizers that no causal language model has, whose tokens say where words begin or end."""
    kind, marks = type(model).__name__, ("continuing_subword_prefix", "end_of_word_suffix")
    found = [mark for mark in marks if getattr(model, mark, None)]
    if kind == "WordPiece" or found:
        raise TokenizerError(
            f"{name}: expected BPE without marks for parts of words, Unigram or WordLevel, got "
            f"{' with '.join([kind, *found])}. Use the tokenizer of a causal language model"
        )


def require_bounded(name: str, backend: tokenizers.Tokenizer) -> None:
    """Refuse a normalizer or a decoder whose steps make a text many times longer, one after the other.

    They are tried on `PROBES` and on what they replace and write themselves. A step is only taken when the text that
    it gets is short, so that this takes no memory either.
    """
    for section, kinds in (("normalizer", tokenizers.normalizers), ("decoder", tokenizers.decoders)):
        part = getattr(backend, section)
        if not isinstance(part, kinds.Sequence | kinds.Replace):
            continue
        steps = steps_of({section: json.loads(part.__getstate__())}, section)
        if section == "decoder":  # whose other steps add nothing; this one is written as that of normalizers is
            steps = [step for step in steps if step["type"] == "Replace"]
        written = [str(part) for step in steps for part in (step.get("content", ""), step.get("pattern", ""))]
        text = "".join((*PROBES, *dict.fromkeys(written)))
        most = _MOST_GROWTH * len(text)
        for step in steps:
            one = tokenizers.normalizers.Sequence([])
            one.__setstate__(json.dumps({"type": "Sequence", "normalizers": [step]}).encode())
            writes_much = len(step.get("content", "")) > _LONGEST_CONTENT
            text = text if writes_much else normalized(one, text, name)
            if writes_much or len(text) > most:
                raise TokenizerError(
                    f"{name}: its {section} makes a text more than {_MOST_GROWTH} times longer (at the step "
                    f"{step['type']}). {FIX_TOKENIZER}"
                )


def _role_notes(tokenizer: Tokenizer, declared: Mapping[str, Any]) -> Iterator[str]:
    """A note for each role whose tokens are also ordinary text."""
    backend, ends = tokenizer.backend, tokenizer.roles.eos
    roles = {token["id"]: "special token" for token in tokenizer.spec["added_tokens"] if token["special"]}
    roles |= dict.fromkeys(ends, "eos token")
    for role in sorted(_NAMED, reverse=True):
        if (index := backend.token_to_id(content_of(declared.get(role)) or "")) is not None:
            roles[index] = role.replace("_", " ")
    found = defaultdict[tuple[str, bool], list[int]](list)
    for index in filter(tokenizer.is_text, roles):
        found[roles[index], index in ends].append(index)
    for (role, ends_text), (first, *others) in found.items():
        which, kept = f"{backend.id_to_token(first)!r} is its {role}", "It is kept"
        if others:
            which = f"{backend.id_to_token(first)!r} and {len(others)} more are its {role}s"
            kept = "They are kept"
        end = " Generation still ends at it." * ends_text
        yield f"{which} and also ordinary text. {kept} in texts, counted, and may be drafted.{end}"


def _ids(value: Any) -> tuple[int, ...]:
    """The ids in a configuration's value: one, several, or none."""
    several = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return tuple(item for item in several if isinstance(item, int))


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain Exception for everything, and its panics are none
        _require_downloaded(path)
        raise TokenizerError(
            f"{path}: not a tokenizer.json that the tokenizers library reads ({str(error)[:200]}). {_SAVED}"
        ) from error


def require_plain(path: Path) -> None:
    """Raise a TokenizerError for a pipe, a socket or a device, which a loader would wait for."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise TokenizerError(
            f"{path}: expected a file, got a pipe, a socket or a device. Replace it by the file itself"
        )


def _require_downloaded(path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise TokenizerError(
                f"{path}: this is a pointer of Git LFS, expected the file itself. Download it: git lfs pull"
            )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        _require_downloaded(path)
        raise TokenizerError(f"{path}: not readable as JSON ({error}). Download the tokenizer's files again") from error
    return value if isinstance(value, dict) else {}
