"""The forms in which models write calls of tools, in one table, and how each is read.

A call is read with all of its arguments, as they were written: strings with all their spaces, whole numbers with all
their digits, and values of the types that the tool's schema allows. What cannot be read in that way is left over. No
pattern takes more than linear time for a text, because a user can have a model write the worst case.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from spectool.runtime.chat_template import has_channels
from spectool.runtime.mlx_lm_compat import form_of_calls
from spectool.serve.deltas import Call
from spectool.serve.request_parts import CUSTOM


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


JSON = json.JSONDecoder(strict=False, object_pairs_hook=_unique, parse_constant=int)  # NaN is none
"""Reads JSON with line ends in strings, which models write."""
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}  # Python's in JSON
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_KINDS[type(None)] = "null"
_ALL_KINDS = {*_KINDS.values()}
_OBJECTS = re.compile(r"\s*(?:\[\s*)?\{")  # calls in JSON, perhaps in a list


def _named(call: Any) -> tuple[str, Any]:
    """The name and the arguments of the call that an object in JSON stands for."""
    given = [call[name] for name in ("arguments", "parameters") if call.get(name) not in (None, {}, "")]
    if len(given) > 1 or call.keys() - {"name", "arguments", "parameters", "id", "type"}:
        raise ValueError("arguments that stand somewhere else would be lost")
    return call["name"], given[0] if given else None


class Form:
    """Calls between a ``start`` and an ``end``; without one, another start or the end of the answer ends them.

    All models know calls as objects of JSON. Regular expressions give what else stands around the arguments: ``call``
    has the name, and perhaps an id, and ``call_end`` ends the arguments, which are JSON once the text is
    ``translated``, or stand between two ``tags``, of which the first has a name and perhaps a type. ``begins`` say how
    calls go on after the start, without white space; {} is the name of a tool.

    A string between tags ends where another argument or the end of the call follows: it may have ends in it, and whole
    arguments, if they are not named as those of the tool: otherwise an argument was not closed, and the call is text.
    ``bare`` takes off what stands around a value, and gives None if that is not whole.
    """

    def __init__(
        self,
        start: str,
        end: str,
        *begins: str,
        call: str = "(?!)",
        call_end: str = "",
        tags: tuple[str, str] = ("", ""),
        translated: Callable[[str], str] = str,
        bare: Callable[[str], str | None] = str,
    ) -> None:
        argument, value_end = tags
        self.start, self.end = start, end
        self.begins = (*begins, "{{", "[{{") if start else begins
        self.verbatim = bool(argument)  # whether strings stand there as they are
        self.closes = bool(call_end) or not argument  # whether calls end by themselves, so that the end may be missing
        # What shows that calls may be whole, and how much of it belongs to them.
        self.mark, self.skipped = (end, len(end)) if end and not argument else (start, 0)
        self._translated, self._bare = translated, bare
        if argument:
            call_end = rf"{call_end}\s*(?=\Z{'|' + call if call_end else ''})"
        within = rf"(?>{argument}(?:(?!{argument}).)*?{value_end})"  # a whole argument of an example
        value = rf"((?:{within}|(?!{argument}).)*?){value_end}\s*(?={argument}|{call_end})"
        self._call, self._call_end = re.compile(rf"{call}\s*"), re.compile(call_end)
        self._argument, self._value = re.compile(argument), re.compile(value, re.DOTALL)

    def read(self, text: str, tools: Mapping[str, Any]) -> tuple[list[Call], str]:
        """The calls at the beginning of a text, and what follows them; raises errors of all kinds if it has none.

        ``tools`` has the schemas of the arguments of those that are offered, by their names; None for one without.
        """
        if self is not BARE and _OBJECTS.match(text):
            return BARE.read(text, tools)
        text = self._translated(text).lstrip()
        calls, in_list = list[Call](), text.startswith("[")
        text = text[in_list:].lstrip()
        while head := self._call.match(text):
            name = head[1].strip() if self.verbatim else head["name"]
            name = name if name in tools else re.split("[.:]", name)[-1]  # Gemma 4 makes namespaces up
            try:
                if self.verbatim:
                    arguments, place = self._tagged(text, head.end(), tools[name] or {})
                else:
                    arguments, place = JSON.raw_decode(text, head.end())
            except (ValueError, RecursionError):
                break
            if not (found := self._call_end.match(text, place)):
                break
            if self is BARE:
                name, arguments = _named(arguments)
            calls.append(Call(head.groupdict().get("id") or "", name, _checked(arguments, tools[name])))
            text = text[found.end() :].lstrip()
            text = text.removeprefix(",").lstrip() if in_list else text
        if in_list:  # which has to end
            text = text[1:] if text.startswith("]") else f"[{text}"
        return calls, text

    def _tagged(self, text: str, place: int, schema: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The arguments that stand between tags from a place on, and where they end."""
        arguments, own = dict[str, Any](), schema.get("properties") or {}
        while opening := self._argument.match(text, place):
            name, *kinds = opening.groups()
            found = self._value.match(text, opening.end())
            if found is None or (value := self._bare(found[1])) is None:
                raise ValueError(f"{name} is not whole")
            within = {str(example[1]).strip() for example in self._argument.finditer(found[1])}
            if within & own.keys() or (within and not own):
                raise ValueError(f"{name} is not closed")
            if name is None:  # Kimi K3 may write all of them as one object
                given = JSON.decode(value)
            else:
                among = {"type": kinds[0]} if any(kinds) else own.get(name.strip(), schema.get("additionalProperties"))
                given = {name.strip(): _typed(value, among, schema)}
            arguments, place = _unique([*arguments.items(), *given.items()]), found.end()
        return arguments, place


