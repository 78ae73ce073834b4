"""The command ``serve``."""

import json
import logging
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from spectool.commands.console import guarded, say
from spectool.commands.load_model import check_drafting, make_drafter
from spectool.commands.model_options import DraftingChoice, drafting_options, model_option, template_variables_option
from spectool.commands.options import Finite, SectionedCommand, section, under
from spectool.serve.options import ServerOptions
from spectool.serve.requests import AUTOMATIC, MAX_DRAFT_TOKENS
from spectool.tokenization.opening import looks_like_hub_id

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_COUNT, _SHARE = click.IntRange(1), Finite(0, 1)
_model = under("Model")
_limits = under("Who may ask, and how much")
_defaults = under("Defaults of requests that do not say")
_cache = under("Cache")
_logging = under("Log")


@click.command("serve", cls=SectionedCommand)
@model_option(**section("Model"))
@drafting_options
@_limits("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@_limits("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 for any that is free.")
@_model(
    "--allow-model",
    "other_models",
    multiple=True,
    metavar="M3",
    help="Another model that requests may name, drafted for from the history alone. Can be repeated.",
)
@_limits(
    "--allowed-origin",
    "allowed_origins",
    multiple=True,
    metavar="URL",
    help="Web page that browsers may ask from, such as http://localhost:3000; `*` for all. Can be repeated.",
)
@_limits(
    "--max-body",
    type=_COUNT,
    default=16 << 20,
    show_default=True,
    metavar="BYTES",
    help="Refuse requests with larger bodies.",
)
@_limits(
    "--max-prompt-tokens",
    type=_COUNT,
    metavar="N",
    help="Refuse longer prompts; by default those longer than the model was made for.",
)
@_limits(
    "--max-waiting",
    type=_COUNT,
    default=64,
    show_default=True,
    help="Refuse requests while this many are waiting for their turn.",
)
@_defaults("--temp", type=Finite(0), default=0.0, show_default=True, help="Temperature.")
@_defaults("--top-p", type=_SHARE, default=1.0, show_default=True, help="Sample from tokens up to this mass.")
@_defaults(
    "--top-k", type=click.IntRange(0), default=0, show_default=True, help="Sample from this many tokens; 0 from all."
)
@_defaults("--min-p", type=_SHARE, default=0.0, show_default=True, help="Least share of the best token's probability.")
@_defaults("-m", "--max-tokens", type=_COUNT, default=512, show_default=True, help="Tokens of an answer.")
@_cache(
    "--prompt-cache-size",
    type=_COUNT,
    default=10,
    show_default=True,
    help="Texts whose caches are kept, so that the next turn of a conversation costs that turn only.",
)
@_cache("--prompt-cache-bytes", type=_COUNT, metavar="BYTES", help="Drop the oldest of them beyond this.")
@template_variables_option(**section("Defaults of requests that do not say"))
@_cache("--kv-bits", type=click.Choice(["2", "3", "4", "6", "8"]), help="Quantise caches from 5,000 tokens on.")
@_logging(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="How much to log on stderr; DEBUG logs prompts and answers.",
)
@_logging("--json-logs", is_flag=True, help="Log a JSON object a line.")
@guarded
def serve(
    model: str,
    drafting: DraftingChoice,
    host: str,
    port: int,
    other_models: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    max_body: int,
    max_prompt_tokens: int | None,
    max_waiting: int,
    temp: float,
    top_p: float,
    top_k: int,
    min_p: float,
    max_tokens: int,
    prompt_cache_size: int,
    prompt_cache_bytes: int | None,
    template_variables: dict[str, Any],
    kv_bits: str | None,
    log_level: str,
    json_logs: bool,
) -> None:
    """Serve a model to OpenAI clients: mlx-lm's server with drafters, which makes it faster.

    Chat and text completions, streamed or not; what was drafted and accepted stands in each answer's usage and on
    /metrics. Requests are answered one at a time, in the order in which they come. Only the model that is named here is
    loaded, and no code of a model is executed. The server listens on this machine alone unless --host says otherwise.

    \b
    Example:
        spectool serve --model ./Bielik-11B --dict pl.dict --port 8080
    """
    length = drafting.num_draft_tokens
    if length is not None and length > MAX_DRAFT_TOKENS:
        raise click.UsageError(f"--num-draft-tokens: expected auto or 0 to {MAX_DRAFT_TOKENS}, got {length}")
    check_drafting(drafting)
    started = ServerOptions(
        model=model,
        other_models=other_models,
        num_draft_tokens=AUTOMATIC if length is None else length,
        verify=drafting.verify,
        allowed_origins=allowed_origins,
        max_body=max_body,
        max_prompt_tokens=max_prompt_tokens,
        max_waiting=max_waiting,
        temp=temp,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        max_tokens=max_tokens,
        chat_template_args=template_variables,
        prompt_cache_size=prompt_cache_size,
        prompt_cache_bytes=prompt_cache_bytes,
        kv_bits=int(kv_bits) if kv_bits else None,
    )
    _check_names(started)
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if json_logs else logging.Formatter("%(asctime)s - %(levelname)s - %(message)s"))
    logging.basicConfig(level=log_level, handlers=[handler], force=True)
    logging.captureWarnings(True)

    from spectool.commands.blas import blas_hint
    from spectool.serve.handler import Server

    def drafter_of(name: str, tokenizer: Any) -> Any:
        # A dictionary and a draft are made for one tokenizer.
        others = DraftingChoice(history=drafting.history, min_draft_prob=drafting.min_draft_prob)
        chosen = drafting if name == started.model else others
        return make_drafter(chosen, tokenizer, partial(_tell, as_json=json_logs))

    server = Server(host, port, started, drafter_of)
    try:
        server.wait_until_loaded()
        drafter = server.generator.model_provider.drafter
        source = drafter.name if drafter else "nothing"
        _tell(f"{server.url}/v1 serves {started.model}, drafting from {source}. Ctrl-C ends it.", json_logs)
        if hint := blas_hint(server.generator.model_provider.model):
            _tell(hint, json_logs)
        if host not in _LOOPBACK:
            warning = "Whoever reaches this address can use the model: there is no access control and no encryption."
            _tell(warning, json_logs)
        server.serve_forever()
    except KeyboardInterrupt:
        _tell("Stopping.", json_logs)
        stopped = server.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        # Python's own end would wait for a model that is still being loaded, and races with what MLX tidies up at the
        # end of a thread, which can abort the process. Nothing is being written.
        os._exit(0 if stopped else 130)
    finally:
        server.stop()


def _check_names(options: ServerOptions) -> None:
    """Check what nothing else looks at before a request comes that needs it."""
    for name in options.other_models:
        if not Path(name).is_dir() and not looks_like_hub_id(name):
            raise click.UsageError(f"--allow-model: expected a directory or a hub id (owner/name), got {name!r}")
    for origin in options.allowed_origins:
        if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+", origin):
            raise click.UsageError(
                "--allowed-origin: expected an address as browsers send it, in small letters and without a path, "
                f"such as http://localhost:3000, or *, got {origin!r}"
            )


class _JsonLines(logging.Formatter):
    """One JSON object for each entry."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry as JSON; a traceback becomes part of the message."""
        return json.dumps(
            {"time": self.formatTime(record), "level": record.levelname, "message": super().format(record)},
            ensure_ascii=False,
        )


def _tell(message: str, as_json: bool) -> None:
    """Say something at any log level, in the form of the log."""
    record = logging.makeLogRecord({"levelname": "INFO", "msg": message})
    say(_JsonLines().format(record) if as_json else message)
