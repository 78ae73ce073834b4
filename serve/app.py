"""The addresses of the server. Nothing here touches MLX or blocks the event loop."""

import asyncio
import logging
import re
import sys
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Send

from spectool import RuntimeUnsupported
from spectool.serve.answers import Answer
from spectool.serve.deltas import Delta
from spectool.serve.engine import Engine
from spectool.serve.errors import RequestRefused, error_document, own_name, quoted, refusal_of, wrong_field
from spectool.serve.gate import IGNORED_HEADER, Gate, parse_json, read_body
from spectool.serve.grammars import wrong_grammar
from spectool.serve.options import DEFAULT_MODEL, ServerOptions
from spectool.serve.prompts import read_prompts
from spectool.serve.protocols.common import as_json, event_bytes
from spectool.serve.protocols.completions import ChatWriter, CompletionWriter
from spectool.serve.protocols.messages import MessageWriter
from spectool.serve.protocols.responses import ResponseWriter
from spectool.serve.requests import GenerationRequest

_QUIET_SECONDS = 15  # after which a stream without news gets an event, so that nobody takes it for dead
# A conversation with the model for people. What it writes is put into the page as text, and no other script may run.
_PAGE = files("spectool.serve").joinpath("page.html").read_text(encoding="utf-8")
_HASHES = (sha256(re.findall(f"<{tag}>(.*?)</{tag}>", _PAGE, re.DOTALL)[0].encode()) for tag in ("script", "style"))
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; script-src 'sha256-{}'; style-src 'sha256-{}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
).format(*(b64encode(each.digest()).decode() for each in _HASHES))
_THREADS = 4  # that tokenize and compile grammars, so that a long text does not keep short ones waiting
_LONGEST_HEADER = 4096  # characters; clients and proxies refuse answers with much more
_STREAM_HEADERS = {"cache-control": "no-cache", "content-type": "text/event-stream; charset=utf-8"}
_Result = TypeVar("_Result")
_Writer = CompletionWriter | ResponseWriter | MessageWriter
_Protocol = type[_Writer]  # reads requests, and makes a writer for one
_Pieces = AsyncGenerator[Delta | None]


class Service:
    """Answers the requests to one engine with ``app``, an ASGI application."""

    def __init__(self, engine: Engine, options: ServerOptions, host: str) -> None:
        self.engine, self._options = engine, options
        self._created = int(time.time())
        self._threads = ThreadPoolExecutor(_THREADS, "texts")
        api = [
            Route("/chat/completions", partial(self._answer, ChatWriter), methods=["POST"]),
            Route("/completions", partial(self._answer, CompletionWriter), methods=["POST"]),
            Route("/responses", partial(self._answer, ResponseWriter), methods=["POST"]),
            Route("/messages", partial(self._answer, MessageWriter), methods=["POST"]),
            Route("/messages/count_tokens", self._count, methods=["POST"]),
            Route("/models", self._models),
            Route("/models/{name:path}", self._models),
        ]
        page = HTMLResponse(_PAGE, headers={"content-security-policy": _POLICY})
        others = [Route("/health", self._health), Route("/", page, methods=["GET"])]
        paths = [f"/v1{route.path}" for route in api if "{" not in route.path]
        self._addresses = ", ".join((*paths, *(route.path for route in others)))
        cors = Middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,  # which Chrome asks for where a public site wants to reach this machine
            expose_headers=[IGNORED_HEADER],
        )
        gate = Middleware(Gate, options=options, host=host)
        self.app = Starlette(
            routes=[*others, *api, Mount("/v1", routes=api)],  # some clients leave it out
            middleware=[cors, gate] if options.allowed_origins else [gate],
            exception_handlers={HTTPException: self._no_route},
        )

    async def _answer(self, protocol: _Protocol, request: Request) -> ASGIApp:
        """What answers a request in the form of a protocol, once its fields are known to be right."""
        wanted = await self._read(protocol, request)
        answers, writer = list[Answer](), protocol(wanted)
        headers = partial(_ignored, wanted, writer.path)  # once everything is read
        pieces = self._pieces(request.scope["spectool.client"], wanted, answers)
        if not wanted.stream:
            whole = await _unless_gone(request.receive, _whole(pieces, answers, writer))
            return Response(whole, headers=headers(), media_type="application/json")
        parts = _streamed(pieces, answers, writer)
        return lambda _, receive, send: _unless_gone(receive, _send(parts, headers, send))

    async def _pieces(self, client: str, wanted: GenerationRequest, answers: list[Answer]) -> _Pieces:
        """What the ``answers`` to a request gain, or None: once they are there, and after a while without."""
        events = asyncio.Queue[Delta | Exception | None]()
        loop = asyncio.get_running_loop()

        def deliver(event: Delta | Exception | None) -> None:
            with suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(events.put_nowait, event)

        try:
            for prompt in await self._apart(read_prompts, wanted, self.engine.model, self._options):
                same = [Answer(wanted, prompt, client, deliver, len(answers) + i) for i in range(wanted.n)]
                same[0].copies = same[1:]
                answers += same
            self.engine.submit(answers[:: wanted.n])
            yield None
            left = len(answers)
            while left:
                try:
                    async with asyncio.timeout(_QUIET_SECONDS):
                        event = await events.get()
                except TimeoutError:
                    yield None
                    continue
                if isinstance(event, RuntimeUnsupported) and answers[0].prompt.grammar:
                    raise wrong_grammar(wanted, event)
                if isinstance(event, Exception):
                    raise event
                if event is None:
                    left -= 1
                else:
                    yield event
        finally:
            for answer in answers:
                answer.cancelled = True

    async def _read(self, protocol: _Protocol, request: Request) -> Any:
        """The request that was sent, once its fields are known to be right."""
        raw = await read_body(request, self._options.max_body)
        logging.debug("body: %r", raw)
        wanted: GenerationRequest = await self._apart(lambda: protocol.read(parse_json(raw)))
        wanted.model = self._known(wanted.model)
        return wanted

    def _apart(self, act: Callable[..., _Result], *given: Any) -> Awaitable[_Result]:
        """The result of what takes a thread's time."""
        return asyncio.get_running_loop().run_in_executor(self._threads, act, *given)

    async def _count(self, request: Request) -> Response:
        """The tokens of a prompt, which Claude Code asks for to know when a conversation becomes too long."""
        options = replace(self._options, max_prompt_tokens=sys.maxsize)  # also of one that is too long to be answered
        wanted = await self._read(MessageWriter, request)
        (prompt,) = await self._apart(read_prompts, wanted, self.engine.model, options)
        return JSONResponse({"input_tokens": len(prompt.tokens)})

    def _known(self, wanted: str) -> str:
        if name := self._options.name_of(wanted):
            return name
        problem = f"expected {', '.join(self._options.names)} or {DEFAULT_MODEL}, got {quoted(wanted)}"
        raise wrong_field("model", problem, status=404, code="model_not_found")

    async def _models(self, request: Request) -> Response:
        # In OpenAI's form, and in Anthropic's.
        openai = {"object": "model", "created": self._created, "owned_by": "local"}
        anthropic = {"type": "model", "created_at": datetime.fromtimestamp(self._created, UTC).isoformat()}
        entries = {name: {"id": name, **openai, **anthropic, "display_name": name} for name in self._options.names}
        wanted = request.path_params.get("name")
        if not wanted:
            ends = {"has_more": False, "first_id": next(iter(entries)), "last_id": [*entries][-1]}
            return JSONResponse({"object": "list", "data": list(entries.values()), **ends})
        return JSONResponse(entries[self._known(wanted)])

    async def _health(self, request: Request) -> Response:
        alive = self.engine.alive
        return JSONResponse({"status": "ok" if alive else "unavailable"}, 200 if alive else 503)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.scope["path"][:200]
        problem = f"{request.method} {path}: {error.detail}. The addresses are {self._addresses}"
        refusal = RequestRefused(error.status_code, problem)
        return JSONResponse(error_document(path, refusal), refusal.status, headers=error.headers)


