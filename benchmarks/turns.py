"""Seconds to the first token of two conversations that take turns, and grow with each.

    python benchmarks/turns.py --model demo --tokens 60000
    python benchmarks/turns.py --model qwen2.5-coder-0.5b --tokens 6000 --before FOLDER

A turn adds Polish text, from the folder named by SPECTOOL_SHARED, and asks for eight tokens. What was said before is in
the prompt cache of a server that keeps two conversations apart. Our server drafts with the history, and with
``--draft-model`` also with a model; ``--before`` is a folder with another version, in ``FOLDER/spectool``. All servers
run, and one of them is asked at a time. Prints a line of JSON for each server and conversation.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import click
from real_models import SHARED, real_model
from server_speed import Running, ask, serving

from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer

ANSWER = 8  # tokens


@click.command()
@click.option("--model", required=True, help="Name of a real model, `demo`, or a directory.")
@click.option("--draft-model", help="Directory of a draft model, for our servers.")
@click.option("--tokens", default=60_000, show_default=True, help="Of a conversation in the end.")
@click.option("--turns", default=10, show_default=True)
@click.option("--before", type=Path, help="Folder with another version of ours.")
def main(model: str, draft_model: str | None, tokens: int, turns: int, before: Path | None) -> None:
    """Hold the conversations with every server."""
    path = str(demo_path("target")) if model == "demo" else real_model(model)
    tokenizer, said, count = open_tokenizer(path), list[str](), tokens // turns
    text = ""
    for document in open_corpus(str(SHARED / "corpora" / "pl.valid.txt.zst")):
        text += f"{document}\n"
        if len(text) > 4 * count and len(ids := tokenizer.encode(text)) >= count:
            said.append(b"".join(tokenizer.token_bytes[token] for token in ids[:count]).decode(errors="ignore"))
            text = ""
        if len(said) == 2 * turns:
            break
    options = ["--model", path, "--max-prompt-tokens", str(2 * tokens)]
    options += ["--draft-model", draft_model] if draft_model else []
    with ExitStack() as stack:
        servers = {"ours": stack.enter_context(serving("spectool.cli", "serve", *options))}
        if before is not None:
            with patch.dict(os.environ, PYTHONPATH=str(before)):
                servers["before"] = stack.enter_context(serving("spectool.cli", "serve", *options))
        servers["mlx_lm"] = stack.enter_context(serving("mlx_lm", "server", "--model", path))
        seconds = {(name, which): list[float]() for name in servers for which in range(2)}
        held = dict.fromkeys(seconds, "")
        for turn in range(turns):
            for which in range(2):
                for name, server in servers.items():
                    held[name, which] += said[2 * turn + which]
                    seconds[name, which].append(_first(server, held, (name, which)))
        for (name, which), each in seconds.items():
            print(json.dumps({"model": model, "server": name, "conversation": which, "tokens": tokens, "first": each}))


def _first(server: Running, held: dict[tuple[str, int], str], which: tuple[str, int]) -> float:
    """Seconds to the first token of an answer, which is added to the conversation."""
    _, seconds, answer = ask(server.url, held[which], ANSWER, 0.0)
    held[which] += answer
    return round(seconds, 3)


if __name__ == "__main__":
    main()
