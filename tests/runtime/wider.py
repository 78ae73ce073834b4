"""Copies of the demo target whose tokenizer has more tokens than the model has rows, or fewer."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spectool.runtime.demo_models import demo_path

ROWS = 1536
EXTRA = {"<extra>": ROWS}


def copied(folder: Path, added: Mapping[str, int] = EXTRA, *, kept: int = ROWS, template: str | None = None) -> str:
    """Copy the demo target to ``folder``, with tokens ``added`` and only the first ``kept`` ones; return its path."""
    path = folder / "copied"
    shutil.copytree(demo_path("target"), path)
    file, config = path / "tokenizer.json", path / "tokenizer_config.json"
    tokenizer: dict[str, Any] = json.loads(file.read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokenizer["added_tokens"] += [{"id": token, "content": text, **flags} for text, token in added.items()]
    model = tokenizer["model"]
    model["vocab"] = {text: token for text, token in model["vocab"].items() if token < kept}
    pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    model["merges"] = [pair for pair in pairs if {*pair, "".join(pair)} <= model["vocab"].keys()]
    file.write_text(json.dumps(tokenizer))
    if template is not None:
        config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
    return str(path)
