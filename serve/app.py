"""The addresses of the server. Nothing here touches MLX or blocks the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from spectool.serve import messages, responses
from spectool.serve.answers import Delta, Job, Prompt
from spectool.serve.completions import ChatWriter, CompletionWriter
from spectool.serve.engine import Engine
from spectool.serve.gate import IGNORED_HEADER, ClientGone, Gate, json_response, read_body, refusal_of
from spectool.serve.metrics import Metrics
from spectool.serve.options import DEFAULT_MODEL, ServerOptions
from spectool.serve.page import PAGE, POLICY
from spectool.serve.prompts import read_prompts
from spectool.serve.protocol import MESSAGES, Writer, now
from spectool.serve.requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    RequestRefused,
    checked,
    parse_json,
    quoted,
    without_effect,
    wrong_field,
)

_QUIET_SECONDS = 15  # after which a stream without news gets a comment, so that nobody takes it for dead
_LONG_TEXT = 1 << 16  # bytes of a body whose text is tokenized in a line of its own, as grammars are compiled
_Result = TypeVar("_Result")
_Events = asyncio.Queue[tuple[int, Delta | Exception | None]]  # with the index of the answer


class Service:
    """Answers the requests to one engine.

    Attributes:
        app: The ASGI application.
    """

    def __init__(self, engine: Engine, options: ServerOptions, metrics: Metrics, host: str) -> None:
        """Answer for ``engine`` on ``host``."""
        self.engine, self._options, self._metrics = engine, options, metrics
        self._created = now()
        self._short, self._long = ThreadPoolExecutor(1, "short-texts"), ThreadPoolExecutor(1, "long-texts")
        chat = partial(checked, ChatRequest)
        post, get = partial(Route, methods=["POST"]), partial(Route, methods=["GET"])
        routes = [
            post("/v1/chat/completions", self._answering(chat, ChatWriter)),
            post("/chat/completions", self._answering(chat, ChatWriter)),
            post("/v1/completions", self._answering(partial(checked, CompletionRequest), CompletionWriter)),
            post("/v1/responses", self._answering(responses.chat_of, responses.ResponseWriter)),
            post(MESSAGES, self._answering(messages.chat_of, messages.MessageWriter)),
            post(f"{MESSAGES}/count_tokens", self._count),
            get("/v1/models", self._models),
            get("/v1/models/{name:path}", self._models),
            get("/health", self._health),
            get("/metrics", self._exposition),
            get("/", self._page),
        ]
        self._methods = {
            route.path: "POST" if "POST" in (route.methods or ()) else "GET"
            for route in routes
            if "{" not in route.path
        }
        origins = list(options.allowed_origins)
        cors = Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[IGNORED_HEADER],
        )
        gate = Middleware(Gate, options=options, metrics=metrics, host=host, paths=frozenset(self._methods))
        self.app = Starlette(
            routes=routes,
            middleware=[cors, gate] if origins else [gate],
            exception_handlers={HTTPException: self._no_route},
        )

    def _answering(
        self, read: Callable[[dict[str, Any]], GenerationRequest], writer: Callable[[Any], Writer]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The function that answers requests that ``read`` understands, in the form of ``writer``."""

        async def answer(request: Request) -> Response:
            wanted, long = await self._read(request, read)
            return _Reply(self, request, wanted, writer(wanted), long)

        return answer

    async def _read(
        self, request: Request, read: Callable[[dict[str, Any]], GenerationRequest]
    ) -> tuple[GenerationRequest, bool]:
        """The request that was sent, and whether it may take long to tokenize."""
        raw = await read_body(request, self._options.max_body)
        logging.debug("body: %r", raw)
        long = len(raw) > _LONG_TEXT
        wanted = await self._apart(long, lambda: read(parse_json(raw)))
        if wanted.model == DEFAULT_MODEL:
            wanted.model = next(iter(self._options.names))
        return wanted, long

    def _apart(self, long: bool, act: Callable[[], _Result]) -> Awaitable[_Result]:
        """The result of what takes a thread's time; a text that is long does not keep a short one waiting."""
        return asyncio.get_running_loop().run_in_executor(self._long if long else self._short, act)

    async def _count(self, request: Request) -> Response:
        """The tokens of a prompt, which Claude Code asks for to know when a conversation becomes too long."""
        _, (prompt,) = await self.prepared(*await self._read(request, messages.chat_of))
        return json_response({"input_tokens": len(prompt.tokens)})

    async def prepared(self, wanted: GenerationRequest, long: bool) -> tuple[str, list[Prompt]]:
        """The model that a request means, and its prompts."""
        name = self._options.names.get(wanted.model)
        if name is None:
            raise self._unknown(wanted.model)
        try:
            model = await asyncio.wrap_future(self.engine.model_for(name))
        except RequestRefused:
            raise
        except Exception as error:
            raise wrong_field("model", str(error), status=404, code="model_not_found") from error
        return name, await self._apart(long or wanted.constrained, lambda: read_prompts(wanted, model, self._options))

    def _unknown(self, name: str) -> RequestRefused:
        first = " (the first of them)" * (len(self._options.names) > 1)
        problem = f"expected {', '.join(self._options.names)} or {DEFAULT_MODEL}{first}, got {quoted(name)}"
        return wrong_field("model", problem, status=404, code="model_not_found")

    async def _models(self, request: Request) -> Response:
        # In OpenAI's form, and in Anthropic's.
        openai = {"object": "model", "created": self._created, "owned_by": "local"}
        anthropic = {"type": "model", "created_at": datetime.fromtimestamp(self._created, UTC).isoformat()}
        entries = {name: {"id": name, **openai, **anthropic, "display_name": name} for name in self._options.names}
        wanted = request.path_params.get("name")
        if wanted is None:
            ends = {"has_more": False, "first_id": next(iter(entries)), "last_id": next(reversed(entries))}
            return json_response({"object": "list", "data": list(entries.values()), **ends})
        if wanted == DEFAULT_MODEL:
            wanted = next(iter(entries))
        if wanted not in entries:
            raise self._unknown(wanted)
        return json_response(entries[wanted])

    async def _health(self, request: Request) -> Response:
        alive = self.engine.alive
        return json_response({"status": "ok" if alive else "unavailable"}, 200 if alive else 503)

    async def _exposition(self, request: Request) -> Response:
        text = self._metrics.exposition(self.engine.gauges())
        return PlainTextResponse(text, headers={"content-type": "text/plain; version=0.0.4"})

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(PAGE, headers={"content-security-policy": POLICY})

    async def _no_route(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path[:200]
        if error.status_code == 405:
            problem = f"{path}: expected {self._methods.get(path, 'GET')}, got {request.method}"
        else:
            problem = f"{path}: no such address. Expected one of {', '.join(self._methods)}"
        raise RequestRefused(error.status_code, problem)


class _Reply(Response):
    """The answer to one request, from its prompt to its last byte. The client may go away at any time."""

    def __init__(
        self, service: Service, request: Request, wanted: GenerationRequest, writer: Writer, long: bool
    ) -> None:
        self._service, self._wanted, self._writer, self._long = service, wanted, writer, long
        self._client = request.scope["spectool.client"]
        self._events: _Events = asyncio.Queue()
        self._extra: dict[str, str] = {}
        if ignored := without_effect(wanted):
            logging.warning("these fields have no effect: %s", quoted(ignored))
            shown = (name if name.isidentifier() and name.isascii() else "?" for name in ignored)
            self._extra[IGNORED_HEADER] = ", ".join(shown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and stop generating as soon as the client has gone."""
        jobs: list[Job] = []
        gone = asyncio.create_task(_disconnected(receive, self._events))
        try:
            prepared = asyncio.ensure_future(self._service.prepared(self._wanted, self._long))
            await asyncio.wait({prepared, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not prepared.done():
                prepared.cancel()
                raise ClientGone
            jobs = self._submitted(*prepared.result())
            if self._wanted.stream:
                await self._send_stream(jobs, send)
            else:
                await self._send_whole(jobs, scope, receive, send)
        finally:
            gone.cancel()
            for job in jobs:
                job.cancelled = True

    def _submitted(self, model: str, prompts: list[Prompt]) -> list[Job]:
        """A job for each answer. Of those to one prompt, only the first is in line until it has read the prompt."""
        jobs: list[Job] = []
        self._later: dict[int, list[Job]] = {}  # by the index of the first one
        for prompt in prompts:
            first: Job | None = None
            for _ in range(self._wanted.n):
                index = len(jobs)
                jobs.append(Job(self._wanted, model, prompt, self._client, self._delivering(index), index, first))
                if first is None:
                    first = jobs[-1]
            assert first is not None
            self._later[first.index] = jobs[first.index + 1 :]
            first.copies = self._wanted.n - 1
        self._left = len(jobs)
        self._service.engine.submit([jobs[index] for index in self._later])
        return jobs

    def _delivering(self, index: int) -> Callable[[Delta | Exception | None], None]:
        loop = asyncio.get_running_loop()

        def deliver(event: Delta | Exception | None) -> None:
            with suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

        return deliver

    async def _next(self) -> Delta | None:
        """The next piece of any answer; None once all of them have ended.

        Raises:
            Exception: What one of them has failed with.
        """
        while self._left:
            index, event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            if later := self._later.pop(index, None):
                self._service.engine.submit(later, more=True)
            if event is not None:
                return event
            self._left -= 1
        return None

    async def _send_whole(self, jobs: list[Job], scope: Scope, receive: Receive, send: Send) -> None:
        while (piece := await self._next()) is not None:
            for _ in self._writer.add(piece):
                pass
        await json_response(self._writer.whole(jobs), headers=self._extra)(scope, receive, send)

    async def _send_stream(self, jobs: list[Job], send: Send) -> None:
        """Send events as they come. Until the first one, an error is an answer of its own."""
        started = False
        head = b"".join(event.encoded() for event in self._writer.begin(jobs))

        async def write(data: bytes) -> None:
            nonlocal started
            if not started:
                headers = {
                    "content-type": "text/event-stream; charset=utf-8",
                    "cache-control": "no-cache",
                    **self._extra,
                }
                raw = [(name.encode(), value.encode()) for name, value in headers.items()]
                await send({"type": "http.response.start", "status": 200, "headers": raw})
                started = True
                data = head + data
            await send({"type": "http.response.body", "body": data, "more_body": True})

        while True:
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    piece = await self._next()
            except TimeoutError:
                await write(b": waiting\n\n")
                continue
            except Exception as error:
                if isinstance(error, ClientGone) or not started:
                    raise
                await write(self._writer.error(refusal_of(error)).encoded())
                break
            events = self._writer.finish(jobs) if piece is None else self._writer.add(piece)
            data = b"".join(each.encoded() for each in events)
            if piece is None:
                await write(data + self._writer.done)
                break
            if data:
                await write(data)
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive, events: "_Events") -> None:
    """Wait until the client has gone, and say so."""
    while (await receive())["type"] != "http.disconnect":
        pass
    events.put_nowait((-1, ClientGone()))
