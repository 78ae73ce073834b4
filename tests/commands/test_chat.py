"""Conversations: what is fed again, what an interruption leaves, and what the terminal sees."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from spectool import SpectoolError
from spectool.cli import main
from spectool.commands.chat import _turns
from spectool.commands.conversation import Conversation
from spectool.runtime.chat_template import rendered
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.sampling.samplers import Sampling
from spectool.tests.commands.chatting import chat_model
from spectool.tests.running import error_of, figures, run
from spectool.tests.runtime.models import plain
from spectool.tests.tiers import nightly

TURNS = ["Most w Jaworowcu", "Wczoraj wieczorem", "Jak naprawić"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return chat_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="module")
def loaded(path: str) -> tuple[Any, Any]:
    return load_model(path)


def from_scratch(loaded: tuple[Any, Any], messages: list[Any], count: int) -> str:
    """Return what the model answers when it reads the whole conversation anew."""
    model, tokenizer = loaded
    tokens = plain(model, rendered(tokenizer, messages, {}), count)
    ends = [place for place, token in enumerate(tokens) if token in tokenizer.eos_token_ids]
    detokenizer = tokenizer.detokenizer
    for token in tokens[: ends[0]] if ends else tokens:
        detokenizer.add_token(token)
    detokenizer.finalize()
    return str(detokenizer.text)


@pytest.mark.parametrize("system", ["Odpowiadaj krótko.", *nightly(None)])
def test_each_answer_is_that_of_a_fresh_reading(loaded: tuple[Any, Any], system: str | None) -> None:
    model, tokenizer = loaded
    drafter = load_drafter(tokenizer)
    chat = Conversation(model, tokenizer, system_prompt=system, drafter=drafter, num_draft_tokens=4, max_tokens=10)
    for number, turn in enumerate(TURNS):
        messages = [*chat.messages, {"role": "user", "content": turn}]
        responses = list(chat.answer(turn))
        assert "".join(response.text for response in responses) == from_scratch(loaded, messages, 10), number
        whole = len(rendered(tokenizer, messages, {}))
        if number:
            assert responses[-1].prompt_tokens < whole / 2, "what was read before is not read again"
    assert [message["role"] for message in chat.messages][-2:] == ["user", "assistant"]


def test_an_answer_goes_on_with_the_draft_lengths_that_earlier_ones_have_learnt(loaded: tuple[Any, Any]) -> None:
    options = {"drafter": load_drafter(loaded[1]), "num_draft_tokens": None, "max_tokens": 24}
    chat = Conversation(*loaded, **options)
    policies = [list(chat.answer(turn))[-1].drafting.policy for turn in TURNS]
    chat = Conversation(*loaded, **options)
    policies.append(list(chat.answer(TURNS[0]))[-1].drafting.policy)
    assert policies[0] is not None and len({id(policy) for policy in policies}) == 1


def test_drafts_of_a_model_are_verified_by_rejection_sampling(path: str, loaded: tuple[Any, Any]) -> None:
    drafter = load_drafter(loaded[1], draft_model=path, history=False)
    chat = Conversation(*loaded, drafter=drafter, num_draft_tokens=4, max_tokens=24, sampler=Sampling(temp=0.8))
    mx.random.seed(3)
    drafting = list(chat.answer(TURNS[0]))[-1].drafting
    print(f"acceptance {drafting.acceptance_rate:.3f} of {drafting.proposed}")
    assert drafting.acceptance_rate > 0.9


def test_an_answer_broken_off_stays_as_far_as_it_went(loaded: tuple[Any, Any]) -> None:
    chat = Conversation(*loaded, max_tokens=20)
    stream: Iterator[Any] = chat.answer(TURNS[0])
    begun = "".join(next(stream).text for _ in range(4))
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert chat.messages[-1] == {"role": "assistant", "content": begun}
    messages = [*chat.messages, {"role": "user", "content": TURNS[1]}]
    answer = "".join(response.text for response in chat.answer(TURNS[1]))
    assert answer == from_scratch(loaded, messages, 20)


def test_what_the_template_refuses_leaves_the_conversation_alone(tmp_path: Path) -> None:
    template = "{% if messages|length > 1 %}{{ raise_exception('one at a time') }}{% endif %}{{ messages[0].content }}"
    chat = Conversation(*load_model(chat_model(tmp_path, template)), max_tokens=3)
    list(chat.answer(TURNS[0]))
    before = list(chat.messages)
    with pytest.raises(SpectoolError, match="one at a time"):
        list(chat.answer(TURNS[1]))
    assert chat.messages == before


def test_from_a_pipe(path: str, loaded: tuple[Any, Any]) -> None:
    said = f"{TURNS[0]}\n\n/reset\n{TURNS[1]} by\u0142o"
    result = run("chat", "--model", path, "-m", "5", input=said)
    assert result.exit_code == 0, result.output
    turns = [TURNS[0], f"{TURNS[1]} by\u0142o"]
    expected = [from_scratch(loaded, [{"role": "user", "content": turn}], 5) for turn in turns]
    assert result.stdout == "".join(f"{answer}\n" for answer in expected)
    assert "Starting a new conversation." in result.stderr


def test_commands_do_not_go_to_the_model(path: str) -> None:
    result = run("chat", "--model", path, "-m", "5", input="/help\n/exit\nMost\n")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines()[-1].startswith("Type a message") and "/exit" in result.stderr


def test_a_letter_ends_a_chat_that_is_typed_and_is_text_in_a_pipe(
    path: str, loaded: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("chat", "--model", path, "-m", "5", input="q\n")
    assert result.stdout == from_scratch(loaded, [{"role": "user", "content": "q"}], 5) + "\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: "q")  # for ever
    with pytest.raises(SystemExit) as ended:
        main(["chat", "--model", path, "-m", "5"])
    assert ended.value.code == 0


def test_ctrl_c_forgets_the_turn_that_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter([KeyboardInterrupt(), "Hej ty", EOFError()])

    def typing(prompt: str) -> str:
        if isinstance(line := next(typed), BaseException):
            raise line
        return line

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", typing)
    assert list(_turns()) == ["Hej ty"]


def test_a_line_that_is_not_utf8_is_refused_and_the_next_one_answered(path: str, loaded: tuple[Any, Any]) -> None:
    said = b"ala \xff ma\n" + f"{TURNS[0]}\n".encode()
    result = run("chat", "--model", path, "-m", "5", input=said)
    assert result.exit_code == 1, result.output
    refused, figures = result.stderr.splitlines()
    assert refused.startswith("Error: this turn: not UTF-8 at byte 4. Convert it first")
    assert re.fullmatch(r"5 tokens, [\d.]+ per second, [\d.]+ tokens per pass", figures)
    assert result.stdout == f"{from_scratch(loaded, [{'role': 'user', 'content': TURNS[0]}], 5)}\n"


def test_a_chat_needs_a_template() -> None:
    assert "this model has no chat template" in error_of(run("chat", "--model", demo_path("target")))


@pytest.mark.slow
def test_ctrl_c_stops_the_answer_and_ctrl_d_the_session(path: str) -> None:
    """On a real terminal."""
    import os
    import pty
    import signal
    import time

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "spectool.cli", "chat", "--model", path, "-m", "100000", "--no-history"]
    process = subprocess.Popen(command, stdin=child, stdout=subprocess.PIPE, stderr=child, close_fds=True)
    assert process.stdout is not None
    os.write(parent, TURNS[0].encode() + b"\n")
    first = os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    os.write(parent, b"/reset\n\x04")
    rest = process.stdout.read()
    assert process.wait(60) == 0
    assert first and "…".encode() in rest


def test_generate_takes_what_mlx_lm_takes(path: str, loaded: tuple[Any, Any]) -> None:
    def generated(*arguments: str) -> Any:
        return figures("generate", "--model", path, "-p", TURNS[0], "-m", 12, *arguments)

    whole = generated()["text"]
    system = [{"role": "system", "content": "Krótko."}, {"role": "user", "content": TURNS[0]}]
    assert generated("--system-prompt", "Krótko.")["text"] == from_scratch(loaded, system, 12)
    stop = whole[3:6]
    stopped = generated("--stop", stop)
    assert (stopped["text"], stopped["finish"]) == (whole[: whole.index(stop)], "stop")
    drawn = ["--temp", "0.9", "--top-p", "0.9", "--top-k", "50", "--min-p", "0.01"]
    drawn += ["--repetition-penalty", "1.1", "--seed", "7"]
    assert generated(*drawn)["text"] == generated(*drawn)["text"]
