"""Messages in the form that the model expects, by its chat template.

Every function that renders raises `TemplateRefused` where the template refuses the messages.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, meta

from spectool import SpectoolError
from spectool.tokenization.incremental.common_prefix import common_prefix

ChatMessage = Mapping[str, Any]
_PLACE = "\u2402spectool\u2403"  # put in place of a message, to see where it begins
_WORTHWHILE = 32  # tokens; one pass reads fewer of them in hardly less time


class TemplateRefused(SpectoolError):
    """The chat template refuses the messages; ``reason`` is what it says."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the model's chat template refuses the prompt ({reason}). Give the prompt as the model expects it, with "
            "--ignore-chat-template of `spectool generate`"
        )
        self.reason = reason


def messages_of(text: str, system_prompt: str | None = None) -> list[ChatMessage]:
    """The messages of a single question, with a system prompt before it."""
    given = (("system", system_prompt), ("user", text))
    return [{"role": role, "content": content} for role, content in given if content is not None]


def rendered(tokenizer: Any, messages: Sequence[ChatMessage], variables: Mapping[str, Any]) -> list[int]:
    """Token ids of the messages, as `rendered_text`."""
    return encode(tokenizer, rendered_text(tokenizer, messages, variables))


def branches(
    tokenizer: Any, messages: Sequence[ChatMessage], variables: Mapping[str, Any], prompt: Sequence[int]
) -> list[int]:
    """Lengths at which other prompts are likely to part from ``prompt``, the token ids of ``messages``; in order.

    One with another first question does, one with a question after the answer, where the template may drop reasoning,
    and after a result of a tool the next step. Such prompts are rendered and encoded to see where.
    """
    question, answer = ({"role": role, "content": _PLACE} for role in ("user", "assistant"))
    first = next((at for at, message in enumerate(messages) if message["role"] == "user"), len(messages))
    answered = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    others = [[*messages[:first], question], [*answered, answer, question]]
    others += [list(messages)] if messages[-1]["role"] == "tool" else []
    found = set()
    for other in others:
        with suppress(TemplateRefused):
            ids = encode(tokenizer, rendered_text(tokenizer, other, variables, ready=other[-1] is question))
            found.add(common_prefix(ids, prompt[:-1]))
    return sorted(length for length in found if length >= _WORTHWHILE)


def rendered_text(
    tokenizer: Any, messages: Sequence[ChatMessage], variables: Mapping[str, Any], *, ready: bool = True
) -> str:
    """The text of the messages, ``ready`` for the answer; a last message of the assistant's is continued."""
    begun = messages[-1]["role"] == "assistant"
    end = {"add_generation_prompt": ready and not begun, "continue_final_message": begun}
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, **end, **variables))
    except Exception as error:  # templates raise all kinds of errors
        raise TemplateRefused(str(error)[:200]) from error


def hidden_in(tokenizer: Any, messages: Sequence[ChatMessage], variables: Mapping[str, Any]) -> set[tuple[int, str]]:
    """What the template leaves out: places of messages, and whether it is their ``content`` or their ``tool_calls``.

    Each is rendered as a word of its own, because a template may write a text in another way, as JSON. What the
    assistant says without calls is not looked for, as an answer may continue it.
    """
    marked, words = list[ChatMessage](), dict[tuple[int, str], str]()
    for place, message in enumerate(messages):
        fields: dict[str, Any] = {}
        if message["content"].strip() and (message["role"] != "assistant" or "tool_calls" in message):
            fields["content"] = words[place, "content"] = f"spectool{place}said"
        if calls := [call for call in message.get("tool_calls", ()) if "function" in call]:
            words[place, "tool_calls"] = name = f"spectool{place}called"
            fields["tool_calls"] = [{**call, "function": {**call["function"], "name": name}} for call in calls]
        marked.append({**message, **fields})
    try:
        text = rendered_text(tokenizer, marked, variables)
    except TemplateRefused:  # it wants to know more of a text than these words say
        return set()
    shown = set(re.findall(r"spectool\d+(?:said|called)", text))
    return {at for at, word in words.items() if word not in shown}


def variables_of(tokenizer: Any) -> frozenset[str]:
    """Names of the variables that the chat template reads."""
    template = tokenizer.chat_template
    templates = template.values() if isinstance(template, dict) else [template]
    return frozenset[str]().union(*(_variables_in(each) for each in templates if isinstance(each, str)))


@lru_cache(maxsize=8)
def _variables_in(template: str) -> frozenset[str]:
    source = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)  # tags of transformers' own
    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    with suppress(TemplateSyntaxError, RecursionError):  # rendering it will say so
        return frozenset(meta.find_undeclared_variables(environment.parse(source)))
    return frozenset()


def has_channels(tokenizer: Any) -> bool:
    """Whether answers are messages in several channels, as GPT-OSS writes them."""
    return "<|channel|>analysis" in str(getattr(tokenizer, "chat_template", ""))


def begins_reasoning(tokenizer: Any, text: str) -> bool:
    """Whether rendered text ends in the marker after which the model reasons."""
    return bool(tokenizer.has_thinking) and text.rstrip().endswith(tokenizer.think_start)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of rendered text; the template has already written its special tokens."""
    return list(tokenizer.encode(text, add_special_tokens=False))
