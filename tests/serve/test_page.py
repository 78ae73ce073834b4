"""The page for people in a real browser, driven through the pipe of Chrome's DevTools protocol."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from spectool.serve.gate import Gate
from spectool.serve.options import ServerOptions
from spectool.serve.server import Server
from spectool.tests.serve.questions import chatting_model, writing_down
from spectool.tests.serve.servers import connect, exchange, get, post, serving

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
MARKDOWN = "# T\n**a** i *b*: `<b>`\n- x\n- y\n\n3. z\n```\n<i>**k**\n```\n[l](https://e.org) [m](javascript:a) 2 * 3"
ELEMENTS = (
    "<h3>T</h3><p><strong>a</strong> i <em>b</em>: <code>&lt;b&gt;</code></p><ul><li>x</li><li>y</li></ul>"
    '<ol start="3"><li>z</li></ol><pre><code>&lt;i&gt;**k**\n</code></pre>'
    '<p><a href="https://e.org" rel="noreferrer" target="_blank">l</a> [m](javascript:a) 2 * 3</p>'
)
MARKUP = "<img src=x onerror=\"document.title='run'\"> & <script>document.title = 'run'</script> <b>x</b>"


class Page:
    """A page of a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._number, self._session = 0, {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Emulation.setDeviceMetricsOverride", width=340, height=600, deviceScaleFactor=1, mobile=False)

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            data = b""
            while not data.endswith(b"\0"):
                data += self._answers.read(1)
            answer = json.loads(data[:-1])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression: str) -> Any:
        end = time.monotonic() + 60
        while not (found := self.value(expression)):
            assert time.monotonic() < end, (expression, self.value("document.body.innerText"))
            time.sleep(0.02)
        return found

    def say(self, text: str) -> None:
        self.call("Input.insertText", text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", **enter)
        self.call("Input.dispatchKeyEvent", type="keyUp", key="Enter")


def status_of(keys: tuple[str, ...], host: str, origin: str) -> int:
    """The status of a request with the right key, as a browser sends it."""
    gate = Gate(Response(), ServerOptions(model="m", api_keys=keys), "0.0.0.0")
    headers = {"origin": origin, "authorization": "Bearer k"}
    return TestClient(gate, base_url=f"http://{host}").post("/", headers=headers).status_code


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    (commands_in, commands), (answers, answers_out) = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={folder}", "--remote-debugging-pipe"]
    command = ["bash", "-c", f'exec "$@" 3<&{commands_in} 4>&{answers_out}', "bash", str(BROWSER), *options]
    with (folder / "log").open("wb") as log:
        browser = subprocess.Popen(command, pass_fds=(commands_in, answers_out), stdout=log, stderr=log)
    os.close(commands_in)
    os.close(answers_out)
    try:
        yield Page(commands, answers)
    finally:
        browser.kill()
        browser.wait()
        os.close(commands)


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome in PATH")
def test_a_conversation_in_a_browser(chatting: Server, tmp_path: Path) -> None:
    with browsing(tmp_path) as page:
        page.call("Page.navigate", url=chatting.url)
        page.until("document.activeElement?.id === 'field'")
        with writing_down(chatting, MARKUP, "drugi"):
            page.say("Wczoraj <i>wieczorem</i>")
            idle = "document.getElementById('button').textContent === 'Send'"
            page.until(f"document.querySelectorAll('#log .assistant').length === 1 && {idle}")
            shown = "[...document.querySelectorAll('#log .user, #log .assistant')].map(each => each.textContent)"
            assert page.value(shown) == ["Wczoraj <i>wieczorem</i>", MARKUP]
            figures = page.until("document.querySelector('#log .figures')?.textContent")
            assert re.fullmatch(r"\d+ tokens, [\d.]+ a second; (\d+ of \d+ draft tokens accepted|no drafts)", figures)
            page.say("i znowu")
            page.until(f"document.querySelectorAll('#log .assistant').length === 2 && {idle}")
            assert page.value(shown)[2:] == ["i znowu", "drugi"]
            assert page.value("JSON.stringify(messages.map(each => each.role))") == json.dumps(
                ["user", "assistant"] * 2, separators=(",", ":")
            )
        assert page.value("[document.title, document.images.length]") == ["spectool serve", 0]
        # The policy of the page, for what would get into it in spite of that.
        page.value("document.getElementById('log').innerHTML = '<img src=x onerror=\"document.title = 1\">'")
        time.sleep(0.2)
        assert page.value("document.title") == "spectool serve"
        with writing_down(chatting, MARKDOWN):
            page.value("document.getElementById('fresh').click()")
            assert page.value("[log.childElementCount, messages.length]") == [0, 0]
            page.say("I co?")
            page.until(f"document.querySelector('#log .figures') && {idle}")
            assert page.value("document.querySelector('#log .assistant > div').innerHTML") == ELEMENTS
        page.value("document.getElementById('fresh').click()")
        page.say("dom " * 400)
        assert "at most 256 tokens" in page.until("document.querySelector('#log .error')?.textContent")
        page.until(idle)
        page.say("W domu")  # an answer in earnest, as long as the context allows
        page.until("document.querySelector('#log .assistant')?.textContent.length > 100")
        assert page.value("document.documentElement.scrollWidth <= innerWidth"), "wider than a narrow window"
        page.value("fresh.click(); fetch = async () => new Response('Service Unavailable', {status: 503}); ask('a')")
        assert page.until("document.querySelector('#log .error')?.textContent") == "The server answers 503."


def test_the_server_s_own_page_may_ask_and_others_may_not(chatting: Server) -> None:
    body = {"messages": [{"role": "user", "content": "W domu"}], "max_tokens": 2}
    with connect(chatting) as connection:
        port = connection.getpeername()[1]
    for origin, status in ((f"http://localhost:{port}", 200), (f"http://localhost:{port + 1}", 403), ("null", 403)):
        data = post("/v1/chat/completions", body, Origin=origin, host=f"localhost:{port}")
        assert exchange(chatting, data.replace(b"Host: localhost\r\n", b""))[0] == status
    # Without a key, a name could be a stranger's, which means this machine to a browser of ours.
    for host, keys, allowed in (
        ("192.168.0.5:8080", (), True),
        ("[fe80::1]:8080", (), True),
        (f"{gethostname().lower()}.local:8080", (), True),
        ("evil.example.org:8080", (), False),
        ("model.example.org", ("k",), True),
    ):
        for origin in (f"http://{host}", f"https://{host}", "http://other.example.org"):
            own = allowed and host in origin
            assert (status_of(keys, host, origin) == 200) is own, (host, origin)
    assert "default-src 'none'" in exchange(chatting, get("/"))[1]["content-security-policy"]


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome in PATH")
def test_the_page_asks_for_a_key(tmp_path: Path) -> None:
    model = chatting_model(tmp_path)
    with serving(model=model, api_keys=("sesame",)) as running, browsing(tmp_path) as page:
        page.call("Page.navigate", url=running.url)
        page.until("document.activeElement?.id === 'key'")
        assert "asks for a key" in page.value("document.body.innerText") and page.value("about.hidden")
        page.value("ask('W domu')")
        assert page.until("document.querySelector('#log .error')?.textContent") == "Enter the key of this server first."
        page.say("sesame")
        page.value("document.getElementById('key').blur()")
        assert page.until("document.getElementById('models').textContent") == Path(model).name
        page.until("document.activeElement?.id === 'field' && locked.hidden")
        with writing_down(running, "Tak."):
            page.say("W domu?")
            page.until("document.querySelector('#log .assistant')?.textContent === 'Tak.'")
