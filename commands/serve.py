"""The command ``serve``."""

import logging
import os
import re
import signal
import sys
from functools import partial
from typing import Any

import click

from spectool import printable
from spectool.commands.shared.console import say
from spectool.commands.shared.model_options import (
    follow_rank_0,
    pop_settings,
    running_options,
    sampling_options,
    sources_of,
)
from spectool.commands.shared.options import Decorator, Whole, command, option, text_file_option, texts_option
from spectool.serve.options import ServerOptions

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LEVELS = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
_DEFAULTS = "Defaults for requests that leave them out"


def _count(name: str, *others: str, **about: Any) -> Decorator:
    """The option of a whole number of `ServerOptions`, with its default; ``about`` are arguments of `option`."""
    about |= {"type": Whole(1), "default": getattr(ServerOptions, name)}
    return option(f"--{name.replace('_', '-')}", *others, **about)


_access = partial(option, heading="Access")
_several = partial(texts_option, heading="Access")
_limit = partial(_count, heading="Limits")
_cache = partial(_count, heading="Cache")


def _origin(given: str) -> str:
    if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+", given):
        raise click.BadParameter(f"expected * or an address like http://localhost:3000, without a path, got {given!r}")
    return given


@command("serve", json=False)
@running_options
@text_file_option("--chat-template", help="Chat template in Jinja, instead of the model's own.", heading="Prompt")
@_access("--host", default="127.0.0.1", help="Address to listen on; by default reachable from this machine only.")
@_access("--port", type=Whole(0, 65535), default=8080, help="Port; 0 for any free one.")
@_several(
    "--api-key",
    "api_keys",
    envvar="SPECTOOL_API_KEY",
    metavar="KEY",
    help="Key that clients have to send; may be repeated. Or set SPECTOOL_API_KEY to keys separated by spaces.",
)
@_several("--served-model-name", "served_names", metavar="NAME", help="Name of M in requests; may be repeated.")
@_count("max_tokens", "-m", help="Most tokens of an answer; by default 512, in a chat what fits.", heading=_DEFAULTS)
@sampling_options(_DEFAULTS)
@_several("--allowed-origin", "allowed_origins", type=_origin, metavar="URL", help="Web site that may ask; * for all.")
@_limit("max_connections", help="Connections that may be open at once.")
@_limit("batch", help="Requests answered at once; by default what fits, up to 16. Always one with --kv-bits.")
@_limit("max_waiting", help="Requests that may wait for their turn.")
@_limit("max_body", help="Largest request.", metavar="BYTES")
@_limit("max_prompt_tokens", help="Longest prompt; by default the model's context, with room for an answer.")
@_cache("prefill_step_size", help="Number of prompt tokens in one pass.")
@_cache("prompt_cache_size", help="Number of texts whose caches are kept for the next turn.")
@_cache("prompt_cache_bytes", help="Size of them all; by default a quarter of what weights leave.", metavar="BYTES")
@option("--log-level", type=_LEVELS, default="INFO", help="What to log; DEBUG also logs texts.", heading="Log")
def serve(model: str, host: str, port: int, log_level: str, chat_template: str | None, **options: Any) -> None:
    """Serve a model to clients of OpenAI's and Anthropic's APIs, with drafts.

    Several requests are answered at the same time, each with drafts of its own. Each response reports draft tokens
    proposed and accepted.

    \b
    Example:
        spectool serve --model ./Bielik-11B --dict pl.dict --port 8080
    """
    if options["kv_bits"] is not None and (options["batch"] or 1) > 1:
        raise click.UsageError(f"--batch {options['batch']}: with --kv-bits, requests are answered one after the other")
    follow_rank_0(model, options["pipeline"], options["adapter_path"])
    sources = sources_of(options)  # which only rank 0 needs
    sampling = pop_settings(options)
    started = ServerOptions(model=model, chat_template=chat_template, sampling=sampling, **options)
    handler = logging.StreamHandler()
    handler.setFormatter(_LogLines("%(asctime)s - %(levelname)s - %(message)s"))
    logging.basicConfig(level=log_level, handlers=[handler], force=True)
    logging.captureWarnings(True)

    from spectool.runtime.loading import load_drafter
    from spectool.serve.models import advised_sampling
    from spectool.serve.server import Server

    server = Server(host, port, started, partial(load_drafter, **sources, say=say))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    try:
        server.wait_until_loaded()
        loaded = server.engine.model
        source = loaded.drafter.name if loaded.drafter and loaded.policy.longest else "nothing"
        say(f"Serving {' and '.join(started.names)} at {server.url}/v1, drafting from {source}. Press Ctrl-C to stop.")
        if not sampling["temp"] and (advised := advised_sampling(model)):
            say(f"It takes the most probable tokens where a request has no temperature. Its authors advise: {advised}")
        if host not in _LOOPBACK and not started.api_keys:
            say("Anyone who can reach this address can use the model. Set --api-key to require a key.")
        server.answer()
    except KeyboardInterrupt:  # which uvicorn raises after it has stopped
        say("Stopped.")
        stopped = server.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        # Python's own end would wait for a model that is still being loaded, and races with what MLX tidies up at the
        # end of a thread, which can abort the process. Nothing is being written.
        os._exit(0 if stopped else 130)
    finally:
        server.stop()


class _LogLines(logging.Formatter):
    """A line for each entry, in which nothing that a client sent can move the cursor or begin another line."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry, with control characters escaped; the further lines of a traceback are indented."""
        return printable(super().format(record), "\n").replace("\n", "\n    ")
