"""The command ``serve``."""

import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from spectool.artifacts.options import options_of
from spectool.commands.console import guarded, say
from spectool.commands.load_model import check_drafting, make_drafter
from spectool.commands.model_options import DraftingChoice, drafting_options, model_option, template_variables_option
from spectool.commands.options import SectionedCommand, section, under
from spectool.serve.options import ServerOptions
from spectool.serve.requests import AUTOMATIC, MAX_DRAFT_TOKENS
from spectool.tokenization.opening import looks_like_hub_id

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_address = under("Who may ask, and how much")
_logging = under("Log")


@click.command("serve", cls=SectionedCommand)
@model_option(**section("Model"))
@drafting_options
@_address("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@_address(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 for any that is free."
)
@options_of(ServerOptions)
@template_variables_option(**section("Defaults of requests that do not say"))
@under("Cache")("--kv-bits", type=click.Choice(["2", "3", "4", "6", "8"]), help="Quantise caches from 5,000 tokens on.")
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
    drafting: DraftingChoice,
    host: str,
    port: int,
    kv_bits: str | None,
    template_variables: dict[str, Any],
    log_level: str,
    json_logs: bool,
    **options: Any,
) -> None:
    """Serve a model to OpenAI clients: mlx-lm's server with drafters, which makes it faster.

    Chat and text completions, streamed or not; what was drafted and accepted stands in each answer's usage and on
    /metrics. Requests are answered one at a time, in the order in which they come. Only the model that is named here is
    loaded, and no code of a model is executed. The server listens on this machine alone unless --host says otherwise.

    \b
    Example:
        spectool serve --model ./Bielik-11B --dict pl.dict --port 8080
    """
    num_draft_tokens = drafting.num_draft_tokens
    if num_draft_tokens is not None and num_draft_tokens > MAX_DRAFT_TOKENS:
        raise click.UsageError(f"--num-draft-tokens: expected auto or 0 to {MAX_DRAFT_TOKENS}, got {num_draft_tokens}")
    check_drafting(drafting)
    started = ServerOptions(
        verify=drafting.verify,
        num_draft_tokens=AUTOMATIC if num_draft_tokens is None else num_draft_tokens,
        kv_bits=int(kv_bits) if kv_bits else None,
        chat_template_args=template_variables,
        **options,
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
        return make_drafter(drafting if name == started.model else others, tokenizer)

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
