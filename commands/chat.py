"""The command ``chat``."""

import io
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.shared.console import say
from spectool.commands.shared.model_options import follow_rank_0, model_options, open_model
from spectool.commands.shared.options import command, some_text

_HELP = "Type a message and press Enter. /reset starts a new chat, Ctrl-C stops an answer, Ctrl-D or /exit ends it all."
_ENDS, _TYPED_ENDS = ("/exit", "/quit"), ("q", "quit", "exit")  # the latter may be text where lines are piped in


@command("chat", json=False)
@model_options
def chat(model: str, system_prompt: str | None, template_variables: dict[str, Any], **settings: Any) -> None:
    """Chat with a model: the same answers, faster.

    The conversation stays in the model's cache, so only what is new is read at each turn. In piped input, each line is
    a turn, and the exit status is 1 if one of them failed.

    \b
    Examples:
        spectool chat --model ./Bielik-11B --dict pl.dict
        spectool chat --model ./Bielik-11B --draft-model ./Bielik-1.5B --alignment bielik.align --temp 0.7
    """
    follow_rank_0(model, settings["pipeline"], settings["adapter_path"])
    if isinstance(sys.stdin, io.TextIOWrapper):  # a turn that is not UTF-8 is refused, and the next one read
        sys.stdin.reconfigure(encoding=None if sys.stdin.isatty() else "utf-8", errors="surrogateescape")
    target, tokenizer, arguments = open_model(model, **settings)

    from spectool.commands.conversation import Conversation

    begin = partial(Conversation, target, tokenizer, system_prompt, template_variables, **arguments)
    conversation = begin()
    typed, failed = sys.stdin.isatty(), False
    if typed:
        say(f"Chatting with {model}. {_HELP}")
    for line in _turns():
        if (said := line.strip()) in _ENDS or (typed and said in _TYPED_ENDS):
            break
        if said == "/reset":
            conversation = begin()
            say("Starting a new conversation.")
        elif said == "/help":
            say(_HELP)
        elif said:
            failed = not _answer(conversation, line) or failed
    if failed and not typed:
        sys.exit(1)


def _answer(conversation: Any, line: str) -> bool:
    """Stream an answer; Ctrl-C and errors, after which this is False, end the answer and not the conversation."""
    response = None
    try:
        with closing(conversation.answer(some_text(line, "this turn: "))) as responses:
            for response in responses:
                click.echo(response.text, nl=False)
    except KeyboardInterrupt:
        click.echo(" …", nl=False)
    except (SpectoolError, click.BadParameter) as error:
        say(f"Error: {error}")
        return False
    click.echo()
    if response is not None:
        speed = f"{response.generation_tps:.1f} per second, {response.drafting.tokens_per_pass:.2f} tokens per pass"
        say(f"{response.generation_tokens} tokens, {speed}")
    return True


def _turns() -> Iterator[str]:
    """Lines that are typed or piped in."""
    if not sys.stdin.isatty():
        yield from (line.removesuffix("\n") for line in sys.stdin)
        return
    import readline  # noqa: F401  # gives input() its history and line editing

    while True:
        try:
            line = input("> " if sys.stdout.isatty() else "")  # answers may go to a file
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("\nCtrl-D ends the conversation.")
        else:
            yield line
