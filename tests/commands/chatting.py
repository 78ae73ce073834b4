"""The demo model with a chat template, on disk."""

import json
import shutil
from pathlib import Path

from spectool.runtime.demo_models import demo_path

# One text of all messages, so that the model goes on with the last one as it would without a template.
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}{{ ' ' }}{% endif %}{% endfor %}"


def chat_model(folder: Path, template: str = TEMPLATE) -> str:
    """Copy the demo target to ``folder`` and give it a chat template; return its path."""
    path = folder / "chatting"
    shutil.copytree(demo_path("target"), path)
    config = path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
    return str(path)
