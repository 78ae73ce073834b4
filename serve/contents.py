"""The text of what clients write as a list of parts."""

from typing import Any

from spectool.serve.errors import quoted, wrong_field

# The field with the text of a part, by its type.
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_TEXTS["tool_reference"] = "tool_name"
# What stands in the result of a tool for a part that cannot be read, by a word in its type.
_UNREADABLE = {"image": "an image", "screenshot": "an image", "audio": "audio", "document": "a document", "": "a file"}


def joined(content: Any, field: str, *, of_tool: bool = False) -> str:
    """The text of a content: a text, or a list of texts and of parts that have one.

    In the result ``of_tool``, a word stands for what is no text, since the client could not do anything about it.
    """
    if isinstance(content, list):
        return "".join(joined(part, field, of_tool=of_tool) for part in content)
    text, kind, title = content, "", ""
    if isinstance(content, dict):
        kind = str(content.get("type", "text"))
        title = content.get("title") or "" if kind in ("document", "search_result") else ""
        text = content.get(_TEXTS[kind]) if kind in _TEXTS else None
        if kind == "document":
            source = content.get("source")
            data = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
            text = None if data is None else f"{title}\n{data}\n\n"
        elif kind == "search_result":
            inner = joined(content.get("content") or "", field, of_tool=of_tool)
            text = f"{title}\n{content.get('source')}\n{inner}\n\n"
    if isinstance(text, str):
        return text
    if of_tool and isinstance(content, dict):
        what = next(what for word, what in _UNREADABLE.items() if word in kind)
        return f"({what}: {title})" if title else f"({what})"
    raise wrong_field(field, f"expected text, because nothing else can be read, got {quoted(content)}")
