"""Who may ask, and how much: hosts, origins, keys and bodies. Every request is logged here."""

import hmac
import json
import logging
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spectool.serve.errors import RequestRefused, error_document, quoted, refusal_of
from spectool.serve.options import ServerOptions

IGNORED_HEADER = "x-spectool-ignored-fields"
_GONE = 499  # the status, in the log, of requests whose clients went away
_OPEN_PATHS = ("/", "/health")  # without a key
_MOST_OBJECTS = 100_000  # of JSON in a body, because each takes kilobytes once it is checked
_LONGEST_PATH = 200  # characters of it that are logged


class Gate:
    """ASGI middleware that lets requests through, or refuses them."""

    def __init__(self, app: ASGIApp, options: ServerOptions, host: str) -> None:
        self._app, self._options = app, options
        own = _address(host)
        self._only_loopback = own is not None and own.is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path, began, status = scope["path"], time.monotonic(), 0  # not that of the URL, which Host has a part in

        async def sending(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        request = Request(scope)
        try:
            self._check(request)
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            status = _GONE
        except Exception as error:
            refusal = refusal_of(error)
            if not status:  # otherwise the connection ends in the middle of the answer
                await JSONResponse(error_document(path, refusal), refusal.status)(scope, receive, sending)
        finally:
            client = scope["client"][0] if scope.get("client") else "somebody"
            seconds = time.monotonic() - began
            logging.info("%s: %s %r: %s in %.2f s", client, scope["method"], path[:_LONGEST_PATH], status, seconds)

    def _check(self, request: Request) -> None:
        """Let a request through, and note whose it is."""
        headers, options = request.headers, self._options
        host, origin = headers.get("host", ""), headers.get("origin")
        name = ""  # without a port
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
        address = _address(name)
        if self._only_loopback and not (address and address.is_loopback):
            # A page can make its own name mean this machine, and would pass for one of ours.
            problem = f"expected localhost or 127.0.0.1, got {headers.get('host')!r}. Start the server with --host"
            raise RequestRefused(403, f"Host: {problem} 0.0.0.0 and an --api-key to be reached by other names")
        # A page that this server has sent. Anybody's page can make its own name mean this machine, but has no key.
        machine = gethostname().lower().removesuffix(".local")
        is_own = address is not None or name.removesuffix(".local") == machine
        sent_here = origin in (f"http://{host}", f"https://{host}") and (options.api_keys or is_own)
        if origin is not None and not sent_here and not {"*", origin} & set(options.allowed_origins):
            problem = f"Origin: {origin!r} is not allowed. Start the server with --allowed-origin to allow it"
            raise RequestRefused(403, problem)
        request.scope["spectool.client"] = client = self._client(headers.get("authorization"), headers.get("x-api-key"))
        if client is None and request.scope["path"] not in _OPEN_PATHS and request.method != "OPTIONS":
            problem = "expected one of the server's keys as Authorization: Bearer or x-api-key, got none of them"
            raise RequestRefused(401, problem)

    def _client(self, authorization: str | None, key: str | None) -> str | None:
        """A name for the client whose key this is, None for a wrong key, and nobody's name where there are none."""
        if not self._options.api_keys:
            return ""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip(" ") if scheme.lower() == "bearer" else ""  # the bytes of some letters are spaces there
        # Starlette decodes headers as Latin-1, and clients write UTF-8.
        presented = [each.encode("latin-1") for each in (token, key or "")]
        for number, known in enumerate(self._options.api_keys):
            if any(hmac.compare_digest(known.encode(), each) for each in presented):
                return f"key {number}"
        return None


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request."""
    body, got = bytearray(), 0
    async for part in request.stream():  # up to its end, because a client may not listen before
        got += len(part)
        body += part if got <= most else b""
    if got > most:
        problem = f"expected at most {most:,} bytes, got {got:,}. The server's --max-body sets the limit"
        raise RequestRefused(413, f"body: {problem}")
    return bytes(body)


def parse_json(raw: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        RequestRefused: It is something else, has numbers or characters that JSON in UTF-8 cannot have, is deeper
            than 200 levels, or has too many objects.
    """
    try:
        body = from_json(raw, allow_inf_nan=False)
        json.dumps(body, allow_nan=False)  # fails where a number is too large
    except ValueError as error:
        raise RequestRefused(400, f"body: expected JSON in UTF-8, got something else ({error})") from error
    if not isinstance(body, dict):
        raise RequestRefused(400, f"body: expected a JSON object, got {quoted(body)}")
    if (got := raw.count(b"{")) > _MOST_OBJECTS:  # also those in texts
        raise RequestRefused(400, f"body: expected at most {_MOST_OBJECTS:,} objects of JSON, got {got:,} of {{")
    return body


def _address(name: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address("127.0.0.1" if name == "localhost" else name)
    return None
