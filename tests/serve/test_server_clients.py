"""The server where many ask at once, go away, or meet a failure: every other answer is as it was."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import InternalServerError, RateLimitError

from spectool.runtime.decoding.drafter import Drafter
from spectool.serve.handler import Handler, Server
from spectool.tests.runtime.fake_drafters import Failing
from spectool.tests.serve.questions import LONG, PROMPTS, TOKENS, alone, complete, eventually, series
from spectool.tests.serve.servers import connect, exchange, get, post, serving

pytestmark = pytest.mark.system


def test_many_at_once_get_what_each_gets_alone(server: Server) -> None:
    before = series(server)
    prompts = [f"{prompt} {number}" for number in range(2) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(prompts)) as pool:
        texts = list(pool.map(lambda prompt: complete(server, prompt, 12).choices[0].text, prompts))
    assert texts == [alone(prompt, 12) for prompt in prompts]
    after = series(server)
    assert after["spectool_generated_tokens_total"] - before["spectool_generated_tokens_total"] == 12 * len(prompts)
    assert after["spectool_waiting_seconds_total"] > before["spectool_waiting_seconds_total"]
    assert after["spectool_requests_running"] == after["spectool_requests_waiting"] == 0


def test_too_many_at_once_are_told_to_come_back() -> None:
    with serving(max_waiting=1) as running:
        with connect(running) as busy, connect(running) as waiting:
            for connection in (busy, waiting):
                connection.sendall(post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 100_000}))
                until = time.monotonic() + 10
                gauge = "running" if connection is busy else "waiting"
                while series(running)[f"spectool_requests_{gauge}"] == 0 and time.monotonic() < until:
                    time.sleep(0.02)
            with pytest.raises(RateLimitError, match="waiting already"):
                complete(running, PROMPTS[1])
        eventually(running, 'spectool_generations_total{end="disconnected"}', 2)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_goes_away_ends_its_generation_and_its_prompt_stays_cached(streamed: bool) -> None:
    with serving() as running:
        body = {"prompt": PROMPTS[0], "max_tokens": 100_000, "stream": streamed}
        with connect(running) as connection:
            connection.sendall(post("/v1/completions", body))
            if streamed:
                assert b"200 OK" in connection.recv(1 << 16)
            until = time.monotonic() + 10
            while series(running)["spectool_requests_running"] == 0 and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.3)  # some tokens
        eventually(running, 'spectool_generations_total{end="disconnected"}', 1)
        assert series(running)["spectool_generated_tokens_total"] > 0
        answer = complete(running, PROMPTS[0])
        assert answer.choices[0].text == alone(PROMPTS[0])
        assert answer.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens - 2


def test_a_client_that_goes_away_during_the_prompt_ends_it_there() -> None:
    with serving(prefill_step_size=1, max_prompt_tokens=10_000) as running:
        complete(running, PROMPTS[0])
        with connect(running) as connection:
            connection.sendall(post("/v1/completions", {"prompt": LONG * 20, "max_tokens": 5}))
            eventually(running, "spectool_requests_running", 1)
        eventually(running, 'spectool_generations_total{end="disconnected"}', 1)
        assert series(running)["spectool_generated_tokens_total"] == TOKENS
        answer = complete(running, PROMPTS[0])
        assert answer.choices[0].text == alone(PROMPTS[0])
        assert answer.usage.prompt_tokens_details.cached_tokens > 0


def test_a_client_that_goes_away_during_the_prompt_of_a_stream_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Nobody looks whether it has gone, so that it is the writing to it that fails.
    monkeypatch.setattr(Handler, "_gone", lambda self: False)
    with caplog.at_level(logging.INFO), serving(prefill_step_size=1, max_prompt_tokens=10_000) as running:
        with connect(running) as connection:
            connection.sendall(post("/v1/completions", {"prompt": LONG * 4, "max_tokens": 5, "stream": True}))
            assert b"200 OK" in connection.recv(1 << 16)
        eventually(running, 'spectool_requests_total{path="/v1/completions",status="200"}', 1)
        assert [entry.getMessage() for entry in caplog.records if entry.levelno > logging.INFO] == []
        assert complete(running, PROMPTS[0]).choices[0].text == alone(PROMPTS[0])


def test_a_drafter_that_fails_costs_no_answer() -> None:
    with serving(lambda name, tokenizer: Failing([5] * 100, "propose", call=3)) as running:
        with pytest.warns(RuntimeWarning, match="switched off"):
            answer = complete(running, PROMPTS[0])
        assert answer.choices[0].text == alone(PROMPTS[0])


def test_a_drafter_that_cannot_be_made_is_the_error_of_the_start() -> None:
    def fail(name: str, tokenizer: Any) -> Drafter | None:
        raise ValueError("no such dictionary")

    with pytest.raises(ValueError, match="no such dictionary"), serving(fail):
        pass


def test_a_generation_that_fails_is_an_error_in_a_stream_and_without(server: Server) -> None:
    class Broken(dict[str, Any]):
        """No prompt cache: makes the prompt's look-up fail."""

    generator = server.generator
    kept = generator.prompt_cache
    generator.prompt_cache = Broken()
    try:
        with pytest.raises(InternalServerError):
            complete(server, PROMPTS[0])
        with pytest.raises(Exception, match="failed"):
            list(complete(server, PROMPTS[0], stream=True))
    finally:
        generator.prompt_cache = kept
    assert complete(server, PROMPTS[0]).choices[0].text == alone(PROMPTS[0])


def test_stopping_ends_a_generation_at_once() -> None:
    with serving() as running, connect(running) as connection:
        connection.sendall(post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 100_000}))
        eventually(running, "spectool_requests_running", 1)
        began = time.monotonic()
        assert running.generator.stop()
        assert time.monotonic() - began < 3
        answer = connection.recv(1 << 16)
        assert b"503" in answer.split(b"\r\n")[0]
        assert exchange(running, get("/health"))[0] == 503
