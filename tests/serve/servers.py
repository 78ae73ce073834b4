"""A server of the demo model on loopback that counts what it does, the official client, and bytes sent by hand."""

import json
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import urlsplit

from spectool.runtime.decoding.text import Text
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import Drafter
from spectool.runtime.loading import load_drafter
from spectool.serve.engine import Engine
from spectool.serve.options import ServerOptions
from spectool.serve.server import Server

if TYPE_CHECKING:
    from openai import OpenAI

TARGET = str(demo_path("target"))


def with_history(tokenizer: Any) -> Drafter | None:
    return load_drafter(tokenizer, min_probability=0.0)


def without_drafter(tokenizer: Any) -> Drafter | None:
    return None


class CountingEngine(Engine):
    """An engine that adds up what its answers took, before their clients are told that they have ended."""

    def __init__(self, *arguments: Any) -> None:
        self.counts = Counter[str]()
        super().__init__(*arguments)

    def _end(self, target: Text, error: Exception | None = None, *, broken: bool = False) -> None:
        if answer := self._writing.get(target):
            statistics = target.statistics
            self.counts.update(
                disconnected=int(answer.cancelled),
                prompt_tokens=len(answer.prompt.tokens),
                cached_prompt_tokens=answer.cached,
                generated_tokens=len(answer.tokens),
                target_passes=statistics.passes,
                accepted_predictions=statistics.accepted_by["prediction"],
                failures=len(statistics.failures),
            )
        super()._end(target, error, broken=broken)


@contextmanager
def serving(make_drafter: Callable[[Any], Drafter | None] = with_history, **options: Any) -> Iterator[Server]:
    """Serve the demo target on a free port until the block ends."""
    asked = ServerOptions(**{"model": TARGET, "num_draft_tokens": 8, **options})
    with patch("spectool.serve.server.Engine", CountingEngine):
        server = Server("127.0.0.1", 0, asked, make_drafter)
    thread = Thread(target=server.answer)
    try:
        server.wait_until_loaded()
        thread.start()
        yield server
    finally:
        if thread.is_alive():
            server.handle_exit(signal.SIGTERM, None)
            thread.join()
        assert server.stop()


def client(server: Server, key: str = "none") -> "OpenAI":
    from openai import OpenAI  # not above: it takes a second, in every process that collects tests

    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=60)


def connect(server: Server) -> socket.socket:
    return connect_to(server.url)


def connect_to(url: str, timeout: float = 30) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((str(address.hostname), address.port or 0), timeout)


def exchange(server: Server, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send ``data`` as it is; return status, headers and body of the answer."""
    with connect(server) as connection:
        connection.sendall(data)
        with connection.makefile("rb") as answer:
            first = answer.readline().decode()
            lines = iter(lambda: answer.readline().decode().strip(), "")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            # A connection that is kept does not end with its answer.
            kept = headers.get("connection") != "close"
            body = answer.read(int(headers["content-length"]) if kept and "content-length" in headers else -1)
    return int(first.split()[1]), headers, body


def post(path: str, body: Any, **headers: str) -> bytes:
    """Return a POST request, ``body`` as JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(data))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + data


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
