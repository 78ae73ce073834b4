"""Names that may be a directory or a hub id: whether there is such a model."""

import json
from pathlib import Path

from spectool.tokenization.backend import backend_errors

_HUB_SECONDS = 10.0  # to wait for an answer
LEGAL = ("LICEN*", "NOTICE*", "USE_POLICY*")
"""Files that have to accompany a model's weights."""
_READ = ("*.json", "model*.safetensors", "*.py", "*.jinja", "*.model", "*.tiktoken", "*.txt", "*.jsonl")  # by mlx-lm


def looks_like_hub_id(name: str) -> bool:
    """Whether a name that is no local path could be ``owner/name`` on a hub."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))


def require_on_hub(name: str) -> None:
    """Raise a TokenizerError unless a model is on the hub; a mistyped path with one slash looks like a hub id.

    This takes one request, where loaders would ask for one file after the other.
    """
    from huggingface_hub import HfApi

    advice = "Check the spelling of the path. If the hub cannot be reached, download it first and give its directory"
    with backend_errors(name, "no such directory; as a hub id, not found", advice):
        HfApi().model_info(name, timeout=_HUB_SECONDS)


def fetch(name: str, weights: bool = True) -> Path:
    """Download what is missing of a model, or of all but its weights, in the local cache, and return its folder there.

    Raises:
        TokenizerError: It is not on the hub, or cannot be had from there; says why.
    """
    from huggingface_hub import snapshot_download

    require_on_hub(name)
    page = f"https://huggingface.co/{name}"
    advice = f"If it has terms to accept, do so at {page}, and log in: hf auth login. Otherwise, try again"
    unread = None if weights else "*.safetensors"
    with backend_errors(name, "cannot be downloaded", advice):
        return Path(snapshot_download(name, allow_patterns=[*_READ, *LEGAL], ignore_patterns=unread))


def cached_snapshot(name: str, *files: str) -> Path | None:
    """The folder of a hub id in the local cache, if it has one of ``files``; of weights, all their parts.

    Nothing is asked of the hub, which may not be there and would be waited for.
    """
    from huggingface_hub import snapshot_download

    try:
        # Without the pattern, files that nobody fetches, such as README.md, count as missing.
        folder = Path(snapshot_download(name, local_files_only=True, ignore_patterns="*"))
        index = folder / "model.safetensors.index.json"
        parts = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else set()
    except Exception:  # whatever it is, the hub is asked then
        return None
    whole = all((folder / part).exists() for part in parts) or not any("*.safetensors" in file for file in files)
    return folder if whole and any(any(folder.glob(file)) for file in files) else None
