"""The server where many ask at once, go away, or meet a failure: every other answer is as it was."""

import asyncio
import itertools
import json
import logging
import signal
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from openai import APIStatusError, InternalServerError, RateLimitError

from spectool import SpectoolError
from spectool.runtime.decoding.loop import Loop
from spectool.serve.answers import Answer, Prompt
from spectool.serve.app import _streamed
from spectool.serve.deltas import Delta
from spectool.serve.engine import Engine
from spectool.serve.errors import checked
from spectool.serve.options import ServerOptions
from spectool.serve.prompt_caches import PromptCaches
from spectool.serve.protocols.completions import ChatWriter
from spectool.serve.protocols.messages import MessageWriter
from spectool.serve.protocols.responses import ResponseWriter
from spectool.serve.requests import ChatRequest
from spectool.serve.server import Server
from spectool.tests.runtime.fake_drafters import Failing
from spectool.tests.serve.questions import LONG, PROMPTS, TOKENS, alone, chatting_model, complete, counted, eventually
from spectool.tests.serve.servers import TARGET, client, connect, exchange, get, post, serving, without_drafter

pytestmark = pytest.mark.nightly
TEXT = "/v1/completions"
QUESTION = {"messages": [{"role": "user", "content": "a"}]}


def wait_for_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the log has the one request whose client has gone."""
    until = time.monotonic() + 20
    while sum("'/v1/completions': 499 in" in entry.getMessage() for entry in list(caplog.records)) != 1:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_eight_at_once_get_what_each_gets_alone(server: Server) -> None:
    before = counted(server)
    prompts = [f"{prompt} {number}" for number in range(3) for prompt in PROMPTS][:8]
    with ThreadPoolExecutor(len(prompts)) as pool:
        texts = list(pool.map(lambda prompt: complete(server, prompt, 12).choices[0].text, prompts))
    assert texts == [alone(prompt, 12) for prompt in prompts]
    after = counted(server)
    assert after["generated_tokens"] - before["generated_tokens"] == 12 * len(prompts)
    assert after["running"] == after["waiting"] == 0


def test_too_many_at_once_are_told_to_come_back() -> None:
    with serving(max_waiting=1, batch=1) as running:
        with connect(running) as busy, connect(running) as waiting:
            for connection in (busy, waiting):
                connection.sendall(post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 100_000}))
                eventually(running, "running" if connection is busy else "waiting", 1)
            with pytest.raises(RateLimitError, match="waiting already"):
                complete(running, PROMPTS[1])
            waiting.close()
            eventually(running, "line", 0)  # answers that nobody waits for would pile up
        eventually(running, "disconnected", 1)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_goes_away_ends_its_generation_and_its_prompt_stays_cached(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serving() as running:
        body = {"prompt": PROMPTS[0], "max_tokens": 100_000, "stream": streamed}
        with connect(running) as connection:
            connection.sendall(post("/v1/completions", body))
            if streamed:
                assert b"200 OK" in connection.recv(1 << 16)
            eventually(running, "running", 1)
            time.sleep(0.3)  # some tokens
        eventually(running, "disconnected", 1)
        wait_for_gone(caplog)
        assert counted(running)["generated_tokens"] > 0
        answer = complete(running, PROMPTS[0])
        assert answer.choices[0].text == alone(PROMPTS[0])
        assert counted(running)["cached_prompt_tokens"] >= answer.usage.prompt_tokens - 2


def test_a_client_that_goes_away_during_the_prompt_ends_it_there() -> None:
    with serving(prefill_step_size=1, max_prompt_tokens=10_000) as running:
        complete(running, PROMPTS[0])
        with connect(running) as connection:
            connection.sendall(post("/v1/completions", {"prompt": LONG * 20, "max_tokens": 5}))
            eventually(running, "running", 1)
            time.sleep(0.3)  # some tokens
        eventually(running, "disconnected", 1)
        assert counted(running)["generated_tokens"] == TOKENS
        assert complete(running, LONG).choices[0].text == alone(LONG)
        assert counted(running)["cached_prompt_tokens"] > 10, "what was read was thrown away"
        answer = complete(running, PROMPTS[0])
        assert answer.choices[0].text == alone(PROMPTS[0])


def test_a_client_that_goes_away_while_its_text_is_tokenized_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with serving(max_prompt_tokens=10**9, max_body=1 << 24) as running:
        with connect(running) as connection:
            connection.sendall(post("/v1/completions", {"prompt": " " * (1 << 21), "max_tokens": 5}))
            time.sleep(0.3)
            began = time.monotonic()
            assert complete(running, PROMPTS[0], 4).choices[0].text == alone(PROMPTS[0], 4)
            assert time.monotonic() - began < 2, "a long text keeps a short one waiting"
        wait_for_gone(caplog)


def test_a_stream_has_events_while_its_prompt_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Clients take a stream for dead that sends nothing, or nothing but comments."""
    monkeypatch.setattr("spectool.serve.app._QUIET_SECONDS", 0.05)
    model = chatting_model(tmp_path_factory.mktemp("chatting"))
    with serving(model=model, prefill_step_size=1, max_prompt_tokens=10_000) as running:
        asked: Any = {"model": "default_model", "max_tokens": 5}
        texts = list(client(running).completions.create(**asked, prompt=LONG * 4, stream=True))
        assert [chunk.choices[0].text for chunk in texts[:2]] == ["", ""]

        def question(name: str) -> list[Any]:  # of which nothing is cached
            return [{"role": "user", "content": f"{name} {LONG * 4}"}]

        asks = client(running).responses
        events = list(asks.create(model="default_model", input=question("Ola"), max_output_tokens=5, stream=True))
        assert [event.type for event in events[:3]] == ["response.created", *["response.in_progress"] * 2]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        sent = post("/v1/messages", {**asked, "messages": question("Iza"), "stream": True})
        lines = [line for line in exchange(running, sent)[2].splitlines() if line.startswith(b"event: ")]
        assert lines[0] == b"event: message_start" and lines.count(b"event: ping")


