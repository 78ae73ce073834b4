"""Messages as the model expects to read them."""

from collections.abc import Mapping, Sequence
from typing import Any

from spectool import SpectoolError

Message = Mapping[str, str]
_PLACE = "\u2402spectool\u2403"  # stands for the last message, to see where it begins


def messages_of(text: str, system_prompt: str | None = None, prefill_response: str | None = None) -> list[Message]:
    """Return the messages of a single question, the system's before it and the begun answer after it."""
    given = (("system", system_prompt), ("user", text), ("assistant", prefill_response))
    return [{"role": role, "content": content} for role, content in given if content is not None]


def rendered(tokenizer: Any, messages: Sequence[Message], variables: Mapping[str, Any]) -> list[int]:
    """Return the token ids of messages in the model's chat template, ready for the answer.

    A last message of the assistant is an answer begun, to be gone on with.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper`` of a model with a template.
        messages: The conversation.
        variables: Of the template.

    Raises:
        SpectoolError: The template refuses the messages.
    """
    return encode(tokenizer, _text(tokenizer, messages, variables))


def rendered_after(tokenizer: Any, messages: Sequence[Message], variables: Mapping[str, Any]) -> list[int]:
    """Return the ids of the part that the user's message begins, where a prompt cache holds what stands before it.

    Raises:
        SpectoolError: The template refuses the messages, or does not show the user's as it is.
    """
    marked = [{**message, "content": _PLACE} if message["role"] == "user" else message for message in messages]
    begin = _text(tokenizer, marked, variables).find(_PLACE)
    if begin < 0:
        raise SpectoolError(
            "the chat template changes the prompt, so what follows the prompt cache is unknown. "
            "Use --ignore-chat-template"
        )
    return encode(tokenizer, _text(tokenizer, messages, variables)[begin:])


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of rendered text; the template has already written its special tokens."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def _text(tokenizer: Any, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    begun = messages[-1]["role"] == "assistant"
    try:
        text: str = tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            add_generation_prompt=not begun,
            continue_final_message=begun,
            **variables,
        )
        return text
    except Exception as error:  # whatever a template raises
        raise SpectoolError(
            f"the model's chat template refuses the prompt ({str(error)[:200]}). Give the prompt as the model "
            "expects it, with --ignore-chat-template of `spectool generate`"
        ) from error
