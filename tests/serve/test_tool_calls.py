"""What a model writes that calls tools in JSON, taken apart piece by piece: with markers, and without."""

import json
from time import process_time
from typing import Any

import pytest

from spectool.tests.serve.test_call_forms import NOW, Calls, added, as_written, said, splitter_of

CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
SAID = {"said": 'the parser ends at "</tool_call>" \\ and </tool_call>'}


marked = "<tool_call>{}</tool_call>".format


def call(arguments: Any, name: str = "now") -> str:
    return marked(json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False))


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("text", "kept", "calls"),
    [
        # White space after a call comes with the text after it.
        (f"{CALL}\nKrok 1.\n\nKrok 2.", "\nKrok 1.\n\nKrok 2.", NOW),
        (f"A: {CALL}\n{CALL}\n i tak", "A: \n i tak", NOW * 2),
        (f"A: {CALL}\n  \n", "A: ", NOW),
        (f"No <tool_call> here: {CALL}", "No <tool_call> here: ", NOW),
        (f"{CALL}\n<tool_call>no</tool_call>", "\n<tool_call>no</tool_call>", NOW),
        # A call is what it says, and a clear one is no text.
        *(
            (marked(f'{{"name": "now"{end}}}'), "", NOW)
            for end in ("", ', "arguments": null', ', "arguments": " \\n"', ', "id": 1')
        ),
        (marked('{"name": "now", "parameters": {"city": "Łódź"}}'), "", [("now", {"city": "Łódź"})]),
        (marked('{"name": "now", "arguments": "{\\"city\\": \\"Łódź\\"}"}'), "", [("now", {"city": "Łódź"})]),
        (marked('{"arguments": {"city": "a"}, "name": "now"}'), "", [("now", {"city": "a"})]),
        (marked('{"name": "now", "arguments": {"city": "two\nlines"}}'), "", [("now", {"city": "two\nlines"})]),
        (marked('\n[{"name": "now", "arguments": {"days": 3}}]\n'), "", [("now", {"days": 3})]),
        (marked('{"name": "now", "arguments": null, "parameters": {"city": "a"}}'), "", [("now", {"city": "a"})]),
        *((marked(f'{{"name": "now", "{key}": "a"}}'), None, []) for key in ("args", "city")),
        *((marked(f'{{"name": "now", "arguments": {each}}}'), None, []) for each in ("[1]", '"Łódź"', '{"a": NaN}')),
        *((marked(f'{{"name": {name}, "arguments": {{}}}}'), None, []) for name in ('["now"]', '"rm"')),
        # An end in a string is none; JSON can escape half of a surrogate pair, but no answer can hold it.
        (
            f'{call(SAID)}<tool_call>{{"name": "now</tool_call>{CALL} end',
            '<tool_call>{"name": "now</tool_call> end',
            None,
        ),
        (marked('{"name": "now", "arguments": {"a": "\\ude00"}}'), "", [("now", {"a": "\ufffd"})]),
        (marked('{"name": "now", "arguments": {"a": "\\ud83d\\ude00"}}'), "", [("now", {"a": "\U0001f600"})]),
        # A custom tool gets its text, which models also give by itself or under another name.
        *((call({key: "x"}, "patch"), "", [("patch", {"input": "x"})]) for key in ("input", "patch")),
        (call({"input": "x", "force": True}, "patch"), "", [("patch", {"input": "x"})]),
        (call("*** Łata", "patch"), "", [("patch", {"input": "*** Łata"})]),
        (call('{"input": "x"}', "patch"), "", [("patch", {"input": "x"})]),
        *(
            (call(each, "patch"), None, [])
            for each in ({"input": {"a": "x"}}, {"a": "x", "b": "y"}, {"input": 5}, {}, None)
        ),
    ],
)
def test_a_call_is_what_it_says_or_text(size: int, text: str, kept: str | None, calls: Calls | None) -> None:
    calls = [("now", SAID), *NOW] if calls is None else calls
    assert said("json_tools", text, size=size) == (text if kept is None else kept, calls)


