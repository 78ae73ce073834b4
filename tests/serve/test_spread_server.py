"""A server whose model is spread over two processes: clients share passes, leave, and a process dies."""

import json
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.tests.rings import start_ring
from spectool.tests.tiers import slow

pytestmark = pytest.mark.nightly

PROMPTS = ["Most w Jaworowcu", "Wczoraj wieczorem", "Stacja kolejowa", "Ala ma kota", "W roku 1999"]
END_SECONDS = 10  # in which all processes have to end after one has


@contextmanager
def spread_server(
    folder: Path, *options: str, model: object = demo_path("target")
) -> Iterator[tuple[list[subprocess.Popen[str]], int]]:
    """The processes, and the port."""
    command = ("-m", "spectool.cli", "--debug", "serve", "--model", model, "--port", 0, *options)
    ring = start_ring(2, folder, *command)
    try:
        assert ring[0].stderr is not None
        lines: list[str] = []
        for line in ring[0].stderr:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
                break
        else:
            raise AssertionError("".join(lines))
        for each in ring:  # nobody may wait for a full pipe
            Thread(target=each.communicate, daemon=True).start()
        yield ring, int(found[1])
    finally:
        for each in ring:
            each.kill()
            each.wait()


def ask(port: int, number: int, leave_after: int | None = None) -> str | None:
    """The text of an answer; None for a client that leaves after some lines."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    wanted = {"prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": 20 + number % 15, "temperature": 0}
    body = json.dumps({**wanted, "stream": leave_after is not None})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if leave_after is not None:
        for _ in range(leave_after):
            answer.readline()
        connection.close()
        return None
    text: str = json.loads(answer.read())["choices"][0]["text"]
    return text


@pytest.mark.parametrize(
    ("clients_at_once", "drafts"), [(4, ("--draft-model", str(demo_path("target")))), *slow((8, ()))]
)
def test_clients_that_share_passes_get_what_they_get_alone(
    tmp_path: Path, clients_at_once: int, drafts: tuple[str, ...]
) -> None:
    """Also with a draft model, whose passes rank 0 makes by itself."""
    rng = random.Random(0)
    jobs = [(number % 15, rng.randrange(12) if number % 3 == 0 else None) for number in range(48)]
    with spread_server(tmp_path, *drafts) as (ring, port):
        alone = [ask(port, number) for number in range(15)]
        with ThreadPoolExecutor(clients_at_once) as clients:
            found = list(clients.map(lambda job: ask(port, *job), jobs))
        ring[0].send_signal(signal.SIGINT)
        assert [each.wait(END_SECONDS) for each in ring] == [0, 0]
    assert found == [None if leaves is not None else alone[number] for number, leaves in jobs]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("busy", [False, True])
def test_a_process_that_dies_ends_the_other(tmp_path: Path, victim: int, busy: bool) -> None:
    with spread_server(tmp_path) as (ring, port), ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(ask, port, number) for number in range(4 if busy else 0)]
        ring[victim].kill()
        assert ring[1 - victim].wait(END_SECONDS) == 1
        for answer in answers:  # or an error: nobody waits
            answer.exception(END_SECONDS)
