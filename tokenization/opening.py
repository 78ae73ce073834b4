"""Opening a tokenizer: a hub id, a directory, a ``tokenizer.json``, or one already loaded.

Directories and hub ids go through transformers, as mlx-lm's own loading does. transformers rebuilds some tokenizers
from their class name. Where such a one encodes differently from ``tokenizer.json``, the ids that mlx-lm will use win,
and a note says so.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import ne
from pathlib import Path
from typing import Any

import tokenizers

from spectool import TokenizerError
from spectool.tokenization.backend import around_model, part_of, sections
from spectool.tokenization.fingerprint import PROBES, file_digest, probed
from spectool.tokenization.roles import content_of, find_roles
from spectool.tokenization.tokenizer import Tokenizer

_OTHERS = ("tokenizer.model", "*.model", "tekken.json", "*.tiktoken", "vocab.json", "vocab.txt")  # vocabularies
_FORMATS = {  # by their first bytes
    rb"GGUF": "a GGUF model",
    rb"\s*\{.*default_num_special_tokens": "a tekken vocabulary (mistral-common)",
    rb"[A-Za-z0-9+/]+=* \d+\r?\n": "a tiktoken vocabulary",
    rb"\n.*<unk>": "a SentencePiece model",
}
_HUB_SECONDS = 10.0  # to wait for an answer

# What transformers loads as the file says, whatever the model.
_AS_THE_FILE = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Keys of tokenizer_config.json: special tokens, which it adds where they are missing, and what changes no ids.
_NAMED = frozenset(f"{role}_token" for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask"))
_ADDING_NOTHING = frozenset(("tokenizer_class", "clean_up_tokenization_spaces", "model_max_length", "chat_template"))
_NOT_COMPARED = "ids, roles and limits are those of tokenizer.json; mlx-lm lets transformers change them. To compare"
_ADDING = ("config.json", "special_tokens_map.json", "added_tokens.json")  # files that may change more


def open_tokenizer(source: Any, recorded: Mapping[str, Any] | None = None) -> Tokenizer:
    """Open a tokenizer from any of its forms.

    Args:
        source: A directory with ``tokenizer.json``, such a file, a hub id (``owner/name``), a
            `tokenizers.Tokenizer`, a transformers fast tokenizer, or mlx-lm's ``TokenizerWrapper``.
        recorded: What an artifact's manifest says of its tokenizer: a directory whose file alone is that one is not
            loaded with transformers, which takes seconds.

    Raises:
        TokenizerError: Nothing usable is there; the message says what was looked for.
    """
    if isinstance(source, Tokenizer):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        try:
            is_file, is_directory = path.is_file(), path.is_dir()
        except OSError as error:
            raise TokenizerError(f"{source}: cannot be read ({error.strerror}). Check name and permissions") from error
        if is_file:
            return _plain(path, path)[0]
        if is_directory:
            return _from_directory(path, recorded or {})
        name = str(source)
        if not looks_like_hub_id(name):
            raise TokenizerError(
                f"{name}: no such file or directory, and not a hub id of the form owner/name. "
                "Give a directory with tokenizer.json, the file itself, or a hub id such as "
                "speakleash/Bielik-11B-v2.5-Instruct"
            )
        require_on_hub(name)
        return _of_loaded(name, _load_with_transformers(name), ())
    if isinstance(source, tokenizers.Tokenizer):
        return _assemble("(loaded tokenizer)", source, {}, ())
    inner = getattr(source, "_tokenizer", source)
    if isinstance(inner, tokenizers.Tokenizer):  # a transformers tokenizer keeps its backend there
        inner = source
    name = str(getattr(inner, "name_or_path", "") or "(loaded tokenizer)")
    return _of_loaded(name, inner, _ids(getattr(source, "eos_token_ids", None)))


def read_tokenizer(
    source: str, texts: Iterable[str], keep: Iterable[int] = (), recorded: Mapping[str, Any] | None = None
) -> Tokenizer | None:
    """Return what a ``tokenizer.json`` says, and no more of it than texts need.

    With 262k ids that takes a second less, and without transformers another one. Fingerprint, vocabulary and surfaces
    are not those of the whole (`part_of`).

    Args:
        source: A directory or a file.
        texts: All that will be encoded.
        keep: Ids whose surfaces are needed.
        recorded: What an artifact's manifest says of its tokenizer: its file, and what transformers changes in it.
            Without it the file counts alone, whatever transformers makes of it.

    Returns:
        The tokenizer; None where no such file is, or where it alone is not that tokenizer.

    Raises:
        TokenizerError: It cannot be read.
    """
    path = Path(source).expanduser()
    try:
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file() or (recorded is not None and recorded.get("file") != file_digest(file)):
            return None
    except OSError:  # `open_tokenizer` says which
        return None
    config, eos = _settings(path, file)
    changed = recorded.get("changed", {}) if recorded else {}
    backend = part_of(file, texts, {*keep, *eos, *map(content_of, map(config.get, _NAMED))}, changed)
    if backend is None and changed:
        return None
    backend = backend or _read_backend(file)
    told = recorded is not None or _says_all(path, file, config, backend)
    notes = () if told else (f"{_NOT_COMPARED}: spectool inspect {source} --as-loaded",)
    return _assemble(str(path), backend, config, eos, notes, file)


def open_named(named: str | None, recorded: Mapping[str, Any], whose: str) -> Tokenizer:
    """Open the tokenizer that the user names, or else the one that an artifact was made with.

    Args:
        named: What ``--tokenizer`` says.
        recorded: What the artifact's manifest says of its tokenizer.
        whose: Begins what the user is to give if that has moved, such as ``the dictionary's``.

    Raises:
        TokenizerError: It cannot be opened.
    """
    try:
        return open_tokenizer(named or recorded["name"], recorded)
    except TokenizerError as error:
        if named:
            raise
        raise TokenizerError(f"{error}. Give {whose} tokenizer with --tokenizer") from error


def _plain(path: Path, file: Path) -> tuple[Tokenizer, bool]:
    """Return what a ``tokenizer.json`` says, and whether nothing may change it."""
    config, eos = _settings(path, file)
    backend = _read_backend(file)
    return _assemble(str(path), backend, config, eos, file=file), _says_all(path, file, config, backend)


def _settings(path: Path, file: Path) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the ``tokenizer_config.json`` beside a file, and ids that end a text; a model's directory knows more."""
    names = ("generation_config.json",) if path == file else ("generation_config.json", "config.json")
    eos = tuple(index for name in names for index in _ids(_read_json(file.with_name(name)).get("eos_token_id")))
    return _read_json(file.with_name("tokenizer_config.json")), eos


def _from_directory(path: Path, recorded: Mapping[str, Any]) -> Tokenizer:
    file = path / "tokenizer.json"
    config, eos = _settings(path, file)
    if not file.is_file():
        others = [other for pattern in _OTHERS for other in sorted(path.glob(pattern))]
        if not others or not (config or (path / "config.json").is_file()):
            raise TokenizerError(
                f"{path}: no tokenizer.json in this directory, and no configured vocabulary that transformers "
                "converts. Save one with transformers: AutoTokenizer.from_pretrained(ID).save_pretrained(DIR)"
            )
        converted = _load_with_transformers(str(path))
        note = f"transformers converts {others[0].name}, {_format_of(others[0])}, as it does when mlx-lm loads it."
        tokenizer = _of_loaded(str(path), converted, eos, (note,))
        if not any(tokenizer.surfaces):
            raise TokenizerError(
                f"{others[0]}: transformers makes an empty {type(converted).__name__} of this file. Add the model's "
                "config.json and tokenizer_config.json beside it, or a tokenizer.json"
            )
        return tokenizer
    plain, alone = _plain(path, file)
    if alone or plain.source in recorded.get("sources", ()):
        return plain
    rebuilt = _load_with_transformers(str(path))
    notes = _compare(plain.backend, rebuilt)
    return _of_loaded(str(path), rebuilt, eos, notes)


def _says_all(path: Path, file: Path, config: Mapping[str, Any], backend: tokenizers.Tokenizer) -> bool:
    """Return whether transformers would take a directory's ``tokenizer.json`` as it is: importing it takes a second."""
    if path == file or not (config or (path / "config.json").is_file()):
        return True
    specials = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
    return (
        config.get("tokenizer_class") in _AS_THE_FILE
        and config.keys() <= _ADDING_NOTHING.union(_NAMED)
        and all(config[name] in specials for name in _NAMED & config.keys())
        and backend.padding is None
        and not any((path / name).exists() for name in _ADDING)
    )


def _of_loaded(name: str, loaded: Any, eos: tuple[int, ...], notes: tuple[str, ...] = ()) -> Tokenizer:
    """Take over what transformers loaded, and note which file that was."""
    kind = type(loaded).__name__
    rebuilt_as = "" if kind in _AS_THE_FILE else kind
    declared = {role: getattr(loaded, role, None) for role in _NAMED}
    return _assemble(name, _backend_of(loaded), declared, eos, notes, _file_of(name), rebuilt_as)


def _file_of(name: str) -> Path | None:
    """Return the ``tokenizer.json`` of a directory, or of a hub id in the local cache."""
    file = Path(name) / "tokenizer.json"
    if file.is_file():
        return file
    if Path(name).is_dir() or not looks_like_hub_id(name):
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "tokenizer.json")
    return Path(cached) if isinstance(cached, str) else None


def _backend_of(loaded: Any) -> tokenizers.Tokenizer:
    backend = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise TokenizerError(
            f"{type(loaded).__name__}: not backed by the `tokenizers` library. Expected a fast tokenizer "
            "(tokenizer.json), a directory, a hub id, or mlx-lm's TokenizerWrapper"
        )
    return backend


def _load_with_transformers(name: str) -> Any:
    # transformers announces a missing PyTorch on import; the tokenizers need none.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        helps = "If the hub cannot be reached, download it first and give its directory, or give a tokenizer.json file"
        if Path(name).is_dir():
            helps = "A vocabulary of another format may need: pip install 'spectool[formats]'. Or add a tokenizer.json"
        raise TokenizerError(f"{where(name)}transformers cannot load this tokenizer ({reason}). {helps}") from error


def looks_like_hub_id(name: str) -> bool:
    """Return whether a name that is no local path could be ``owner/name`` on a hub."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))


def require_on_hub(name: str) -> None:
    """Check by one request that a model is on the hub, or in the local cache; loaders ask for file after file.

    Raises:
        TokenizerError: It is in neither, or the hub cannot be reached.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    if any(isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", "tokenizer.json")):
        return
    try:
        HfApi().model_info(name, timeout=_HUB_SECONDS)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise TokenizerError(
            f"{where(name)}not found ({reason}). Check the spelling of the path. If the hub cannot be reached, "
            "download it first and give its directory"
        ) from error


def where(name: str) -> str:
    """Begin an error about a directory or hub id: a mistyped path with one slash looks like the latter."""
    return f"{name}: " if Path(name).is_dir() else f"{name}: no such directory; as a hub id, "


def _compare(plain: tokenizers.Tokenizer, rebuilt: Any) -> tuple[str, ...]:
    differing = sum(map(ne, probed(plain), probed(_backend_of(rebuilt))))
    if not differing:
        return ()
    return (
        f"transformers rebuilds this tokenizer as {type(rebuilt).__name__}: {differing} of {len(PROBES)} probe "
        "strings get other ids than from tokenizer.json. spectool uses the rebuilt "
        "one, since mlx-lm generates with it; to use tokenizer.json as it is, give the file instead of the directory.",
    )


def _assemble(
    name: str,
    backend: tokenizers.Tokenizer,
    declared: Mapping[str, Any],
    eos_ids: tuple[int, ...],
    notes: tuple[str, ...] = (),
    file: Path | None = None,
    rebuilt_as: str = "",
) -> Tokenizer:
    if backend.truncation is not None or backend.padding is not None:
        # Both would change the ids of a text; on a copy, since the caller's object may be in use.
        backend = around_model(backend, sections(backend)["added_tokens"])
    if dropout := getattr(backend.model, "dropout", None):
        raise TokenizerError(
            f"{name}: its BPE leaves out merges at random (dropout {dropout:g}), so that no two encodings need be the "
            'same. Set "dropout" to null in tokenizer.json'
        )
    added = backend.get_added_tokens_decoder().values()
    specials = [token.content for token in added if token.special]
    # Models may declare ids beyond the tokenizer.
    known = [index for index in eos_ids if index >= 0 and backend.id_to_token(index) is not None]
    roles = find_roles(backend.token_to_id, specials, declared, known)
    tokenizer = Tokenizer(name, backend, roles, notes, file, rebuilt_as)
    return replace(tokenizer, notes=(*notes, *_ordinary(tokenizer, declared)))


def _ordinary(tokenizer: Tokenizer, declared: Mapping[str, Any]) -> Iterator[str]:
    """Say which tokens have a role and are ordinary text all the same."""
    ids = {role: tokenizer.backend.token_to_id(content_of(declared.get(role)) or "") for role in sorted(_NAMED)}
    special = [token["id"] for token in tokenizer.spec["added_tokens"] if token["special"]]
    found = [*((index, role) for role, index in ids.items()), *((index, "eos_token") for index in tokenizer.roles.eos)]
    roles = dict[int, str]()
    for index, role in [*found, *((index, "special token") for index in special)]:
        if index is not None and tokenizer.is_ordinary(index):
            roles.setdefault(index, role)
    for index, role in roles.items():
        ends = " Generation still ends at it." if index in tokenizer.roles.eos else ""
        yield (
            f"{tokenizer.backend.id_to_token(index)!r} is its {role.replace('_', ' ')} and also ordinary text. It is "
            f"kept in texts, counted, and may be drafted.{ends}"
        )


def _ids(value: Any) -> tuple[int, ...]:
    """Token ids from one id, several, or neither; mlx-lm keeps a set, transformers a single number."""
    several = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return tuple(item for item in several if isinstance(item, int))


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain Exception for everything, and its panics are none
        found = _format_of(path)
        if found:
            raise TokenizerError(
                f"{path}: this is {found}, expected tokenizer.json. Give the model's directory, which transformers "
                "converts (pip install 'spectool[formats]'), or a tokenizer.json from AutoTokenizer.save_pretrained"
            ) from error
        raise TokenizerError(
            f"{path}: not a tokenizer.json that the tokenizers library reads ({str(error)[:200]}). "
            "Expected the file that AutoTokenizer.save_pretrained writes"
        ) from error


def _format_of(path: Path) -> str:
    """Name the format of a vocabulary that is no tokenizer.json; nothing for an unknown one."""
    with path.open("rb") as file:
        head = file.read(4000)
    return next((name for begins, name in _FORMATS.items() if re.match(begins, head, re.DOTALL)), "")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TokenizerError(f"{path}: not readable as JSON ({error}). Download the tokenizer's files again") from error
    return value if isinstance(value, dict) else {}