def _ignored(wanted: GenerationRequest, path: str) -> dict[str, str]:
    """The header that names the fields without effect as the protocol does, which are logged as well."""
    if not (ignored := sorted(own_name(path, name) for name in wanted.without_effect)):
        return {}
    logging.info("these fields have no effect: %s", quoted(ignored))
    shown = (name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else "?" for name in ignored)
    return {IGNORED_HEADER: ", ".join(shown)[:_LONGEST_HEADER]}


async def _whole(pieces: _Pieces, answers: list[Answer], writer: _Writer) -> bytes:
    async with aclosing(pieces):
        async for delta in pieces:
            if delta:
                list(writer.add(delta))
    return as_json(writer.whole(answers)).encode()


async def _streamed(pieces: _Pieces, answers: list[Answer], writer: _Writer) -> AsyncGenerator[bytes]:
    """The parts of a stream with the answers to a request. An error before the first one is raised."""
    head, begun, sent_at = b"", False, time.monotonic()
    try:
        async with aclosing(pieces):
            await anext(pieces)  # the answers are there
            head = event_bytes(writer.begin(answers))
            async for delta in pieces:
                data = event_bytes(writer.add(delta) if delta else writer.waiting())
                if not data and time.monotonic() - sent_at >= _QUIET_SECONDS:  # text is held back
                    data = event_bytes(writer.waiting())
                if data:
                    yield head + data
                    head, begun, sent_at = b"", True, time.monotonic()
            yield head + event_bytes(writer.finish(answers)) + writer.done
    except Exception as error:
        refusal = refusal_of(error)
        if not begun and refusal.code not in writer.codes_in_stream:
            raise
        yield (head if head or begun else event_bytes(writer.begin([]))) + event_bytes([writer.error(refusal)])


async def _send(parts: AsyncGenerator[bytes], headers: Callable[[], dict[str, str]], send: Send) -> None:
    async with aclosing(parts):
        part = await anext(parts)
        all_headers = Headers({**headers(), **_STREAM_HEADERS}).raw
        await send({"type": "http.response.start", "status": 200, "headers": all_headers})
        while part:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            part = await anext(parts, b"")
    await send({"type": "http.response.body", "body": b""})


async def _unless_gone(receive: Receive, act: Coroutine[Any, Any, _Result]) -> _Result:
    """What ``act`` comes to; it ends when the client goes away."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    result, gone = asyncio.ensure_future(act), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        return result.result()
    finally:
        result.cancel()
        gone.cancel()
