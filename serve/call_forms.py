"""The forms in which models write calls of tools, in one table, and how each is read.

A call is read with all of its arguments, as they were written: strings with all their spaces, numbers with all their
digits, and values of the types that the tool's schema allows. What cannot be read in that way is left over.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from spectool.runtime.chat_template import has_channels
from spectool.runtime.mlx_lm_compat import form_of_calls
from spectool.serve.schema_values import CONSTANTS, JSON, typed

Tools = Mapping[str, Any]
"""The schemas of the arguments of the tools that are offered, by their names; None for a tool without one."""
Written = tuple[str, Any, str | None]
"""A call as it was written: its name, its arguments and its identifier."""
_BESIDE_ARGUMENTS = {"name", "arguments", "parameters", "id", "type"}  # in the JSON of a call
_OBJECTS = re.compile(r"\s*\[?\s*\{")  # calls in JSON, perhaps in a list


def _named(call: Any) -> Written:
    """The call that an object in JSON stands for."""
    arguments = next((call[name] for name in ("arguments", "parameters") if call.get(name) is not None), None)
    if arguments is None and call.keys() - _BESIDE_ARGUMENTS:
        raise ValueError("arguments that stand somewhere else would be lost")
    return call["name"], arguments, None


class Form:
    """Calls between a start and an end, in JSON: objects that have a name, which all models know, or arguments alone.

    Those stand after a ``header`` with the name, and before ``after``, once the text is ``translated``. ``begins`` says
    how calls go on after the start, without white space; {} is the name of a tool. If there is no ``end``, another
    start or the end of the answer is one.
    """

    closes = True  # whether calls end by themselves, so that the end may be missing
    verbatim = False  # whether strings stand there as they are, so that they may have starts and ends in them

    def __init__(
        self,
        start: str,
        end: str,
        *begins: str,
        header: str = "(?!)",
        after: str = "",
        translated: Callable[[str], str] = str,
    ) -> None:
        self.start, self.end, self.begins = start, end, (*begins, *(("{{", "[{{") if start else ()))
        self._header, self._after, self._translated = re.compile(rf"{header}\s*"), re.compile(after), translated
        outer = "<tool_call>" if end == "</tool_call>" else start
        self.kept = start if outer != start else ""  # where a call itself is the start
        self.tags = (
            rf"(?P<start>{re.escape(outer)})|{re.escape(end)}" if end else rf"(?P<start>(?!))|(?={re.escape(start)})"
        )

    def read(self, text: str, tools: Tools) -> tuple[list[Written], str]:
        """The calls at the beginning of a text, and what follows them; raises errors of all kinds if it has none."""
        text = (text if _OBJECTS.match(text) else self._translated(text)).lstrip()
        calls, in_list = list[Written](), text.startswith("[")
        text = text[in_list:]
        while begun := text.lstrip():
            head = self._header.match(begun)
            try:
                value, place = JSON.raw_decode(begun, head.end() if head else 0)
            except (ValueError, RecursionError):
                break
            closing = self._after.match(begun, place)
            if not closing or not (head or isinstance(value, dict)):
                break
            if head:  # Gemma 4 writes namespaces that nobody has told it
                name = head["name"] if head["name"] in tools else re.split("[.:]", head["name"])[-1]
            calls.append((name, value, head.groupdict().get("id")) if head else _named(value))
            text = begun[closing.end() :]
            text = text.lstrip().removeprefix(",") if in_list else text
        if in_list:  # which has to end
            text = text.lstrip()[1:] if text.lstrip().startswith("]") else f"[{text}"
        return calls, text


_LIKE_JSON = re.compile(
    r"""<\|"\|>(?P<verbatim>.*?)<\|"\|> | <escape>(?P<escape>.*?)<escape> | (?P<closed>\))
    | "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)' | (?P<cut>["'].*)
    | (?<![\w.:$-]) (?: call:(?P<call>[\w.:-]+)\s*(?=\{) | (?P<function>[\w.-]+)\( | (?P<key>[\w.$-]+)\s*[:=]
    | (?P<constant>True|False|None)\b )""",
    re.DOTALL | re.VERBOSE,
)


def _as_json(text: str) -> str:
    """Calls in Python's or in Gemma's form with strings, names and constants of JSON, as far as it has the same."""

    def translated(part: re.Match[str]) -> str:
        kind = part.lastgroup or ""
        if kind in ("double", "single"):  # where the other quote need not be escaped
            other = {'"': r"\"", r"\'": "'"}
            return '"' + re.sub(r"\\.|\"", lambda each: other.get(each[0], each[0]), part[kind], flags=re.DOTALL) + '"'
        if kind in ("closed", "constant"):
            return CONSTANTS.get(part[kind], "}")
        return part[kind] if kind == "cut" else json.dumps(part[kind]) + {"function": "{", "key": ":"}.get(kind, "")

    return _LIKE_JSON.sub(translated, text)


def _unclosed(text: str, tags: str) -> int:
    """The number of tags that are open at the end of a text; ends of nothing do not count."""
    depth = 0
    for tag in re.finditer(tags, text):
        depth = depth + 1 if tag["start"] else max(0, depth - 1)
    return depth


class _Tagged(Form):
    """Calls whose arguments stand between tags, given as regular expressions; a string ends at its last tag.

    Tags may stand in a string as well, in a text about such calls, but what opens something there has to close it, and
    be no argument of the same tool: otherwise the string was not closed, and the call cannot be read. The
    ``tags`` are those of a call, of its end (with the text if there is none), of an argument, and of its end. ``bare``
    takes off what stands around a value, and gives None if that is not whole.
    """

    verbatim = True

    def __init__(
        self, start: str, end: str, *begins: str, tags: tuple[str, ...], bare: Callable[[str], str | None] = str
    ) -> None:
        super().__init__(start, end, *begins)
        self._bare = bare
        call, call_end, argument, value_end = tags
        self.closes = bool(call_end)
        self._call, self._argument = re.compile(rf"\s*{call}"), re.compile(rf"\s*{argument}")
        self._call_end = re.compile(rf"\s*{call_end}\s*(?=\Z{'|' + call if call_end else ''})")
        self._value_end = re.compile(rf"{value_end}(?=\s*{argument}|{self._call_end.pattern})")
        self._pairs = [f"(?P<start>{argument})|{value_end}", *([f"(?P<start>{call})|{call_end}"] if call_end else [])]

    def read(self, text: str, tools: Tools) -> tuple[list[Written], str]:
        """As it is said there."""
        if _OBJECTS.match(text):
            return super().read(text, tools)
        calls, text = list[Written](), self.kept + text
        while head := self._call.match(text):
            place, schema, arguments = head.end(), tools[head[1]] or {}, dict[str, Any]()
            own = schema.get("properties") or {}
            while opening := self._argument.match(text, place):
                name, kind = (*opening.groups(), None)[:2]
                value, place = self._value(text, opening.end(), own)
                if place < 0 or name in arguments:
                    return calls, text
                among = {"type": kind} if kind else own.get(name, schema.get("additionalProperties"))
                arguments |= JSON.decode(value) if name is None else {name: typed(value, among, schema)}
            if not (end := self._call_end.match(text, place)):
                break
            calls.append((head[1], arguments, None))
            text = text[end.end() :]
        return calls, text

    def _value(self, text: str, place: int, own: Mapping[str, Any]) -> tuple[str, int]:
        """The value of an argument that begins at a place, and where it ends; -1 if that cannot be told."""
        for end in self._value_end.finditer(text, place):
            value = text[place : end.start()]
            inner = {tag[1] for tag in self._argument.finditer(value)}
            unsure = inner & own.keys() or (inner and not own) or any(_unclosed(value, pair) for pair in self._pairs)
            if not unsure and (bare := self._bare(value)) is not None:
                return bare, end.end()
        return "", -1


def _of_lines(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _in_cdata(value: str) -> str | None:
    inner, end, after = value.lstrip().removeprefix("<![CDATA[").partition("]]>")
    return value if not value.lstrip().startswith("<![CDATA[") else inner if end and not after.strip() else None


# The table, by mlx-lm's names of its parsers.
_QWEN = (r"<function=([^<>\n]+)>", "</function>", r"<parameter=([^<>\n]+)>", "</parameter>")
_NAME = r"""\bname\s*=\s*["']?([^"'<>]+)["']?[^<>]*>"""
_NAMED = (r"""["']?([^"'<>]+)["']?\s*>""", "", rf"<param\s+{_NAME}", "</param>")
_K3_NAME = r'<\|open\|>{}\b[^<>]*?\b{}="([^"<>]+)"{}[^<>]*<\|sep\|>'.format
_K3_TYPE = r'(?:[^<>]*?\btype="(\w+)")?'
_K3_VALUE = f"(?:{_K3_NAME('argument', 'key', _K3_TYPE)}|<\\|open\\|>json\\b[^<>]*<\\|sep\\|>)"
_K3 = (_K3_NAME("call", "tool", ""), r"<\|close\|>call<\|sep\|>", _K3_VALUE, r"<\|close\|>(?:argument|json)<\|sep\|>")
_K2 = r"(?:<\|tool_call_begin\|>)?\s*(?P<id>(?:functions\.)?(?P<name>[^\s<>:]+):\d+)\s*<\|tool_call_argument_begin\|>"
_K2_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_MISTRAL = r"(?P<name>[^\s\[\]{}]+)(?:\[CALL_ID\](?P<id>[^\s\[\]]*))?(?:\[ARGS\])?\s*(?=\{)"
BARE = Form("", "", *(fence + '{{"name":"{}"' for fence in ("", "```", "```json")))
"""That of calls without markers, in an answer that is nothing else."""
_HARMONY = Form(" to=functions.", "", "{}<|", "{}json", "{}code", header=r"(?P<name>[^\s<]+)[^{}]*?<\|message\|>")
_TRANSLATED: dict[str, Any] = {"header": r'"(?P<name>[\w.:-]+)"\s*(?=\{)', "translated": _as_json}


def _with_keys(prefix: str = "") -> tuple[Form, ...]:
    argument = rf"<{prefix}arg_key>\s*([^<>]+?)\s*</{prefix}arg_key>\s*<{prefix}arg_value>"
    tags, end = (r"([^<>\s]+)", "", argument, f"</{prefix}arg_value>"), f"</{prefix}tool_call>"
    return (_Tagged(f"<{prefix}tool_call>", end, f"{{}}<{prefix}arg_key>", f"{{}}{end}", tags=tags),)


def _invoked(block: str, prefix: str = "") -> tuple[Form, ...]:
    invoke, parameter = f"{prefix}invoke", f"{prefix}parameter"
    tags = (rf"<{invoke}\b[^<>]*?{_NAME}", f"</{invoke}>", rf"<{parameter}\b[^<>]*?{_NAME}", f"</{parameter}>")
    return (_Tagged(f"<{block}>", f"</{block}>", f"<{invoke}", tags=tags),)


FORMS: dict[str, tuple[Form, ...]] = {
    "json_tools": (Form("<tool_call>", "</tool_call>"),),
    "mistral": (Form("[TOOL_CALLS]", "", "{}[ARGS]", "{}[CALL_ID]", "{}{{", header=_MISTRAL),),
    "kimi_k2": (
        Form(*_K2_SECTION, "<|tool_call_begin|>", "functions.{}:", header=_K2, after=r"\s*(?:<\|tool_call_end\|>)?"),
    ),
    "pythonic": (Form("<|tool_call_start|>", "<|tool_call_end|>", "[{}(", **_TRANSLATED),),
    "gemma4": (Form("<|tool_call>", "<tool_call|>", "call:", **_TRANSLATED),),
    "function_gemma": (Form("<start_function_call>", "<end_function_call>", "call:", **_TRANSLATED),),
    "glm47": _with_keys(),
    "laguna": _with_keys(),
    "longcat": _with_keys("longcat_"),
    "minimax_m2": _invoked("minimax:tool_call"),
    "muse_spark": _invoked("atem:function_calls", "atem:"),
    "minicpm5": (_Tagged("<function name=", "</function>", '"{}">', "'{}'>", "{}>", tags=_NAMED, bare=_in_cdata),),
    "kimi_k3": (_Tagged("<|open|>tools<|sep|>", "<|close|>tools<|sep|>", "<|open|>call", tags=_K3),),
    # Qwen leaves out the start at times.
    "qwen3_coder": tuple(
        _Tagged(start, "</tool_call>", "<function={}>", tags=_QWEN, bare=_of_lines)
        for start in ("<tool_call>", "<function=")
    ),
}


def forms_of(tokenizer: Any) -> tuple[Form, ...]:
    """The forms in which a model writes calls, by the parser that mlx-lm chose for it; none where it has none."""
    if not (kind := form_of_calls(tokenizer)):
        return (_HARMONY,) if has_channels(tokenizer) else ()
    return FORMS.get(kind, (Form(tokenizer.tool_call_start, tokenizer.tool_call_end),))