_ONE = '{"name": "now", "arguments": {}}'


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "now", "arguments": {"city": "a}b"}}', [{"city": "a}b"}]),
        ('\n {\n  "name" : "now",\n  "arguments": {}\n}\n', [{}]),
        (f"{_ONE}\n{_ONE}", [{}, {}]),
        (f"```json\n{_ONE}\n```", [{}]),
        (f"```\n{_ONE}\n{_ONE}\n```\n", [{}, {}]),
        ('{"name": "now", "arguments": {"city": "```json"}}', [{"city": "```json"}]),
        *(
            (text, None)
            for text in (
                f"{_ONE} is the call.",
                f"{_ONE}\n```\nis the call.",
                f'{_ONE}\n{{"name": "other", "arguments": {{}}}}',
                f"```json\n{_ONE}\n```\nDone.",
                '```json\n{"age": 3}\n```',
                "```python\nprint()\n```",
                "```",
                "`now`",
                _ONE[:-1],
                f"Call: {_ONE}",
                '{"name": "nows", "arguments": {}}',
                '{"name": "Anna", "age": 3}',
                '{"age": 3}',
                "{",
            )
        ),
    ],
)
def test_an_answer_that_is_only_calls_without_markers_is_calls(size: int, text: str, arguments: Any) -> None:
    calls = [("now", each) for each in arguments or ()]
    assert said("json_tools", text, size=size) == ("" if calls else text, calls)
    assert (
        said("json_tools", text, size=size, bare=False) == said("json_tools", text, size=size, tools=[]) == (text, [])
    )


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (_ONE, 1),
        *((f"{before}{_ONE}\n{_ONE[:end]}", 1) for before in ("", "```json\n") for end in (0, 1, 4, 12, 20, -1)),
        (f"```json\n{_ONE}\n``", 1),
        (_ONE[:-1], 0),
        (f"```\n{_ONE[:-4]}", 0),
        *(
            (text, None)
            for text in ("{", "```", f"{_ONE} is the call.", '{"name": "now", "arguments": 3} ', '{"age": 3')
        ),
        (f'{_ONE}\n{{"name": "other", "arguments": {{}}}}', None),
    ],
)
def test_of_calls_without_markers_the_one_that_is_cut_is_left_out(size: int, text: str, calls: int | None) -> None:
    expected = (text, []) if calls is None else ("", NOW * calls)
    assert said("json_tools", text, size=size, cut=True) == expected


def test_json_that_is_too_deep_to_be_read_is_text() -> None:
    text = '{"name": "now", "arguments": {"city": "{}", "days": ' + "[" * 100_000
    assert said("json_tools", text, size=60_000) == (text, [])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json_tools", " " * 60_000),
        ("json_tools", "<tool_call>{</tool_call>" * 1500),
        ("gemma4", "<|tool_call>call:now{a<tool_call|>" * 500),
        ("glm47", f"<tool_call>now<arg_key>{' ' * 4000}</tool_call>"),
        ("minimax_m2", f'<minimax:tool_call><invoke name="now"><parameter {"name=a " * 600}</minimax:tool_call>'),
        ("minicpm5", f'<function name="now"><param name={" " * 30_000}{"a" * 30_000}</function>'),
        ("minicpm5", f"<function name=now{' ' * 60_000}</function>"),
        ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="now" x<|sep|><|open|>argument ' + 'key="a" ' * 8000),
    ],
)
def test_text_that_is_much_like_calls_takes_no_time(kind: str, text: str) -> None:
    began = process_time()
    assert said(kind, text, size=9) == (text, [])
    assert process_time() - began < 3


