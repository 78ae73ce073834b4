"""Clients of every kind for minutes, some of which break off or send nonsense: the server stays as it is."""

import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

import pytest

from spectool.tests.serve.questions import LONG, MESSAGES, PROMPTS, TOOLS, chatting_model
from spectool.tests.serve.servers import connect_to, post
from spectool.tests.serve.test_serve_command import process

pytestmark = pytest.mark.nightly

SECONDS = 450
CLIENTS = 8
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASKED: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": MESSAGES, "temperature": 0.7}),
    (CHAT, {"messages": MESSAGES, "tools": TOOLS, "logprobs": True, "top_logprobs": 3}),
    (CHAT, {"messages": MESSAGES, "response_format": {"type": "json_object"}}),
    (CHAT, {"messages": MESSAGES, "prediction": {"type": "content", "content": LONG}}),
    (TEXT, {"prompt": PROMPTS, "n": 2, "temperature": 1, "seed": 3, "repetition_penalty": 1.2}),
    (TEXT, {"prompt": LONG[:200], "stop": ["zn", "w"], "num_draft_tokens": 3}),
    (TEXT, {"prompt": "Ile?", "structured_outputs": {"regex": "[0-9]{1,9} zł"}, "temperature": 0.7}),
    ("/v1/responses", {"input": PROMPTS[1]}),
    ("/v1/messages", {"messages": [{"role": "user", "content": PROMPTS[2]}], "top_p": 0.9, "temperature": 1}),
]
WRONG = [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"messages": 5}', b'{"prompt": [7, 99999]}', b" " * (17 << 20)]


def ask(url: str, rng: random.Random) -> str:
    """Ask once; return the status, or what is wrong with the answer."""
    path, fields = rng.choice(ASKED)
    wrong, leaves = rng.random() < 0.2, rng.random() < 0.15
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body: Any = {"model": "default_model", limit: rng.randint(1, 60), "stream": rng.random() < 0.5, **fields}
    answer = b""
    try:
        with connect_to(url, timeout=300) as connection:
            connection.sendall(post(path, rng.choices(WRONG, [9] * 6 + [1])[0] if wrong else body))
            while part := connection.recv(1 << 16):
                answer += part
                if leaves:
                    return "left"
    except OSError as error:
        time.sleep(0.1)
        return f"{type(error).__name__} after {answer[-300:]!r}" if answer else type(error).__name__
    status, whole = answer[9:12].decode(), answer.rstrip(b"\r\n0").endswith((b"}", b"[DONE]"))
    return status if whole and wrong == status.startswith("4") else f"to {path}: {answer[-300:]!r}"


def state_of(pid: int) -> list[int]:
    """Memory in MB, threads and open files of a process."""
    own = Path(f"/proc/{pid}")
    return [
        int((own / "statm").read_text().split()[1]) >> 8,
        *(len(list((own / of).iterdir())) for of in ("task", "fd")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM"])
def test_the_server_stays_as_it_is(tmp_path: Path, end: str) -> None:
    seed, stopped, samples, results = time.time_ns() % 10**6, Event(), list[list[int]](), Counter[str]()
    options = "--model", chatting_model(tmp_path), "--batch", "4", "--log-level", "ERROR"
    with ThreadPoolExecutor(CLIENTS) as clients, process(*options) as (running, api):

        def go_on(number: int) -> None:
            rng = random.Random(f"{seed} {number}")
            while not stopped.is_set():
                results[ask(str(api.base_url), rng)] += 1

        asking = [clients.submit(go_on, number) for number in range(CLIENTS)]
        for _ in range(SECONDS // 10):
            stopped.wait(10)
            samples.append(state_of(running.pid))
        running.send_signal(getattr(signal, end))
        stopped.set()
        _, errors = running.communicate(timeout=60)
        assert [client.result(timeout=60) for client in asking]
    third = len(samples) // 3
    middle, last = ([*map(median, zip(*each, strict=True))] for each in (samples[third:-third], samples[-third:]))
    print(
        f"seed {seed}: {results}; MB, threads and files at first, in the middle, in the end:", samples[0], middle, last
    )
    assert running.returncode == 0 and "Traceback" not in errors, errors[-3000:]
    assert results.keys() <= {"200", "left", "400", "413", "503", "ConnectionResetError", "ConnectionRefusedError"}
    assert all(after < 1.1 * before for before, after in zip(middle, last, strict=True))
