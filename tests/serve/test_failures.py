"""What fails inside the engine: every client gets an answer, and the server goes on or ends."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from openai import APIStatusError

from spectool import SpectoolError
from spectool.runtime.decoding.loop import Loop
from spectool.serve.engine import Engine
from spectool.serve.options import ServerOptions
from spectool.serve.server import Server
from spectool.tests.serve.questions import PROMPTS, alone, complete, eventually
from spectool.tests.serve.servers import TARGET, without_drafter

pytestmark = pytest.mark.nightly


@contextmanager
def broken(owner: Any, name: str) -> Any:
    """Let a method raise."""
    with patch.object(owner, name, side_effect=RuntimeError("no memory left")):
        yield


def outcome(answer: Future[Any]) -> str:
    try:
        return str(answer.result(timeout=30).choices[0].text)
    except APIStatusError as error:
        return f"{error.status_code}: {error.message}"


def test_a_cache_that_cannot_be_taken_back_harms_nobody_else(server: Server) -> None:
    expected = alone(PROMPTS[0])
    with ThreadPoolExecutor(4) as pool:
        with broken(Loop, "remove"):
            ended = pool.submit(complete, server, PROMPTS[0])
            assert outcome(ended) == expected, "the text was there already"
            several = pool.submit(complete, server, PROMPTS, n=2)
            assert outcome(several) == expected or "no memory left" in outcome(several)
            long = pool.submit(complete, server, PROMPTS[1], 200)
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
        with broken(Engine, "_advance"):
            assert all("the server has failed: no memory left" in outcome(each) for each in asked)
        with pytest.raises(SpectoolError, match="its engine failed: no memory left"):
            ended.result(timeout=30)
    assert server.stop()
