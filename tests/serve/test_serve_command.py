"""`spectool serve` as a process: it says where it listens, drafts as told, logs, and ends on Ctrl-C."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from openai import OpenAI

from spectool.cli import main
from spectool.runtime.demo_models import demo_path
from spectool.serve.models import advised_sampling
from spectool.tests.commands.chatting import chat_model

pytestmark = pytest.mark.nightly

TARGET = str(demo_path("target"))
OTHER, DRAFT = str(demo_path("other")), str(demo_path("draft"))


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], OpenAI]]:
    """Start the command; give it and a client once it says that it listens."""
    command = [sys.executable, "-m", "spectool.cli", "serve", "--model", TARGET, "--port", "0", *arguments]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background may ignore Ctrl-C, and what it starts would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        assert running.stderr is not None
        try:
            for line in running.stderr:
                if found := re.match(
                    r"Serving .* at (http://127\.0\.0\.1:\d+/v1), drafting from (.+)\. Press Ctrl-C", line
                ):
                    assert found[2] == "nothing" or "0" not in arguments, "--num-draft-tokens 0"
                    break
            else:
                raise AssertionError("the server ended before it listened")
            yield running, OpenAI(base_url=found[1], api_key="none", max_retries=0, timeout=60)
        finally:
            running.kill()


def test_it_serves_until_ctrl_c_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    built = CliRunner().invoke(
        main, ["build-dict", "--tokenizer", TARGET, "--corpus", "sample:pl", "-o", str(tmp_path / "pl.dict"), "--json"]
    )
    assert built.exit_code == 0, built.output
    options = ["--dict", str(tmp_path / "pl.dict"), "--draft-model", str(demo_path("draft"))]
    with process(*options, "--max-tokens", "7", "--num-draft-tokens", "4") as (running, client):
        answer = client.completions.create(model="default_model", prompt="Most w Jaworowcu zamknięty do końca")
        assert answer.usage is not None and answer.usage.completion_tokens == 7
        stream = client.completions.create(model=TARGET, prompt="Wczoraj", max_tokens=100_000, stream=True)
        next(iter(stream))
        running.send_signal(signal.SIGINT)
        _, rest = running.communicate(timeout=30)
        assert running.returncode == 0
        assert "Stopped." in rest.splitlines()
        assert "Traceback" not in rest


def test_the_sampling_that_the_authors_advise_is_said_and_not_taken(tmp_path: Path) -> None:
    model = Path(chat_model(tmp_path))
    config = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True}
    file = model / "generation_config.json"
    for written, advised in (
        (json.dumps(config), "--temp 0.6 --top-p 0.95 --top-k 20"),
        (json.dumps({**config, "do_sample": False}), ""),
        *((text, "") for text in ("{}", "[]", "{", '{"temperature": "hot"}', '{"temperature": [1]}', "\xff")),
        (json.dumps({**config, "top_k": 10**400}), ""),
    ):
        file.write_text(written, encoding="latin-1")
        assert advised_sampling(str(model)) == advised, written
    assert advised_sampling(TARGET) == advised_sampling(str(tmp_path / "none")) == ""
    file.write_text(json.dumps(config))
    for options, lines in (([], 1), (["--temp", "0.7"], 0)):
        with process("--model", str(model), *options) as (running, client):
            client.models.list()
            running.send_signal(signal.SIGINT)
            said = "".join(running.stderr or ())  # with what was read ahead
            assert said.count("Its authors advise: --temp 0.6 --top-p 0.95 --top-k 20") == lines, said


def test_a_signal_gives_running_clients_their_answers_so_far_and_ends_it_within_seconds() -> None:
    with process("--num-draft-tokens", "0") as (running, client), ThreadPoolExecutor(4) as pool:
        asked = partial(client.completions.create, model=TARGET, prompt="Most", max_tokens=200, temperature=1)
        many: Any = {"n": 16}  # enough to keep it busy
        answers = [pool.submit(asked, extra_body=many) for _ in range(4)]
        time.sleep(2)
        began = time.monotonic()
        running.send_signal(signal.SIGTERM)
        _, rest = running.communicate(timeout=30)
        assert time.monotonic() - began < 8
        assert running.returncode == 0 and "Traceback" not in rest
        for answer in answers:
            error = answer.exception(timeout=10)
            assert error is None or "stopping" in str(error), error


def test_what_clients_send_cannot_write_to_the_terminal() -> None:
    with process("--no-history", "--log-level", "DEBUG", "--api-key", "s") as (running, client):
        with urlopen(Request(f"{str(client.base_url)[:-4]}/health?a=%1b[31m%0d")) as answer:
            assert answer.status == 200
        for path in ("a%1b[31m%0dEVIL%0aEVIL%c2%9b", "a"):
            with pytest.raises(HTTPError):
                urlopen(f"{client.base_url!s}{path}")
        named: Any = {"a\x1b[31m\r\nEVIL\x9b": 1}
        client.with_options(api_key="s").completions.create(
            model=TARGET, prompt="\x1b\r", max_tokens=1, extra_body=named
        )
        running.send_signal(signal.SIGINT)
        _, rest = running.communicate(timeout=30)
        assert "EVIL" in rest
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", rest), repr(rest)
        assert not re.search("^EVIL", rest, re.M)


NOWHERE = "./nowhere: no such directory"
PAGES = ["*", "null", "http://localhost:3000", "https://example.org", "http://[::1]:80", "chrome-extension://ab"]
NO_PAGES = ["foo", "localhost:3000", "http://", "http://localhost:3000/", "http://Localhost", "", "**"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 1, NOWHERE),
        (["--model", TARGET, "--draft-model", OTHER], 1, "cannot load this model"),
        (["--model", TARGET, "--draft-model", DRAFT, "--alignment", "nowhere.align"], 1, "nowhere.align"),
        (["--model", TARGET, "--dict", "nowhere.dict"], 1, "nowhere.dict"),
        (["--host", "no.such.host.invalid"], 1, "Choose another --host or --port"),
        (["--model", TARGET, "--temp", "1e-9"], 1, "temp: expected 0 or a number of at least"),
        (["--batch", "2", "--kv-bits", "8"], 2, "--batch 2: with --kv-bits, requests are answered one after the other"),
        (["--batch", "1", "--kv-bits", "8"], 1, NOWHERE),
        *((["--allowed-origin", page], 1, NOWHERE) for page in PAGES),
        *((["--allowed-origin", page], 2, "'--allowed-origin': expected") for page in NO_PAGES),
    ],
)
def test_what_cannot_be_served_is_one_line(arguments: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--model", "./nowhere", "--port", "0", *arguments])
    assert result.exit_code == code and "Traceback" not in result.stderr
    assert message in result.stderr.splitlines()[-1]


def test_a_port_in_use_is_told_before_the_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(main, ["serve", "--model", "./nowhere", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 1
    assert "Choose another --host or --port" in result.stderr


def test_a_chat_template_of_one_s_own_makes_a_model_converse(tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
    with process("--chat-template", str(template), "--prefill-step-size", "2", "--no-history") as (_, client):
        message: Any = {"role": "user", "content": "Most w Jaworowcu"}
        chat = client.chat.completions.create(model="target", messages=[message], max_tokens=4)
        text = client.completions.create(model="target", prompt="Most w Jaworowcu", max_tokens=4)
    assert chat.choices[0].message.content == text.choices[0].text.removeprefix(" ")