def test_text_that_cannot_be_a_call_is_not_held_back() -> None:
    held = ("{", ' {"na', '{"name": "wr', "```js", "``` {")
    for text in (*held, '{"age', '{"name": "wo', "```python"):
        splitter = splitter_of("json_tools")
        assert splitter.add(text).text == ("" if text in held else text)
    assert splitter.add('<tool_call>{"name": now}</tool_call> Tak').text == '<tool_call>{"name": now}</tool_call> Tak'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (CALL + '\n<tool_call>\n{"name": "now", "argu', ""),
        (CALL + "<tool_call>", ""),
        (CALL + "\n<tool", ""),
        ('Sprawdzam. <tool_call>{"name": "no', "Sprawdzam. "),
        ("It begins with <tool_call> and goes on", "It begins with <tool_call> and goes on"),
    ],
)
def test_a_call_that_is_cut_is_no_text(text: str, kept: str) -> None:
    assert said("json_tools", text, cut=True) == (kept, NOW * text.count(CALL))
    assert (said("json_tools", text)[0] == kept) == (text == kept)  # what the model ends there is text


HARMONY: dict[str, Any] = {"tool_parser": None, "tool_call_start": None, "chat_template": "<|channel|>analysis"}
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
COMMENTARY, FINAL = "<|channel|>commentary", "<|channel|>final"
WRITE = 'to=functions.write <|constrain|>json<|message|>{"path": "a"}'
THINK = {"think_start": "<think>", "think_end": "</think>"}
MARKED = ("<|open|>response<|sep|>", "<|close|>response<|sep|>")


@pytest.mark.parametrize(
    ("kind", "own", "text", "parts"),
    [
        *(
            ("json_tools", HARMONY, *row)
            for row in (
                (f"{THOUGHT}{FINAL}<|message|>Tak. <a|b>", ("Hm.", "Tak. <a|b>", [])),
                (f"{THOUGHT}{FINAL} <|constrain|>json<|message|>{{}}", ("Hm.", "{}", [])),
                (f"{THOUGHT}{COMMENTARY} {WRITE}", ("Hm.", "", ["write"])),
                (f"{THOUGHT} {WRITE.replace('<|constrain|>', COMMENTARY)}", ("Hm.", "", ["write"])),
                (f"<|channel|>analysis {WRITE}", ("", "", ["write"])),
                (f"{COMMENTARY}<|message|>A.<|end|><|start|>assistant{THOUGHT}{FINAL}<|message|>B", ("Hm.", "A.B", [])),
                (f"{THOUGHT}{COMMENTARY} {WRITE.replace('write', 'r')}", ("Hm.", ' to=functions.r{"path": "a"}', [])),
                ('{"a": 1}', ("", '{"a": 1}', [])),
            )
        ),
        # A call ends reasoning that has no end.
        *(
            (kind, THINK, f"<think>{text}", parts)
            for kind in ("json_tools", "qwen3_coder", "glm47")
            for call in [as_written(kind, NOW)]
            for text, parts in (
                (f"Hm. {call}", ("Hm. ", "", ["now"])),
                (f"Hm. {call}</think>Tak.", (f"Hm. {call}", "Tak.", [])),
                ("A <tool_call> is text.", ("A <tool_call> is text.", "", [])),
            )
        ),
        ("json_tools", THINK, "<think>\n\nHm.</think>\n\nTak.", ("Hm.", "Tak.", [])),
        ("json_tools", {"structural_markers": MARKED}, "Tak.".join(MARKED), ("", "Tak.", [])),
    ],
)
def test_reasoning_text_and_calls_are_told_apart(kind: str, own: Any, text: str, parts: Any) -> None:
    for size in (1, 6, 10**6):
        whole = added(splitter_of(kind, **own), text, size)
        assert (whole.reasoning, whole.text, [call.name for call in whole.calls]) == parts
        if text.endswith(WRITE):
            whole = added(splitter_of(kind, **own), text[:-1], size, cut=True)
            assert not whole.text.strip() and not whole.calls
        if parts[1] == "Tak.":
            assert added(splitter_of(kind, **own), f"{text} ", size, cut=True).text == "Tak. "