@pytest.mark.parametrize(
    ("writer", "event"),
    [
        (lambda: MessageWriter(checked(ChatRequest, QUESTION)), "ping"),
        (lambda: ResponseWriter(checked(ChatRequest, QUESTION)), "response.in_progress"),
        (lambda: ChatWriter(checked(ChatRequest, QUESTION)), None),
    ],
)
def test_a_stream_has_events_while_its_text_is_held_back(
    writer: Callable[[], Any], event: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece of a call takes 6 seconds here, and gives a client nothing before the call is whole."""
    times = itertools.count(step=3)
    monkeypatch.setattr("spectool.serve.app.time", SimpleNamespace(monotonic=lambda: next(times)))

    async def pieces() -> AsyncGenerator[Delta | None]:
        yield None
        yield Delta(text="a")
        for _ in range(20):
            yield Delta()

    async def sent() -> list[bytes]:
        answers = [Answer(checked(ChatRequest, QUESTION), Prompt([]))]
        return [part async for part in _streamed(pieces(), answers, writer())]

    _, *waiting, _ = asyncio.run(sent())
    assert len(waiting) >= 3
    assert all((f"event: {event}\n".encode() if event else b'"delta":{}') in part for part in waiting)


def test_a_drafter_that_fails_costs_no_answer_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda tokenizer: Failing([5] * 100, "propose", call=3)) as running:
        answer = complete(running, PROMPTS[0], n=2)
        assert [choice.text for choice in answer.choices] == [alone(PROMPTS[0])] * 2
        assert len([entry for entry in caplog.records if "'failing' is switched off" in entry.getMessage()]) == 1


def test_a_generation_that_fails_is_an_error_in_a_stream_and_without(server: Server) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise ValueError("no such luck")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spectool.serve.engine.open_text", fail)
        for options in {}, {"stream": True}:
            with pytest.raises(InternalServerError, match="no such luck"):
                complete(server, PROMPTS[0], **options)
    assert complete(server, PROMPTS[0]).choices[0].text == alone(PROMPTS[0])


def test_stopping_gives_every_client_its_answer_so_far_or_an_error() -> None:
    with serving(max_prompt_tokens=10**6, batch=1) as running, ThreadPoolExecutor(4) as pool:
        body = {"prompt": PROMPTS[0], "max_tokens": 100_000}
        answers = [pool.submit(exchange, running, post("/v1/completions", body))]
        eventually(running, "running", 1)
        answers += [
            pool.submit(exchange, running, post("/v1/completions", {**body, "stream": streamed}))
            for streamed in (False, True)
        ]
        eventually(running, "waiting", 2)
        time.sleep(0.5)  # some tokens
        began = time.monotonic()
        running.handle_exit(signal.SIGTERM, None)
        (status, _, first), *others = (answer.result(timeout=10) for answer in answers)
        assert time.monotonic() - began < 3
        choice = json.loads(first)["choices"][0]
        assert (status, choice["finish_reason"]) == (200, "abort")
        assert alone(PROMPTS[0], 4) in choice["text"]
        assert [(status, b"stopping" in body) for status, _, body in others] == [(503, True)] * 2


def test_more_connections_than_allowed_are_refused() -> None:
    with serving(max_connections=4) as running:
        silent = [connect(running) for _ in range(4)]
        time.sleep(0.2)
        assert exchange(running, get("/health"))[0] == 503
        for connection in silent:
            connection.close()
        time.sleep(0.2)
        assert exchange(running, get("/health"))[0] == 200


def test_a_connection_is_used_again_also_after_a_refusal(server: Server) -> None:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    connection.connect()
    kept = connection.sock
    for path, stream, status in ((TEXT, True, 200), ("/nowhere", False, 404), (TEXT, False, 200)):
        body = {"prompt": "a" * 200_000 if status == 404 else PROMPTS[0], "max_tokens": 2, "stream": stream}
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (status, True)
        assert connection.sock is kept


# What fails inside the engine: every client gets an answer, and the server goes on or ends.


FAILS = {"side_effect": RuntimeError("no memory left")}


def outcome(answer: Future[Any]) -> str:
    try:
        return str(answer.result(timeout=30).choices[0].text)
    except APIStatusError as error:
        return f"{error.status_code}: {error.message}"


@pytest.mark.parametrize("fails", [(Loop, "remove"), (PromptCaches, "keep")], ids=["taken back", "kept"])
def test_a_cache_that_cannot_be(fails: tuple[type, str], server: Server) -> None:
    """It harms nobody else."""
    expected = alone(PROMPTS[0])
    with ThreadPoolExecutor(4) as pool:
        with patch.object(*fails, **FAILS):
            ended = pool.submit(complete, server, PROMPTS[0])
            assert outcome(ended) == expected, "the text was there already"
            several = pool.submit(complete, server, PROMPTS, n=2)
            assert outcome(several) == expected or "no memory left" in outcome(several)
            long = pool.submit(complete, server, PROMPTS[1], 1000)
            eventually(server, "running", 1)
            assert outcome(pool.submit(complete, server, PROMPTS[0], 1)) == alone(PROMPTS[0], 1)
            assert "no memory left" in outcome(long), "its batch is of no further use"
        assert outcome(pool.submit(complete, server, PROMPTS[0])) == expected


def test_an_engine_that_fails_ends_the_server_and_everybody_is_told() -> None:
    server = Server("127.0.0.1", 0, ServerOptions(model=TARGET), without_drafter)
    server.wait_until_loaded()
    with ThreadPoolExecutor(4) as pool:
        ended = pool.submit(server.answer)
        asked = [pool.submit(complete, server, PROMPTS[0], 200) for _ in range(3)]
        eventually(server, "running", 3)
        with patch.object(Engine, "_advance", **FAILS):
            assert all("the server has failed: no memory left" in outcome(each) for each in asked)
        with pytest.raises(SpectoolError, match="its engine failed: no memory left"):
            ended.result(timeout=30)
    assert server.stop()