def _typed(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that is written like this: a string where ``schema``, a part of ``root``, has one and it is no JSON."""
    kinds = _kinds(schema, root)
    with suppress(ValueError, RecursionError):
        value = JSON.decode(text if "string" in kinds else _CONSTANTS.get(text.strip(), text))
        fits = _KINDS[type(value)] in kinds or ("integer" in kinds and isinstance(value, float) and value.is_integer())
        exact = "string" not in kinds or isinstance(value, list | dict) or json.dumps(value) == text
        if fits and exact and not isinstance(value, str):
            return value
    if "string" not in kinds:
        raise ValueError(f"{text!r} is none of {kinds}")
    return text


def _kinds(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """The types of JSON that a part of the schema ``root`` allows: all of them if it does not say."""
    kinds, parts, seen = set[str](), [schema], set[int]()
    while parts:
        said = part if isinstance(part := parts.pop(), dict) else {}
        if said and id(said) in seen:  # references may be many, and go round in circles
            continue
        seen.add(id(said))
        values = said.get("enum") or ([said["const"]] if "const" in said else [])
        given = said.get("type") or [_KINDS[type(value)] for value in values]
        own = {given} if isinstance(given, str) else set(given)
        choices = [each for name in ("anyOf", "oneOf", "allOf") for each in said.get(name, ())]
        choices += [_pointed_to(said["$ref"], root)] if "$ref" in said else []
        if choices and not own:
            parts += choices
        else:
            kinds |= own & _ALL_KINDS or _ALL_KINDS
        kinds |= {"null"} if said.get("nullable") else set()
    return kinds | ({"integer"} if "number" in kinds else set()) or _ALL_KINDS


def _pointed_to(reference: str, root: Any) -> Any:
    """The part of a schema that a JSON pointer in it means (RFC 6901); None where it leads nowhere."""
    try:
        for name in unquote(reference).removeprefix("#/").split("/"):
            root = root[int(name) if isinstance(root, list) else name.replace("~1", "/").replace("~0", "~")]
    except (LookupError, ValueError, TypeError):
        return None
    return root


_LIKE_JSON = re.compile(
    r"""<\|"\|>(?P<verbatim>.*?)<\|"\|> | <escape>(?P<escape>.*?)<escape> | (?P<closed>(?:,\s*+)?\))
    | "(?P<double>(?:[^"\\]++|\\.)*+)" | '(?P<single>(?:[^'\\]++|\\.)*+)' | (?P<cut>(?:["']|<\|"\|>|<escape>).*)
    | (?<![\w.:$-]) (?: call:(?P<call>[\w.:-]+)\s*(?=\{) | (?P<function>[\w.-]+)\( | (?P<key>[\w.$-]+)\s*[:=]
    | (?P<constant>True|False|None)\b )""",
    re.DOTALL | re.VERBOSE,
)


def in_string(text: str) -> bool:
    """Whether the beginning of calls, in JSON or like it, ends within a string."""
    return any(part.lastgroup == "cut" for part in _LIKE_JSON.finditer(text))


# Escapes in Python's strings; what other characters follow, a backslash is only a backslash.
_ESCAPE = re.compile(
    r"""\\([\n\\'"abfnrtv]|[0-3]?[0-7]{1,2}|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|N\{[^{}]*\})"""
)


def _as_json(text: str) -> str:
    """Calls in Python's or in Gemma's form as JSON, as far as it has the same; what is quoted is read as in Python."""

    def translated(part: re.Match[str]) -> str:
        kind = part.lastgroup or ""
        if kind in ("double", "single"):
            return json.dumps(_ESCAPE.sub(lambda each: each[0].encode("ascii").decode("unicode_escape"), part[kind]))
        if kind in ("closed", "constant"):
            return _CONSTANTS.get(part[kind], "}")
        return part[kind] if kind == "cut" else json.dumps(part[kind]) + {"function": "{", "key": ":"}.get(kind, "")

    return _LIKE_JSON.sub(translated, text)


def _in_cdata(value: str) -> str | None:
    inner, end, after = value.lstrip().removeprefix("<![CDATA[").partition("]]>")
    return value if not value.lstrip().startswith("<![CDATA[") else inner if end and not after.strip() else None


_NAME = r"""\bname\s*=\s*+["']?([^"'<>]++)["']?[^<>]*+>"""
_K3_NAME = r'<\|open\|>{}\b[^<>]{{0,80}}?\b{}="([^"<>]+)"{}[^<>]{{0,80}}<\|sep\|>'.format
_K3_END = r"<\|close\|>{}<\|sep\|>".format
_K3_ARGUMENT = _K3_NAME("argument", "key", r'(?:[^<>]{0,80}?\btype="(\w+)")?')
_K3_TAGS = (rf"(?:{_K3_ARGUMENT}|<\|open\|>json\b[^<>]*<\|sep\|>)", _K3_END("(?:argument|json)"))
_K3: Any = {"call": _K3_NAME("call", "tool", ""), "call_end": _K3_END("call"), "tags": _K3_TAGS}
_K2 = r"(?:<\|tool_call_begin\|>)?\s*(?P<id>(?:functions\.)?(?P<name>[^\s<>:]+):\d+)\s*<\|tool_call_argument_begin\|>"
_K2_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_K2_END = r"\s*(?:<\|tool_call_end\|>)?"
_MISTRAL = r"(?P<name>[^\s\[\]{}]+)(?:\[CALL_ID\](?P<id>[^\s\[\]]*))?(?:\s*\[ARGS\])?\s*(?=\{)"
_QWEN: Any = {"call_end": "</function>", "tags": (r"<parameter=([^<>\n]+)>\n?", r"\n?</parameter>")}
_CPM_START, _CPM_TAGS = ("<function name=", "</function>"), (rf"<param\s+{_NAME}", "</param>")
_CPM: Any = {"call": r"""["']?([^"'<>]++)["']?\s*>""", "tags": _CPM_TAGS, "bare": _in_cdata}
_HARMONY = Form(" to=functions.", "", "{}<|", "{}json", "{}code", call=r"(?P<name>[^\s<]++)[^{}]{0,80}?<\|message\|>")
_TRANSLATED: Any = {"call": r'"(?P<name>[\w.:-]+)"\s*(?=\{)', "translated": _as_json}


def _with_keys(prefix: str = "") -> tuple[Form, ...]:
    argument = rf"<{prefix}arg_key>([^<>]+)</{prefix}arg_key>\s*<{prefix}arg_value>"
    begins, tags = (f"{{}}<{prefix}arg_key>", f"{{}}</{prefix}tool_call>"), (argument, f"</{prefix}arg_value>")
    return (Form(f"<{prefix}tool_call>", f"</{prefix}tool_call>", *begins, call=r"([^<>\s]+)", tags=tags),)


def _invoked(block: str, prefix: str = "") -> tuple[Form, ...]:
    call, end = rf"<{prefix}invoke\b[^<>]{{0,80}}?{_NAME}", f"</{prefix}invoke>"
    tags = (rf"<{prefix}parameter\b[^<>]{{0,80}}?{_NAME}", f"</{prefix}parameter>")
    return (Form(f"<{block}>", f"</{block}>", f"<{prefix}invoke", call=call, call_end=end, tags=tags),)


BARE = Form("", "", *(fence + '{{"name":"{}"' for fence in ("", "```", "```json")), call=r"(?P<name>)(?=\{)")
"""That of objects of JSON, which may be without markers in an answer that is nothing else."""
FORMS: dict[str, tuple[Form, ...]] = {
    "json_tools": (Form("<tool_call>", "</tool_call>"),),
    "mistral": (Form("[TOOL_CALLS]", "", "{}[ARGS]", "{}[CALL_ID]", "{}{{", call=_MISTRAL),),
    "kimi_k2": (Form(*_K2_SECTION, "<|tool_call_begin|>", "functions.{}:", call=_K2, call_end=_K2_END),),
    "pythonic": (Form("<|tool_call_start|>", "<|tool_call_end|>", "[{}(", **_TRANSLATED),),
    "gemma4": (Form("<|tool_call>", "<tool_call|>", "call:", **_TRANSLATED),),
    "function_gemma": (Form("<start_function_call>", "<end_function_call>", "call:", **_TRANSLATED),),
    "glm47": _with_keys(),
    "laguna": _with_keys(),
    "longcat": _with_keys("longcat_"),
    "minimax_m2": _invoked("minimax:tool_call"),
    "muse_spark": _invoked("atem:function_calls", "atem:"),
    "minicpm5": (Form(*_CPM_START, '"{}">', "'{}'>", "{}>", **_CPM),),
    "kimi_k3": (Form("<|open|>tools<|sep|>", "<|close|>tools<|sep|>", "<|open|>call", **_K3),),
    "qwen3_coder": (
        Form("<tool_call>", "</tool_call>", "<function={}>", call=r"<function=([^<>\n]+)>", **_QWEN),
        # Qwen leaves out the start at times.
        Form("<function=", "</tool_call>", "{}>", call=r"([^<>\n]+)>", **_QWEN),
    ),
}
"""The table, by mlx-lm's names of its parsers."""


class CallReader:
    """Reads the calls in one answer."""

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> None:
        """Begin an answer to a request that offers ``tools``; ``forms`` has those of its calls by their starts."""
        forms: tuple[Form, ...] = (_HARMONY,) if has_channels(tokenizer) else ()
        if kind := form_of_calls(tokenizer):
            forms = FORMS.get(kind, (Form(tokenizer.tool_call_start, tokenizer.tool_call_end),))
        self.forms = {form.start: form for form in forms} if tools else {}
        self._tools = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
        names = ["".join(json.dumps(name, ensure_ascii=False)[1:-1].split()) for name in self._tools]
        self._begins = {
            form: [each.format(name) for each in form.begins for name in names] for form in (BARE, *self.forms.values())
        }

    def begins(self, form: Form, text: str) -> bool | None:
        """Whether a text after a start is the beginning of calls; None if it is too short to tell."""
        begins = self._begins[form]
        # Only the beginning is compared, because this is done for every token.
        begun = "".join(text.lstrip()[: 2 * max(map(len, begins))].split())
        if any(begun.startswith(each) for each in begins):
            return True
        return None if any(each.startswith(begun) for each in begins) else False

    def whole(self, form: Form, text: str) -> tuple[list[Call], str]:
        """The calls that a text consists of up to the end of its form, and what follows; none if more stands there."""
        has_end = form.end and (form.end in text if form.verbatim else text.endswith(form.end))
        body, _, after = text.rpartition(form.end) if has_end else (text, "", "")
        calls, rest = self.parsed(form, body) if has_end or form.closes else ([], "")
        return ([], text) if form.end and rest.strip() else (calls, rest + after)

    def parsed(self, form: Form, text: str) -> tuple[list[Call], str]:
        """The calls at the beginning of a text, and what follows; none if one of them is of nothing that is offered."""
        try:
            return form.read(text, self._tools)
        except Exception:  # models write anything
            return [], text


def _checked(given: Any, schema: Any) -> str:
    """The arguments of a call of a tool with this schema, as JSON."""
    arguments = (_input_of if schema == CUSTOM else _object_of)(given)
    written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    # JSON can escape half of a surrogate pair, which UTF-8 does not have.
    return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _object_of(arguments: Any) -> dict[str, Any]:
    """The arguments of a call, which may be an object, JSON of one, or left out."""
    if isinstance(arguments, str):
        arguments = JSON.decode(arguments) if arguments.strip() else None
    if not isinstance(arguments, dict | None):
        raise ValueError
    return arguments or {}


def _input_of(arguments: Any) -> dict[str, str]:
    """The arguments of a custom tool's call: its text, which models also give by itself or under another name."""
    with suppress(ValueError):
        arguments = _object_of(arguments)
    if isinstance(arguments, dict):
        (arguments,) = [arguments["input"]] if isinstance(arguments.get("input"), str) else arguments.values()
    if not isinstance(arguments, str):
        raise ValueError
    return {"input": arguments}
