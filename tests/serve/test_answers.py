"""What a model writes and what a client gets: stop texts, tool calls, probabilities, and every character."""

import json
import re
from typing import Any

import httpx
import pytest

from spectool.serve.server import Server
from spectool.tests.serve.questions import MESSAGES, PROMPTS, TOKENS, TOOLS, alone, complete, writing_down
from spectool.tests.serve.servers import client, exchange, post
from spectool.tests.serve.test_call_forms import SCHEMAS, as_written, tokenizer_of

pytestmark = pytest.mark.nightly

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Łódź"}}\n</tool_call>'


def streamed(server: Server, **asked: Any) -> tuple[str, str, str, list[Any]]:
    """Text, reason, reasoning and calls of a streamed text, or of a chat if there are messages."""
    text, end, thought, calls = "", "", "", []
    api = client(server).chat.completions if "messages" in asked else client(server).completions
    for chunk in api.create(stream=True, **asked):  # type: ignore[call-overload]
        choice = chunk.choices[0]
        delta = getattr(choice, "delta", None)
        text += (choice.text if delta is None else delta.content) or ""
        calls += (delta and delta.tool_calls) or []
        thought += getattr(delta, "reasoning_content", "") or ""
        end = choice.finish_reason or end
    return text, end, thought, calls


def chat(server: Server, written: str, **asked: Any) -> Any:
    """The choice of a chat in which the model writes a text; a stream of it must say the same."""
    everything = {"model": "demo", "messages": MESSAGES, "max_tokens": 200, **asked}
    with writing_down(server, written, written):
        choice = client(server).chat.completions.create(**everything).choices[0]
        text, end, thought, calls = streamed(server, **everything)
    assert (text, end) == (choice.message.content or "", choice.finish_reason)
    assert thought == getattr(choice.message, "reasoning_content", "")
    whole = choice.message.tool_calls or []
    assert [(each.index, each.function.arguments) for each in calls] == [
        (place, each.function.arguments) for place, each in enumerate(whole)
    ]
    return choice


def test_stop_texts_end_the_answer_wherever_they_are(server: Server) -> None:
    whole = alone(PROMPTS[0])
    for stop in [*(whole[place : place + 4] for place in range(0, 30, 6)), "ZZZ", f"{whole[-3:]}§"]:
        ended = (whole.partition(stop)[0], "stop" if stop in whole else "length")
        choice = complete(server, PROMPTS[0], stop=["nothing of it", stop]).choices[0]
        assert (choice.text, choice.finish_reason) == ended
        asked = {"model": "default_model", "prompt": PROMPTS[0], "max_tokens": TOKENS, "stop": stop}
        assert streamed(server, **asked)[:2] == ended


def test_a_tool_call_is_one_and_prose_stays_prose(chatting: Server) -> None:
    choice = chat(chatting, f"Sprawdzam. {CALL}\n{CALL}", tools=TOOLS)
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Sprawdzam. ")
    assert [call.function.name for call in choice.message.tool_calls] == ["weather"] * 2
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Łódź"}
    assert len({call.id for call in choice.message.tool_calls}) == 2
    unfinished = CALL.removesuffix("</tool_call>")  # models may end there
    assert chat(chatting, unfinished, tools=TOOLS).message.tool_calls


def test_every_character_arrives(chatting: Server) -> None:
    for written in ("", "\0", "a\0b", "  two", "Ґанок, ščur, 猫, 👩‍👩‍👧", "\r\n\t\x1b[31m", "\u2028"):
        choice = chat(chatting, written)
        assert (choice.message.content, choice.finish_reason) == (written, "stop")


