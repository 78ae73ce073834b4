"""What a chat model writes, taken apart piece by piece."""

import json
from types import SimpleNamespace

import pytest

from spectool.serve.tool_calls import Splitter

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
