"""What a chat model writes, taken apart piece by piece."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from spectool.serve.requests import CUSTOM
from spectool.serve.splitter import Splitter

CALL = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "weather"}}]
TOKENIZER = SimpleNamespace(
    tool_call_start="<tool_call>",
    tool_call_end="</tool_call>",
    tool_parser=lambda text, tools: json.loads(text),
    think_start=None,
    think_end=None,
)


@pytest.mark.parametrize(
    ("pieces", "text", "calls"),
    [
        ([CALL, "\n", "Krok", " ", "1", ".", "\n\n", "Krok", " ", "2", "."], "\nKrok 1.\n\nKrok 2.", 1),
        (["A:", " ", CALL, "\n", CALL, "\n", " ", "i", " ", "tak"], "A: \n i tak", 2),
        (["A: ", CALL, "\n", "  \n"], "A: ", 1),
        ([f"A: {CALL}\n", "B"], "A: \nB", 1),
        (["No <tool_call> here: ", CALL], "No <tool_call> here: ", 1),
        ([CALL, "\n", "<tool_call>", "no", "</tool_call>"], "\n<tool_call>no</tool_call>", 1),
    ],
)
def test_white_space_after_a_call_comes_with_the_text_after_it(pieces: list[str], text: str, calls: int) -> None:
    splitter = Splitter(TOKENIZER, TOOLS, reasoning=True, thinks=False)
    parts = [splitter.add(piece) for piece in pieces] + [splitter.add("", last=True)]
    assert "".join(part.text for part in parts) == text
    assert sum(len(part.calls) for part in parts) == calls


def test_half_of_a_surrogate_pair_is_a_replacement_character() -> None:
    """JSON can escape it, but no answer can hold it."""
    written = [CALL.replace("{}", f'{{"city": "{city}"}}') for city in ("\\ude00", "\\ud83d\\ude00")]
    parts = Splitter(TOKENIZER, TOOLS, reasoning=True, thinks=False).add("".join(written), last=True)
    assert [json.loads(call.arguments)["city"] for call in parts.calls] == ["\ufffd", "\U0001f600"]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_end_marker_in_a_string_does_not_end_a_call(size: int) -> None:
    said = 'the parser ends at "</tool_call>" \\ and </tool_call>'
    call = CALL.replace("{}", json.dumps({"said": said}))
    broken = '<tool_call>{"name": "weather</tool_call>'
    text = f"{call}{broken}{CALL} end"
    splitter = Splitter(TOKENIZER, TOOLS, reasoning=True, thinks=False)
    parts = [splitter.add(text[start : start + size]) for start in range(0, len(text), size)]
    parts.append(splitter.add("", last=True))
    assert [json.loads(call.arguments) for part in parts for call in part.calls] == [{"said": said}, {}]
    assert "".join(part.text for part in parts) == f"{broken} end"


def said(
    text: str, *, size: int = 1000, tools: Any = TOOLS, cut: bool = False, **options: Any
) -> tuple[str, list[Any]]:
    """The text and the calls, as names and arguments, of an answer that comes in pieces of ``size`` characters."""
    splitter = Splitter(TOKENIZER, tools, reasoning=True, thinks=False, **options)
    parts = [splitter.add(text[start : start + size]) for start in range(0, len(text), size)]
    parts.append(splitter.add("", last=True, cut=cut))
    calls = [(call.name, json.loads(call.arguments)) for part in parts for call in part.calls]
    return "".join(part.text for part in parts), calls


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        *(
            (f'{{"name": "weather"{end}}}', {})
            for end in ("", ', "arguments": null', ', "arguments": " \\n"', ', "id": 1')
        ),
        ('{"name": "weather", "parameters": {"city": "Łódź"}}', {"city": "Łódź"}),
        ('{"name": "weather", "arguments": "{\\"city\\": \\"Łódź\\"}"}', {"city": "Łódź"}),
        ('{"arguments": {"city": "a"}, "name": "weather"}', {"city": "a"}),
        ('{"name": "weather", "arguments": {"city": "two\nlines"}}', {"city": "two\nlines"}),
        ('\n[{"name": "weather", "arguments": {"days": 3}}]\n', {"days": 3}),
        ('{"name": "weather", "arguments": null, "parameters": {"city": "a"}}', {"city": "a"}),
        *((f'{{"name": "weather", "{key}": "a"}}', None) for key in ("args", "city")),
        *((f'{{"name": "weather", "arguments": {each}}}', None) for each in ("[1]", '"Łódź"', "0", '{"a": NaN}')),
        *((f'{{"name": {name}, "arguments": {{}}}}', None) for name in ('["weather"]', '"rm"')),
    ],
)
def test_a_call_is_what_it_says_and_a_clear_one_is_no_text(size: int, body: str, arguments: Any) -> None:
    text = f"<tool_call>{body}</tool_call>"
    expected = (text, []) if arguments is None else ("", [("weather", arguments)])
    assert said(text, size=size) == expected


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ({"input": "x"}, "x"),
        ({"patch": "*** Łata"}, "*** Łata"),
        ({"input": "x", "force": True}, "x"),
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"input": "x"}', "x"),
        ({"input": {"patch": "x", "force": True}}, None),
        ({"a": "x", "b": "y"}, None),
        ({"input": None}, None),
        ({"input": 5}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_custom_tool_gets_its_text_or_the_call_stays_one(arguments: Any, given: str | None) -> None:
    tools = [{"type": "function", "function": {"name": "patch", "parameters": CUSTOM}}]
    text = f"<tool_call>{json.dumps({'name': 'patch', 'arguments': arguments}, ensure_ascii=False)}</tool_call>"
    expected = (text, []) if given is None else ("", [("patch", {"input": given})])
    assert said(text, tools=tools) == expected


_ONE = '{"name": "weather", "arguments": {}}'


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "weather", "arguments": {"city": "a}b"}}', [{"city": "a}b"}]),
        ('\n {\n  "name" : "weather",\n  "arguments": {}\n}\n', [{}]),
        (f"{_ONE}\n{_ONE}", [{}, {}]),
        (f"```json\n{_ONE}\n```", [{}]),
        (f"```\n{_ONE}\n{_ONE}\n```\n", [{}, {}]),
        ('{"name": "weather", "arguments": {"city": "```json"}}', [{"city": "```json"}]),
        (f"{_ONE} is the call.", None),
        (f"{_ONE}\n```\nis the call.", None),
        (f'{_ONE}\n{{"name": "other", "arguments": {{}}}}', None),
        (f"```json\n{_ONE}\n```\nDone.", None),
        ('```json\n{"age": 3}\n```', None),
        ("```python\nprint()\n```", None),
        ("```", None),
        ("`weather`", None),
        ('{"name": "weather", "arguments": {}', None),
        ('Call: {"name": "weather", "arguments": {}}', None),
        ('{"name": "weathers", "arguments": {}}', None),
        ('{"name": "Anna", "age": 3}', None),
        ('{"age": 3}', None),
        ("{", None),
    ],
)
def test_an_answer_that_is_only_calls_without_markers_is_calls(size: int, text: str, arguments: Any) -> None:
    assert said(text, size=size) == (
        (text, []) if arguments is None else ("", [("weather", each) for each in arguments])
    )
    assert said(text, size=size, bare=False) == (text, [])
    assert said(text, size=size, tools=[]) == (text, [])


def test_json_that_is_too_deep_to_be_read_is_text() -> None:
    text = '{"name": "weather", "arguments": {"city": "{}", "days": ' + "[" * 100_000
    assert said(text, size=60_000) == (text, [])


def test_text_that_cannot_be_a_call_is_not_held_back() -> None:
    for first, held in (
        ("{", True),
        (' {"na', True),
        ('{"name": "we', True),
        ('{"age', False),
        ('{"name": "wo', False),
        ("```js", True),
        ("```python", False),
        ("``` {", True),
    ):
        splitter = Splitter(TOKENIZER, TOOLS, reasoning=True, thinks=False)
        assert splitter.add(first).text == ("" if held else first)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (CALL + '\n<tool_call>\n{"name": "weather", "argu', ""),
        (CALL + "<tool_call>", ""),
        (CALL + "\n<tool", ""),
        ('Sprawdzam. <tool_call>{"name": "wea', "Sprawdzam. "),
        ("It begins with <tool_call> and goes on", "It begins with <tool_call> and goes on"),
    ],
)
def test_a_call_that_is_cut_is_no_text(text: str, kept: str) -> None:
    calls = [("weather", {})] * text.count(CALL)
    assert said(text, cut=True) == (kept, calls)
    assert (said(text)[0] == kept) == (text == kept)  # what the model ends there is text


@pytest.mark.parametrize("pieces", [["<think>\n\nHm.</think>\n\nTak."], list("<think>\n\nHm.</think>\n\nTak.")])
def test_line_ends_after_markers_of_reasoning_are_left_out_however_they_come(pieces: list[str]) -> None:
    tokenizer = SimpleNamespace(**vars(TOKENIZER) | {"think_start": "<think>", "think_end": "</think>"})
    splitter = Splitter(tokenizer, [], reasoning=True, thinks=False)
    parts = [splitter.add(piece) for piece in pieces] + [splitter.add("", last=True)]
    assert "".join(part.reasoning for part in parts) == "Hm."
    assert "".join(part.text for part in parts) == "Tak."