def test_a_stream_can_be_read_line_by_line(chatting: Server) -> None:
    """LiteLLM reads the lines that httpx finds, which knows more ends of lines than a stream of events has."""
    written, asked = "a\x85b\u2028c\u2029d", {"messages": MESSAGES, "max_tokens": 50, "stream": True}
    with (
        writing_down(chatting, written),
        httpx.stream("POST", f"{chatting.url}/v1/chat/completions", json=asked, timeout=60) as answer,
    ):
        chunks = [json.loads(line[6:]) for line in answer.iter_lines() if line not in ("", "data: [DONE]")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == written


def test_the_first_space_of_a_continuation_is_there(server: Server, chatting: Server) -> None:
    assert complete(server, PROMPTS[0]).choices[0].text.startswith(" ")
    assert not complete(server, "", 4).choices[0].text.startswith(" ")
    begun = [{"role": "user", "content": "Stolica?"}, {"role": "assistant", "content": "Stolicą jest"}]
    assert chat(chatting, "Warszawa", messages=begun).message.content == " Warszawa"
    assert chat(chatting, "Warszawa", messages=begun[:1]).message.content == "Warszawa"


def test_one_bos(server: Server) -> None:
    bos = server.engine.model.tokenizer.bos_token
    once, twice = (complete(server, prompt, 4) for prompt in (PROMPTS[0], bos + PROMPTS[0]))
    assert once.usage.prompt_tokens == twice.usage.prompt_tokens
    assert once.choices[0].text == twice.choices[0].text


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_probabilities_are_those_of_the_tokens_that_were_generated(chatting: Server, temperature: float) -> None:
    asked: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": TOKENS, "temperature": temperature}
    for top in (None, 0, 1, 2, 20):
        answer = client(chatting).chat.completions.create(**asked, seed=3, logprobs=True, top_logprobs=top)
        places = answer.choices[0].logprobs.content
        assert len(places) == TOKENS
        written = b"".join(bytes(place.bytes) for place in places)
        assert written.decode(errors="replace").removeprefix(" ") == answer.choices[0].message.content
        for place in places:
            assert place.token == bytes(place.bytes).decode(errors="replace")
            values = [other.logprob for other in place.top_logprobs]
            assert len(values) == (top or 0) and values == sorted(values, reverse=True)
            if values:
                assert place.logprob <= values[0] + 1e-6
                assert (temperature == 0) <= (place.token == place.top_logprobs[0].token)
    plain = client(chatting).chat.completions.create(**asked)
    assert plain.choices[0].logprobs is None


def test_probabilities_of_a_text_are_in_columns_and_end_with_it(server: Server) -> None:
    choice = complete(server, PROMPTS[0], logprobs=2).choices[0]
    columns = choice.logprobs
    assert "".join(columns.tokens) == choice.text
    assert columns.text_offset == [len("".join(columns.tokens[:place])) for place in range(TOKENS)]
    assert all(token in best for token, best in zip(columns.tokens, columns.top_logprobs, strict=True))
    stopped = complete(server, PROMPTS[0], logprobs=0, stop=choice.text[6:12]).choices[0]
    assert "".join(stopped.logprobs.tokens[:-1]) in stopped.text != choice.text
    assert len("".join(stopped.logprobs.tokens)) >= len(stopped.text)


@pytest.mark.parametrize("form", ["", " <|constrain|>json"])
@pytest.mark.parametrize("before", ["<|channel|>analysis<|message|>Hm END.<|end|><|start|>assistant", ""])
def test_stop_texts_of_gpt_oss_end_its_final_channel(
    chatting: Server, monkeypatch: pytest.MonkeyPatch, before: str, form: str
) -> None:
    tokenizer = chatting.engine.model.tokenizer._tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", f"{tokenizer.chat_template}{{# <|channel|>analysis #}}")
    choice = chat(chatting, f"{before}<|channel|>final{form}<|message|>Tak. END Nie.", stop=["END", "json"])
    assert choice.message.content == "Tak. "
    assert getattr(choice.message, "reasoning", "") == ("Hm END." if before else "")


@pytest.mark.parametrize("stream", [False, True])
def test_offsets_are_where_tokens_begin_in_the_text(server: Server, stream: bool) -> None:
    text, tokens = "a 中 bc 😀.", server.engine.model.tokens
    with writing_down(server, text):
        answer = complete(server, PROMPTS[0], logprobs=0, stop=" bc d", stream=stream)  # holds back text
        choices = [each.choices[0] for each in (answer if stream else [answer])]
    found = [offset for choice in choices if choice.logprobs for offset in choice.logprobs.text_offset]
    ids = server.engine.model.tokenizer.encode(text, add_special_tokens=False)
    before = [b"".join(map(tokens.shown_bytes_of, ids[:place])) for place in range(len(ids))]
    assert found == [len(each.decode(errors="ignore")) for each in before]


@pytest.mark.usefixtures("thinking")
def test_reasoning_is_told_apart(chatting: Server) -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    choice = chat(chatting, f"<think>\nHm.</think>\n\nTak. {call}", tools=TOOLS)
    assert (choice.message.reasoning, choice.message.content) == ("Hm.", "Tak. ")
    assert choice.message.reasoning_content == "Hm."  # some clients know one of the names, some the other
    assert re.fullmatch(r"\w{9}", choice.message.tool_calls[0].id)  # which Mistral's templates take
    assert chat(chatting, "Say <think> aloud.").message.content == "Say <think> aloud."
    begun = chat(chatting, "Hm.</think>Tak.", messages=[{"role": "user", "content": "a <think>"}])
    assert (begun.message.reasoning, begun.message.content) == ("Hm.", "Tak.")


@pytest.mark.parametrize("kind", ["qwen3_coder", "glm47", "kimi_k2", "pythonic"])
def test_every_protocol_gets_a_file_as_it_was_written_and_no_part_of_it(
    chatting: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("tool_parser", "tool_call_start", "tool_call_end"):
        monkeypatch.setattr(chatting.engine.model.tokenizer, f"_{name}", getattr(tokenizer_of(kind), name))
    arguments = {"path": "/a", "content": "    return x\n\n</parameter>\n# zażółć \"'\n"}
    text = as_written(kind, [("write", arguments)])
    tool = {"name": "write", "parameters": SCHEMAS["write"]}
    messages = [{"role": "user", "content": "a"}]
    chat: Any = {"model": "demo", "messages": messages, "tools": [{"type": "function", "function": tool}]}
    response: Any = {"model": "demo", "input": "a", "tools": [{"type": "function", **tool}]}
    message: Any = {"messages": messages, "tools": [{"name": "write", "input_schema": SCHEMAS["write"]}]}
    for tokens, ends in ((400, ("tool_calls", "completed", "tool_use")), (35, ("length", "incomplete", "max_tokens"))):
        with writing_down(chatting, *[text] * 5):
            choice = client(chatting).chat.completions.create(**chat, max_tokens=tokens).choices[0]
            _, end, _, calls = streamed(chatting, **chat, max_tokens=tokens)
            whole = client(chatting).responses.create(**response, max_output_tokens=tokens)
            *_, last = client(chatting).responses.create(**response, max_output_tokens=tokens, stream=True)
            raw = json.loads(exchange(chatting, post("/v1/messages", {**message, "max_tokens": tokens}))[2])
        items = [item for each in (whole, last.response) for item in each.output if item.type == "function_call"]
        found = [call.function for call in [*(choice.message.tool_calls or ()), *calls]] + items
        inputs = [json.loads(each.arguments) for each in found]
        inputs += [block["input"] for block in raw["content"] if block["type"] == "tool_use"]
        assert inputs == [arguments] * (5 if tokens == 400 else 0)
        assert (choice.finish_reason, whole.status, raw["stop_reason"]) == ends
        assert (end, last.response.status) == ends[:2]
        assert not choice.message.content and not whole.output_text
