"""Models that we trained or tuned: mlx-lm's files, and ``training.json`` with sizes and hashes of all others.

In ``training.json``, ``files`` is name -> ``{"bytes", "sha256"}``; `docs/formats.md` says the rest.
"""

from pathlib import Path

from spectool import ArtifactError
from spectool.artifacts.manifest import Manifest, check_names, check_size, read_bounded_json, verify_files

FORMAT = "spectool-draft"
RECORD = "training.json"


def verify_draft(path: Path) -> int:
    """Compare every file of a model with its record; return the bytes of all.

    Raises:
        ArtifactError: A file differs or is missing, or the record has no hashes.
    """
    try:
        files = {name: dict(entry) for name, entry in read_bounded_json(path / RECORD)["files"].items()}
        manifest = Manifest(FORMAT, 1, {}, {}, {}, {}, files=files)
        check_names(path / RECORD, files)
        for name, entry in manifest.files.items():
            check_size(path, name, entry)
        verify_files(path, manifest, RECORD)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{path / RECORD}: has no sizes and hashes of the model's files, as an earlier spectool wrote none, or is "
            f"damaged ({error!r}). Train the model again, or load it with mlx-lm, which checks its weights"
        ) from error
    return manifest.total_bytes
