"""Messages in the form that the model expects, by its chat template.

Every function that renders raises `TemplateRefused` where the template refuses the messages.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, meta

from spectool import SpectoolError
from spectool.tokenization.incremental.common_prefix import common_prefix

ChatMessage = Mapping[str, Any]
_PLACE = "\u2402spectool\u2403"  # put before a message to see where it begins, or in place of one
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

    One with another first question does, one with a question after the answer, where the template may drop the
    reasoning that the prompt has or asks for, and after a result of a tool the next step. The template and the
    tokenizer show where: they are asked for such prompts.
    """
    question, answer = ({"role": role, "content": _PLACE} for role in ("user", "assistant"))
    first = next((at for at, message in enumerate(messages) if message["role"] == "user"), len(messages))
    answered = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    others: list[tuple[Sequence[ChatMessage], bool]] = [
        ([*messages[:first], question], True),
        ([*answered, answer, question], True),
        *([(messages, False)] if messages[-1]["role"] == "tool" else []),
    ]
    found = set()
    for other, ready in others:
        with suppress(TemplateRefused):
            ids = encode(tokenizer, rendered_text(tokenizer, other, variables, ready=ready))
            found.add(common_prefix(ids, prompt[:-1]))
    return sorted(length for length in found if length >= _WORTHWHILE)


def rendered_text(
    tokenizer: Any, messages: Sequence[ChatMessage], variables: Mapping[str, Any], *, ready: bool = True
) -> str:
    """The text of the messages, ``ready`` for the answer; a last message of the assistant's is continued."""
    begun = messages[-1]["role"] == "assistant"
    try:
        text: str = tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            add_generation_prompt=ready and not begun,
            continue_final_message=begun,
            **variables,
        )
    except Exception as error:  # templates raise all kinds of errors
        raise TemplateRefused(str(error)[:200]) from error
    # Gemma's and Mistral's put a system prompt before the first question, and nowhere if there is none.
    if all(message["role"] == "system" and message["content"].strip() not in text for message in messages):
        raise TemplateRefused("it leaves out a system prompt without a question")
    return text


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
    from transformers import PreTrainedTokenizerBase

    inner = getattr(tokenizer, "_tokenizer", tokenizer)
    own = getattr(tokenizer, "_chat_template", None) or type(inner).apply_chat_template
    is_function = own is not PreTrainedTokenizerBase.apply_chat_template
    names = frozenset(inspect.signature(own).parameters if is_function else ())
    template = inner.chat_template
    templates = template.values() if isinstance(template, dict) else [template]
    return names.union(*(_variables_in(each) for each in templates if isinstance(each, str)))


@lru_cache(maxsize=8)
def _variables_in(template: str) -> frozenset[str]:
    # A tag of transformers' own, around what the assistant says.
    source = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)
    try:
        return frozenset(
            meta.find_undeclared_variables(Environment(extensions=["jinja2.ext.loopcontrols"]).parse(source))
        )
    except (TemplateSyntaxError, RecursionError):  # rendering it will say so
        return frozenset()


def has_channels(tokenizer: Any) -> bool:
    """Whether answers are messages in several channels, as GPT-OSS writes them."""
    return "<|channel|>analysis" in str(getattr(tokenizer, "chat_template", ""))


def begins_reasoning(tokenizer: Any, text: str) -> bool:
    """Whether rendered text ends in the marker after which the model reasons."""
    return bool(tokenizer.has_thinking) and text.rstrip().endswith(tokenizer.think_start)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of rendered text; the template has already written its special tokens."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids
