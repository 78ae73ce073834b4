"""Names that may be a directory or a hub id: whether there is such a model, and how errors begin."""

import json
from pathlib import Path

from spectool import TokenizerError

_HUB_SECONDS = 10.0  # to wait for an answer


def looks_like_hub_id(name: str) -> bool:
    """Whether a name that is no local path could be ``owner/name`` on a hub."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))


def require_on_hub(name: str) -> None:
    """Raise a TokenizerError unless a model is in the local cache or on the hub.

    This takes one request, where loaders would ask for one file after the other.
    """
    from huggingface_hub import HfApi

    if cached_snapshot(name, "config.json", "tokenizer.json") is not None:
        return
    try:
        HfApi().model_info(name, timeout=_HUB_SECONDS)
    except Exception as error:
        raise TokenizerError(
            f"{where(name)}not found ({reason_of(error)}). Check the spelling of the path. If the hub cannot be "
            "reached, download it first and give its directory"
        ) from error


def where(name: str) -> str:
    """The beginning of an error about a directory or hub id; a mistyped path with one slash looks like the latter."""
    return f"{name}: " if Path(name).is_dir() else f"{name}: no such directory; as a hub id, "


def reason_of(error: Exception) -> str:
    """What another library says is wrong, on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def cached_snapshot(name: str, *files: str) -> Path | None:
    """The folder of a hub id in the local cache, if it has one of ``files``; of weights, all their parts.

    Nothing is asked of the hub, which may not be there and would be waited for.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
        index = folder / "model.safetensors.index.json"
        parts = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else set()
    except Exception:  # whatever it is, the hub is asked then
        return None
    whole = all((folder / part).exists() for part in parts) or not any("*.safetensors" in file for file in files)
    return folder if whole and any(any(folder.glob(file)) for file in files) else None
