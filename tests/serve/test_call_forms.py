"""The forms of tool calls: each as its models write it, cut anywhere, in pieces of any size, with hard texts in it."""

import json
import random
import re
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import pytest
from mlx_lm import tool_parsers

from spectool.serve.call_forms import FORMS
from spectool.serve.deltas import Delta
from spectool.serve.request_parts import CUSTOM
from spectool.serve.splitter import Splitter
from spectool.tests.tiers import nightly

STRING, PATH = {"type": "string"}, {"path": {"type": "string"}}
SCHEMAS: dict[str, Any] = {
    "write": {"type": "object", "properties": {**PATH, "content": STRING}, "required": ["path"]},
    "delete": {"properties": {"folder": STRING, "only_older_than": STRING}, "required": ["folder", "only_older_than"]},
    "now": None,
    "patch": CUSTOM,
    "mcp.files.list": {"properties": PATH},
    "typed": {
        "properties": {
            "text": STRING,
            "perhaps": {"type": ["string", "null"]},
            "optional": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "flag": {"type": "boolean"},
            "large": {"type": "integer"},
            "number": {"type": "number", "nullable": True},
            "either": {"oneOf": [STRING, {"type": "integer"}]},
            "items": {"type": "array"},
            "nested": {"$ref": "#/$defs/nested"},
            "level": {"enum": ["1", "2"]},
            "part": {"$ref": "#/properties/optional/anyOf/0"},
            "escaped": {"$ref": "#/$defs/a~1b%5B%5D"},
            "missing": {"$ref": "#/$defs/missing"},
            "circle": {"anyOf": [{"$ref": "#/properties/circle"}, {"type": "null"}]},
            "often": {"$ref": "#/$defs/0"},
        },
        "$defs": {
            "nested": {"type": "object"},
            "a/b[]": {"type": "boolean"},
            **{str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(40)},
            "40": {"type": "integer"},
        },
        "additionalProperties": STRING,
    },
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
Calls = list[tuple[str, dict[str, Any]]]


def tokenizer_of(kind: str, **own: Any) -> Any:
    parser = import_module(f"mlx_lm.tool_parsers.{kind}")
    names = {"tool_call_start": parser.tool_call_start, "tool_call_end": parser.tool_call_end}
    return SimpleNamespace(
        **{**names, "tool_parser": parser.parse_tool_call, "think_start": None, "think_end": None, **own}
    )


def splitter_of(kind: str, tools: Any = TOOLS, *, bare: bool = True, **own: Any) -> Splitter:
    return Splitter(tokenizer_of(kind, **own), tools, reasoning=False, bare=bare)


def added(splitter: Splitter, text: str, size: int = 10**6, cut: bool = False) -> Delta:
    """An answer that comes in pieces of ``size`` characters."""
    whole = Delta()
    for start in range(0, len(text), size):
        whole.extend(splitter.add(text[start : start + size]))
    whole.extend(splitter.add("", last=True, cut=cut))
    assert len({call.id for call in whole.calls}) == len(whole.calls)
    return whole


def said(kind: str, text: str, *, size: int = 10**6, cut: bool = False, **options: Any) -> tuple[str, Calls]:
    """The text and the calls of an answer."""
    whole = added(splitter_of(kind, **options), text, size, cut)
    return whole.text, [(call.name, json.loads(call.arguments)) for call in whole.calls]


def in_gemma(value: Any, quote: str = '<|"|>') -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{in_gemma(each, quote)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(in_gemma(each, quote) for each in value) + "]"
    return json.dumps(value)


def in_python(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())


# By the kind: a call (name, arguments and number), an argument, and what stands before and after all calls.
TAGS: dict[str, Any] = {
    "qwen3_coder": (
        "<tool_call>\n<function={0}>\n{1}</function>\n</tool_call>\n",
        "<parameter={0}>\n{1}\n</parameter>\n",
    ),
    "glm47": ("<tool_call>{0}\n{1}</tool_call>\n", "<arg_key>{0}</arg_key>\n<arg_value>{1}</arg_value>\n"),
    "minimax_m2": (
        '<invoke name="{0}">\n{1}</invoke>\n',
        '<parameter name="{0}">{1}</parameter>\n',
        "<minimax:tool_call>\n",
        "</minimax:tool_call>",
    ),
    "minicpm5": ('<function name="{0}">{1}</function>', '<param name="{0}">{1}</param>'),
    "kimi_k3": (
        '<|open|>call tool="{0}" index="{2}"<|sep|>{1}<|close|>call<|sep|>',
        '<|open|>argument key="{0}"<|sep|>{1}<|close|>argument<|sep|>',
        "<|open|>tools<|sep|>",
        "<|close|>tools<|sep|>",
    ),
}
TAGS["longcat"] = tuple(
    part.replace("arg_", "longcat_arg_").replace("tool_", "longcat_tool_") for part in TAGS["glm47"]
)
TAGS["laguna"] = tuple(part.replace("\n", "") for part in TAGS["glm47"])
TAGS["muse_spark"] = tuple(
    part.replace("minimax:tool_call", "function_calls").replace("<", "<atem:").replace("<atem:/", "</atem:")
    for part in TAGS["minimax_m2"]
)
CALLS: dict[str, Any] = {
    "json_tools": ('<tool_call>\n{{"name": "{0}", "arguments": {1}}}\n</tool_call>\n', json.dumps),
    "mistral": ("[TOOL_CALLS]{0}[ARGS]{1}", json.dumps),
    "kimi_k2": (
        "<|tool_call_begin|>functions.{0}:{2}<|tool_call_argument_begin|>{1}<|tool_call_end|>",
        json.dumps,
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
    ),
    "pythonic": ("{0}({1}), ", in_python, "<|tool_call_start|>[", "]<|tool_call_end|>"),
    "gemma4": ("<|tool_call>call:{0}{1}<tool_call|>", in_gemma),
    "function_gemma": ("<start_function_call>call:{0}{1}<end_function_call>", partial(in_gemma, quote="<escape>")),
}


def as_written(kind: str, calls: Calls) -> str:
    """Calls as a model of this kind writes them."""
    call, argument, before, after = (*(TAGS | CALLS)[kind], "", "")[:4]
    text = ""
    for number, (name, given) in enumerate(calls):
        values = {key: each if isinstance(each, str) else json.dumps(each) for key, each in given.items()}
        if kind == "minicpm5":
            values = {key: f"<![CDATA[{each}]]>" if set(each) & set("<&\n") else each for key, each in values.items()}
        inner = argument(given) if callable(argument) else "".join(argument.format(*item) for item in values.items())
        text += call.format(name, inner, number)
    return before + text.removesuffix(", ") + after


KINDS = list(TAGS | CALLS)
FILE = "def f(ż):\r\n    return \"x\"\n\n\n\tif 'a' < b: # zażółć \\n"
RIGHT: Calls = [
    ("delete", {"folder": "/home", "only_older_than": "2020-01-01T00:00:00"}),
    ("now", {}),
    ("write", {"path": "/ą b", "content": FILE}),
]
TYPED = {
    "text": "null",
    "perhaps": None,
    "optional": 5,
    "flag": False,
    "large": 9007199254740993,
    "number": -1.5,
    "items": [1, {"a": ["b"]}],
    "nested": {"b": {"c": "d", "e": None}},
}
# Each in a form, with its calls; where there are none, all of it is text.
EXAMPLES: list[tuple[str, str, Calls]] = [
    (kind, as_written(kind, calls), calls)
    for kind in KINDS
    for calls in (
        [RIGHT[0]],
        RIGHT,
        [("typed", {**TYPED, "either": "01234"}), ("patch", {"input": "*** Łata"})],
        [("write", {"path": "/a", "content": "    return x\n"}), ("write", {"path": "b"})],
    )
]


def test_every_form_that_mlx_lm_knows_is_in_the_table_and_has_examples() -> None:
    assert {*KINDS} == {*FORMS} == {module.name for module in iter_modules(tool_parsers.__path__)}


@pytest.mark.parametrize(("kind", "text", "calls"), EXAMPLES)
def test_calls_are_what_was_written_in_pieces_of_any_size(kind: str, text: str, calls: Calls) -> None:
    for size in (1, 2, 3, 5, 8, 13, 21, 34, 10**6):
        rest, found = said(kind, text, size=size)
        assert found == calls, size
        assert rest.strip() == ""


@pytest.mark.parametrize("step", [19, *nightly(1)])
@pytest.mark.parametrize(("kind", "text", "calls"), EXAMPLES)
def test_a_call_that_is_cut_is_left_out_wherever_it_is_cut(kind: str, text: str, calls: Calls, step: int) -> None:
    start = max(len(form.start) for form in FORMS[kind])
    for place in range(0, len(text), step):
        for cut, size in ((True, 7), (False, 10**6)):
            rest, found = said(kind, text[:place], cut=cut, size=size)
            assert found == calls[: len(found)], (place, cut)
            if cut:
                assert rest.strip() == "" or (place < start and not found), (place, rest)
            elif not found:
                assert rest == text[:place], place


QWEN = "<tool_call>\n<function=write>\n{}\n</function>\n</tool_call>"
PARAMETER = "<parameter={}>\n{}\n</parameter>".format
K3_JSON = '<|open|>json type="object"<|sep|>{}<|close|>json<|sep|>'
K3_JSON = as_written("kimi_k3", [("write", {})]).replace("<|close|>call", f"{K3_JSON}<|close|>call")
CPM, A = '<function name="write"><param name="path">{}</param></function>', {"path": "/a"}
NOW: Calls = [("now", {})]
WRITE = '<|tool_call_start|>[write(path="/a", content={})]<|tool_call_end|>'.format


@pytest.mark.parametrize(
    ("kind", "text", "calls"),
    [
        # Several calls in one block.
        ("qwen3_coder", QWEN.format("</function>\n<function=now>"), [("write", {}), ("now", {})]),
        ("json_tools", '<tool_call>{"name": "now"}\n{"name": "now"}</tool_call>', NOW * 2),
        ("function_gemma", "<start_function_call>call:now{}call:now{}<end_function_call>", NOW * 2),
        ("kimi_k2", as_written("kimi_k2", RIGHT).replace("}<|tool_call_end|>", "<|tool_call_end|>", 1), []),
        ("kimi_k3", as_written("kimi_k3", RIGHT).replace("<|close|>call<|sep|>", "", 1), []),
        ("kimi_k3", K3_JSON.format('{"path": "a", "content": 5}'), {"path": "a", "content": 5}),
        ("kimi_k3", K3_JSON.format("[]"), []),
        # Without the start, with text after it, with identifiers, dots and names of others.
        ("qwen3_coder", QWEN.format(PARAMETER("path", "a")).removeprefix("<tool_call>\n"), {"path": "a"}),
        ("mistral", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", NOW),
        ("mistral", '[TOOL_CALLS]mcp.files.list [ARGS] {"path": "a"}', [("mcp.files.list", {"path": "a"})]),
        ("mistral", '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now"}]', NOW * 2),
        ("gemma4", "<|tool_call>call:google:mcp:files:now{}<tool_call|>", NOW),
        ("gemma4", "<|tool_call>call:write{a: 'it\\'s, {a}', b: \"c\"}<tool_call|>", {"a": "it's, {a}", "b": "c"}),
        ("function_gemma", "<start_function_call>call:write{a:{b:{c:1}}}<end_function_call>", {"a": {"b": {"c": 1}}}),
        ("minicpm5", CPM.format("<![CDATA[a</param>\n]]>"), {"path": "a</param>\n"}),
        ("glm47", '<tool_call>{"name": "now"}</tool_call>', NOW),
        # Python.
        ("pythonic", WRITE("'it\\'s one, two\nthree'"), {**A, "content": "it's one, two\nthree"}),
        ("pythonic", WRITE("'say \"a\"'"), {**A, "content": 'say "a"'}),
        ("pythonic", WRITE("'a\\\nb',"), {**A, "content": "ab"}),
        ("pythonic", WRITE(r"""'s\/a\d\x1b\0\\n\N{EM DASH}'"""), {**A, "content": "s\\/a\\d\x1b\0\\n—"}),
        ("pythonic", WRITE(r"'\N{NO SUCH NAME}'"), []),
        ("pythonic", WRITE("r'a'"), []),
        ("pythonic", WRITE("'a' 'b'"), []),
        ("pythonic", "<|tool_call_start|>[write('/a', 'x')]<|tool_call_end|>", []),
        ("pythonic", WRITE("True, b=None, c=[1, {'a': 'b'}]"), {**A, "content": True, "b": None, "c": [1, {"a": "b"}]}),
        # What could be more than one call, or none.
        ("glm47", "<tool_call>write about Paris</tool_call>", []),
        ("glm47", "<tool_call>write<arg_key>path</arg_key><arg_value>a</arg_value>", []),
        ("qwen3_coder", QWEN.format("<parameter=path>\na\n" + PARAMETER("content", "b")), []),
        ("qwen3_coder", QWEN.format(PARAMETER("path", "a") + PARAMETER("path", "b")), []),
        ("qwen3_coder", QWEN.format("a" + PARAMETER("path", "a")), []),
        ("qwen3_coder", "Write `<tool_call>` and `<function=write>`.", []),
        ("json_tools", '<tool_call>{"name": "write", "arguments": {"path": "a", "path": "b"}}</tool_call>', []),
        ("json_tools", '<tool_call>{"name": "write", "arguments": {"path": "a"}, "content": "b"}</tool_call>', []),
        ("json_tools", '<tool_call>{"name": "now", "arguments": {"a": 1}, "parameters": {"b": 2}}</tool_call>', []),
        ("json_tools", '<tool_call>{"name": "write", "arguments": {}, "parameters": {"b": 2}}</tool_call>', {"b": 2}),
    ],
)
def test_odd_calls_are_read_as_they_are_or_stay_text(kind: str, text: str, calls: Any) -> None:
    """``calls`` may be the arguments of one that writes."""
    calls = [("write", calls)] if isinstance(calls, dict) else calls
    for size in (1, 5, 10**6):
        assert said(kind, text, size=size) == ("" if calls else text, calls)


VALUES: dict[str, dict[str, Any]] = {  # of arguments, as they are written and read; ... for none
    "perhaps": {"12345": "12345", "null": None},
    "optional": {"5": 5, "five": ...},
    "flag": {"yes": ..., "1": ..., "True": True},
    "large": {"1.5": ..., "007": ...},
    "number": {"None": None, "NaN": ...},
    "either": {"5": 5, "05": "05"},
    "items": {"[1": ..., "{}": ...},
    "nested": {'{"a": 1, "a": 2}': ..., '{"a": 1}': {"a": 1}},
    "level": {"2": "2", "x": "x"},
    "other": {"7": "7"},
    "part": {"5": 5, "x": ...},
    "escaped": {"true": True, "5": ...},
    "missing": {"5": 5, "x": "x"},
    "circle": {"null": None, "x": ...},
    "often": {"5": 5, "x": ...},
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_a_type_of_the_schema_or_the_call_is_text(name: str) -> None:
    for text, value in VALUES[name].items():
        written = QWEN.format(PARAMETER(name, text)).replace("write", "typed")
        assert said("qwen3_coder", written) == ((written, []) if value is ... else ("", [("typed", {name: value})]))


@pytest.mark.parametrize("kind", KINDS)
def test_files_about_calls_arrive_as_they_are(kind: str) -> None:
    """Closing tags in a string, alone and all of them, are read as what they are, and so is a whole call."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    example = as_written(kind, [("typed", {"text": "x"})])
    tags = re.findall(r"<[^<>]*>|\[\w+\]", example) if kind in TAGS else [FORMS[kind][0].start, FORMS[kind][0].end]
    closing = [tag for tag in tags if "</" in tag or "|close" in tag or tag == FORMS[kind][0].end]
    lines = ["    return x\n", "zażółć", "\r\n", "\t'a' < \"b\"\\n", "\\", " ", "\n\n", "{}", "]"]
    for number in range(40):
        alone = [f"{tag}." for tag in closing]
        more = (
            alone,
            [*alone, example if kind in TAGS else ""],
            ["".join(closing)],
            [tag for tag in tags if tag not in closing],
        )
        content = "".join(rng.choices([*lines, *more[number % 4]], k=rng.randint(1, 12)))
        calls: Calls = [
            ("write", {"path": "/a", "content": content}),
            ("delete", {"folder": content, "only_older_than": ""}),
        ]
        calls = calls[: rng.randint(1, 2)]
        text, after = as_written(kind, calls), rng.choice(["", "\nGotowe."])
        rest, found = said(kind, text + after, size=rng.randint(1, 30))
        if number % 4 == 3 and not found:  # a tag that opens something can be too much like a call
            assert rest == text + after
        else:
            assert (found, rest.strip()) == (calls, after.strip()), (content, number)
        if number % 4 != 2:
            place = rng.randrange(len(text))
            assert (cut := said(kind, text[:place], cut=True)[1]) == calls[: len(cut)], (content, place)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_of_any_text(kind: str) -> None:
    """Whatever is written, cut into any pieces, text and calls are the same, and without calls the text is whole."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    one, two = as_written(kind, RIGHT[1:2]), as_written(kind, [("write", {"path": "a", "content": "b"}), ("now", {})])
    pieces = [*re.findall(r"<[^<>]*>|\[\w+\]|\w+|[^\w\s]|\s+", two), one, two, "<", "x", "now", '{"name": "now"}', "{"]
    for _ in range(60):
        text, cut = "".join(rng.choices(pieces, k=rng.randint(1, 10))), rng.random() < 0.3
        whole = said(kind, text, cut=cut)
        assert said(kind, text, size=rng.randint(1, 9), cut=cut) == whole, text
        assert cut or whole[1] or whole[0] == text, text


def test_identifiers_are_those_of_the_model_unless_it_repeats_them() -> None:
    for kind, expected in (("kimi_k2", ["functions.now:0", "functions.write:1"]), ("glm47", [])):
        text = as_written(kind, [("now", {}), ("write", {"path": "a"})])
        calls = added(splitter_of(kind), text).calls
        assert [call.id for call in calls] == expected or (not expected and all(len(call.id) == 9 for call in calls))
        assert len(added(splitter_of(kind), text.replace(":1", ":0")).calls) == 2
