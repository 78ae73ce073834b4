"""Where the bundled demo models lie: a tiny target, a tinier draft, and another tokenizer."""

from pathlib import Path
from typing import Literal


def demo_path(part: Literal["target", "draft", "other"]) -> Path:
    """The directory of a bundled model (``target``, ``draft``) or tokenizer (``other``)."""
    return Path(__file__).parent / "demo" / part
