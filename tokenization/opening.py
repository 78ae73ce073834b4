"""Opening a tokenizer: a hub id, a directory, a ``tokenizer.json``, or one that is already loaded.

Directories and hub ids go through transformers, as in mlx-lm, because transformers rebuilds some tokenizers from their
class name. If the rebuilt one encodes differently from ``tokenizer.json``, it is used, because mlx-lm will use it too.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from spectool import TokenizerError, expanded
from spectool.tokenization.backend import backend_errors, sections, with_added_tokens
from spectool.tokenization.hub_names import cached_snapshot, fetch, looks_like_hub_id
from spectool.tokenization.roles import find_roles
from spectool.tokenization.tokenizer import MOST_IDS, Tokenizer

_SAVED = "Expected what AutoTokenizer.from_pretrained(ID).save_pretrained(DIR) writes"
_POINTER = b"version https://git-lfs"  # what Git LFS leaves of a file that it has not downloaded
_DECLARED = ("bos_token", "eos_token", "unk_token", "pad_token")


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
    path = expanded(source)
    if path.is_file():
        return _build(str(path), _read_backend(path), *_settings(path))
    if path.is_dir():
        return _from_directory(path, str(path))
    require_plain(path)
    name = str(source)
    if not looks_like_hub_id(name):
        raise TokenizerError(
            f"{name}: no such file or directory, and not a hub id of the form owner/name. "
            "Give a directory with tokenizer.json, the file itself, or a hub id such as "
            "speakleash/Bielik-11B-v2.5-Instruct"
        )
    return cached_tokenizer(name) or _from_directory(fetch(name, weights=False), name)


def cached_tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer of a hub id in the local cache, if it is there; nothing is asked of the hub.

    Raises:
        TokenizerError: It is there, and cannot be used.
    """
    folder = cached_snapshot(name, "tokenizer.json", "*.model", "vocab.json")
    return None if folder is None else _from_directory(folder, name)


def _from_directory(path: Path, name: str) -> Tokenizer:
    for each in path.glob("*"):
        require_plain(each)
    for each in filter(Path.is_file, path.glob("tokenizer*")):
        _require_downloaded(each)
    file = path / "tokenizer.json"
    config, eos = _settings(file, "config.json")
    if file.is_file() and not config and not (path / "config.json").is_file():  # transformers could not say more
        return _build(name, _read_backend(file), config, eos)
    tokenizer = _from_transformers(name, _load_with_transformers(path), eos)
    if not (file.is_file() or any(tokenizer.token_bytes)):
        raise TokenizerError(f"{path}: transformers makes an empty tokenizer of this. {_SAVED}")
    return tokenizer


def _settings(file: Path, *more: str) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The ``tokenizer_config.json`` next to a file, and the end-of-text ids of its neighbours."""
    names = ("generation_config.json", *more)
    eos = tuple(index for name in names for index in _ids(_read_json(file.with_name(name)).get("eos_token_id")))
    return _read_json(file.with_name("tokenizer_config.json")), eos


def _load_with_transformers(path: Path) -> Any:
    # transformers announces a missing PyTorch on import; the tokenizers need none.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    if (path / "tokenizer.json").is_file():
        problem = "transformers cannot load this tokenizer"
        advice = "Download its files again. To use tokenizer.json as it is, give the file instead of the directory"
    else:
        problem = "no tokenizer.json in this directory, and transformers makes none of what is there"
        advice = f"{_SAVED}. Vocabularies of other formats may need: pip install 'spectool[formats]'"
    with backend_errors(str(path), problem, advice):
        return AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)


def _from_transformers(name: str, loaded: Any, eos: tuple[int, ...]) -> Tokenizer:
    backend = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise TokenizerError(
            f"{name}: {type(loaded).__name__}: not backed by the `tokenizers` library. Expected a fast tokenizer "
            "(tokenizer.json), a directory, a hub id, or mlx-lm's TokenizerWrapper"
        )
    return _build(name, backend, {role: getattr(loaded, role, None) for role in _DECLARED}, eos)


def _build(
    name: str, backend: tokenizers.Tokenizer, declared: Mapping[str, Any], eos_ids: tuple[int, ...]
) -> Tokenizer:
    if backend.truncation is not None or backend.padding is not None:
        # Both would change the ids of a text; on a copy, since the caller's object may be in use.
        backend = with_added_tokens(backend, sections(backend)["added_tokens"])
    _require_causal(name, backend.model)
    specials = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
    # Models may declare ids beyond the tokenizer.
    known = [index for index in eos_ids if 0 <= index < MOST_IDS and backend.id_to_token(index) is not None]
    with backend_errors(name, "a token that its configuration names cannot be looked up"):
        return Tokenizer(name, backend, find_roles(backend.token_to_id, specials, declared, known))


def _require_causal(name: str, model: Any) -> None:
    """Refuse tokens that say where words begin or end, which no causal language model has, and random merges."""
    kind, options = type(model).__name__, ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
    found = [option for option in options if getattr(model, option, None)]
    if kind == "WordPiece" or found:
        raise TokenizerError(
            f"{name}: expected BPE without marks for parts of words and without dropout, Unigram or WordLevel, got "
            f"{' with '.join([kind, *found])}. Use the tokenizer of a causal language model"
        )


def _ids(value: Any) -> tuple[int, ...]:
    """The ids in a configuration's value: one, several, or none."""
    several = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return tuple(item for item in several if type(item) is int)


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    _require_downloaded(path)
    with backend_errors(str(path), "not a tokenizer.json that the tokenizers library reads", _SAVED):
        return tokenizers.Tokenizer.from_file(str(path))


def require_plain(path: Path) -> None:
    """Raise a TokenizerError for a pipe, a socket or a device, which a loader would wait for."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise TokenizerError(
            f"{path}: expected a file, got a pipe, a socket or a device. Replace it by the file itself"
        )


def _require_downloaded(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise TokenizerError(
                f"{path}: this is a pointer of Git LFS, expected the file itself. Download it: git lfs pull"
            )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with backend_errors(str(path), "not readable as JSON", "Download the tokenizer's files again"):
        value = json.loads(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else {}
