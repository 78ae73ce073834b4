"""The HTTP side of the server: what comes in is checked, what goes out is clean JSON.

mlx-lm's handler does the protocol: it reads the body, writes answers and streams. Requests reach
it only after they have been checked here, and nothing that it fails at ends in a half answer.
"""

import io
import json
import logging
import select
import socket
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from spectool import SpectoolError, __version__
from spectool.runtime.decoding.drafter import Drafter
from spectool.serve.metrics import Metrics
from spectool.serve.mlx_lm_server import APIHandler
from spectool.serve.model import DraftingProvider
from spectool.serve.options import ServerOptions
from spectool.serve.requests import RequestRefused, parse_body, parse_length, require_model
from spectool.serve.server import ClientGone, DraftingGenerator, ServedRequest, Unanswered

_MODELS = "/v1/models"
_GET = ("/", "/health", "/metrics", _MODELS)
_POST = {"/v1/chat/completions": "messages", "/chat/completions": "messages", "/v1/completions": "prompt"}
_DRAIN_BYTES = 64 << 20  # of a refused body, read so that the client gets to see the refusal
_DRAIN_SECONDS = 2.0


class Handler(APIHandler):  # type: ignore[misc]  # mlx-lm has no types
    """Answers one connection."""

    server: "Server"
    timeout = 60  # seconds that a client may take to send or to read
    server_version = f"spectool/{__version__}"
    sys_version = ""
    protocol_version = "HTTP/1.0"  # one request a connection

    path = ""
    headers: Any = None
    stream = False
    _status = 0
    _sent = False  # whether the headers are on their way
    _unread = 0  # bytes of the body
    _served: ServedRequest | None = None

    def handle(self) -> None:
        """Answer, and count it; a client that goes away is no error."""
        try:
            super().handle()
        except OSError as error:
            logging.info("%s: the client has gone (%s)", self.address_string(), error)
        finally:
            if self._status:
                path = urlsplit(self.path).path
                known = path if path in _POST or path in _GET else "other"
                self.server.metrics.add("requests_total", path=known, status=str(self._status))

    def do_GET(self) -> None:
        """Answer ``/``, ``/health``, ``/metrics`` and ``/v1/models``."""
        path = urlsplit(self.path).path
        generator = self.response_generator
        try:
            if path == "/health":
                healthy = generator.is_healthy
                self._answer(200 if healthy else 503, json.dumps({"status": "ok" if healthy else "unavailable"}))
            elif path == "/metrics":
                self._answer(200, self.server.metrics.exposition(generator.gauges()), "text/plain; version=0.0.4")
            elif path == "/":
                page = self.server.metrics.page(generator.gauges(), ", ".join(generator.cli_args.models))
                self._answer(200, page, "text/html; charset=utf-8")
            elif path == _MODELS or path.startswith(_MODELS + "/"):
                self._answer_models(unquote(path.removeprefix(_MODELS).removeprefix("/")))
            else:
                self._refuse_path(path, "POST" if path in _POST else None)
        except RequestRefused as refusal:
            self._refuse(refusal)

    do_HEAD = do_GET  # `_answer` leaves the content out

    def do_POST(self) -> None:
        """Check a completion request, and hand it to mlx-lm's handler."""
        path = urlsplit(self.path).path
        options = self.response_generator.cli_args
        try:
            length = self.headers.get("Content-Length")
            if length is not None and length.isascii() and length.isdecimal():
                self._unread = min(int(length[:18]), _DRAIN_BYTES)
            origin = self.headers.get("Origin")
            if origin is not None and not {"*", origin} & set(options.allowed_origins):
                raise RequestRefused(403, f"Origin: {origin} may not ask. The server's --allowed-origin lets it")
            if path not in _POST:
                self._refuse_path(path, "GET" if path in _GET else None)
            size = parse_length(length, self.headers.get("Transfer-Encoding"), options.max_body)
            body = parse_body(self._read(size), options.models, _POST[path])
        except RequestRefused as refusal:
            self._refuse(refusal)
            self._drain()
            return
        checked = json.dumps(body).encode()
        self.path, self.rfile = path, io.BytesIO(checked)
        self.headers.replace_header("Content-Length", str(len(checked)))
        super().do_POST()

    def handle_completion(self, request: Any, stop_words: list[str]) -> None:
        """Generate and answer; whatever fails, the client gets to know."""
        self._served = ServedRequest(**vars(request), gone=self._gone)
        try:
            super().handle_completion(self._served, stop_words)
        except Unanswered as unanswered:
            if not isinstance(unanswered.error, ClientGone):
                self._fail(unanswered.error)
        except OSError:
            raise  # of the connection: nobody is there to be told
        except Exception as error:
            self._fail(error)

    def generate_response(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return mlx-lm's answer, with what drafting did in its usage, and no text as an empty one."""
        response = super().generate_response(*args, **kwargs)
        message = response["choices"][0].get("message", {})
        if "content" in message and "tool_calls" not in message:
            message["content"] = message["content"] or ""  # null in mlx-lm
        return self._with_drafting(response)

    def completion_usage_response(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return mlx-lm's last chunk of a stream, with what drafting did, named as the chunks before it."""
        response = super().completion_usage_response(*args, **kwargs)
        return self._with_drafting({**response, "object": self.object_type})

    def send_response(self, code: int, message: str | None = None) -> None:
        """Begin an answer."""
        self._status = code
        super().send_response(code, message)

    def end_headers(self) -> None:
        """Send the headers."""
        self._sent = True
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no HTTP request, or one with another method, in JSON as everything else."""
        self.request_version = self.protocol_version  # where none was understood, answers would have no headers
        self._refuse(RequestRefused(int(code), message or "not a request that this server understands"))

    def log_message(self, format: str, *args: Any) -> None:
        """Log as all of the server does."""
        logging.info("%s " + format, self.address_string(), *args)

    def _with_drafting(self, response: dict[str, Any]) -> dict[str, Any]:
        if self._served is not None and "usage" in response:
            drafting = self._served.drafting
            response["usage"]["completion_tokens_details"] = {
                "accepted_prediction_tokens": drafting.accepted,
                "rejected_prediction_tokens": drafting.proposed - drafting.accepted,
                "target_passes": drafting.passes,
            }
        return response

    def _answer_models(self, wanted: str) -> None:
        """Answer with the models that requests may name, or with the one that is wanted."""
        names = self.response_generator.cli_args.models
        models = [{"id": name, "object": "model", "created": self.created, "owned_by": "local"} for name in names]
        if wanted:
            require_model(wanted, names)
            self._answer(200, json.dumps(models[names.index(wanted)]))
        else:
            self._answer(200, json.dumps({"object": "list", "data": models}))

    def _read(self, size: int) -> bytes:
        try:
            raw = self.rfile.read(size)
        except TimeoutError as error:
            raise RequestRefused(408, f"body: expected {size} bytes within {self.timeout} seconds") from error
        self._unread = 0
        if len(raw) < size:
            raise RequestRefused(400, f"body: expected {size} bytes as Content-Length says, got {len(raw)}")
        return raw

    def _refuse_path(self, path: str, method: str | None) -> None:
        if method is not None:
            raise RequestRefused(405, f"{path}: expected {method}, got {self.command}")
        raise RequestRefused(404, f"{path}: no such address. Expected one of {', '.join([*_POST, *_GET])}")

    def _refuse(self, refusal: RequestRefused) -> None:
        self._answer(refusal.status, json.dumps(refusal.body))

    def _fail(self, error: Exception) -> None:
        """Answer with an error, whatever has been sent before."""
        refusal = error
        if not isinstance(refusal, RequestRefused):
            logging.error("a request failed", exc_info=error)
            refusal = RequestRefused(500 if self.response_generator.is_healthy else 503, f"the request failed: {error}")
        if not self._sent:
            self._headers_buffer: list[bytes] = []  # of the answer that mlx-lm had begun
            self._refuse(refusal)
        elif self.stream:
            self.wfile.write(f"data: {json.dumps(refusal.body)}\n\n".encode())

    def _answer(self, status: int, content: str, kind: str = "application/json") -> None:
        data = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if self.headers is not None:
            self._set_cors_headers()
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _drain(self) -> None:
        """Read what the client still sends: to close at once would take the answer away from it."""
        until = time.monotonic() + _DRAIN_SECONDS
        self.connection.settimeout(_DRAIN_SECONDS)
        try:
            while self._unread > 0 and time.monotonic() < until:
                got = len(self.rfile.read1(1 << 16))
                if not got:
                    return
                self._unread -= got
        except TimeoutError:
            return

    def _gone(self) -> bool:
        """Whether the client has closed the connection; asked from the generation thread."""
        try:
            poll = select.poll()
            poll.register(self.connection, select.POLLIN)
            return bool(poll.poll(0)) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True


class Server(ThreadingHTTPServer):
    """Listens, once its model is loaded.

    Attributes:
        metrics: What it has done so far.
        generator: Where the tokens come from.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, host_name: str, port: int, options: ServerOptions, make_drafter: Callable[[str, Any], Drafter | None]
    ) -> None:
        """Take the address and begin to load the model.

        Args:
            host_name: Name or address to listen on.
            port: Port; 0 for any that is free.
            options: Everything else.
            make_drafter: Gets a model's name and its tokenizer, each time that a model is loaded.

        Raises:
            SpectoolError: The address cannot be had.
        """
        self.metrics = Metrics()
        try:
            found = socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family, _, _, _, address = found[0]
            super().__init__((str(address[0]), int(address[1])), Handler, bind_and_activate=False)
            self.server_bind()
        except (OSError, OverflowError) as error:
            raise SpectoolError(
                f"{host_name}:{port}: cannot listen there ({error}). Choose another --host or --port"
            ) from error
        self.generator = DraftingGenerator(DraftingProvider(options, make_drafter), self.metrics)

    @property
    def url(self) -> str:
        """Address of the server."""
        name, port = self.server_address[:2]
        return f"http://[{name!s}]:{port}" if ":" in str(name) else f"http://{name!s}:{port}"

    def wait_until_loaded(self) -> None:
        """Wait for the model; then listen.

        Raises:
            SpectoolError: It cannot be loaded, or its drafter cannot.
        """
        self.generator.loaded.result()
        self.server_activate()

    def stop(self) -> bool:
        """End everything, also in the middle of a generation; return whether that took seconds at most."""
        self.server_close()
        return self.generator.stop()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        Handler(self.generator, request, client_address, self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what an answer failed at."""
        logging.exception("an answer to %s failed", client_address)
