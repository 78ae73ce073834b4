"""The packs that come with spectool, one for each language."""

from importlib.resources import files
from pathlib import Path


def bundled_packs() -> dict[str, Path]:
    """The bundled packs, by the codes of their languages."""
    folder = Path(str(files("spectool.build.packs"))) / "bundled"
    return {path.stem: path for path in sorted(folder.glob("*.pack"))}
