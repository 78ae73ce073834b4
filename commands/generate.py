"""The command ``generate``."""

import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.shared.console import say, show
from spectool.commands.shared.display import Display, by_drafter
from spectool.commands.shared.model_options import follow_rank_0, model_options, open_model
from spectool.commands.shared.options import command, option, some_text, text_file_option
from spectool.runtime.decoding.statistics import DraftStatistics
from spectool.runtime.drafters.drafter import Drafter, members_of

_FEW = 0.25  # of the passes: with drafts in fewer of them, drafting has stopped


@command("generate")
@option("-p", "--prompt", type=some_text, metavar="TEXT", help="Prompt; by default standard input.", heading="Prompt")
@option("--ignore-chat-template", is_flag=True, help="Leave out the chat template.", heading="Prompt")
@model_options
@text_file_option("--prediction", help="Text that the answer is likely to repeat.", heading="Drafting")
@text_file_option("--json-schema", help="Answer in JSON that fits this schema.", heading="Sampling")
@option("--show-drafts", is_flag=True, help="Show in colour which draft tokens were right.")
def generate(
    prompt: str | None,
    ignore_chat_template: bool,
    model: str,
    prediction: str | None,
    system_prompt: str | None,
    template_variables: dict[str, Any],
    json_schema: str | None,
    show_drafts: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Generate text faster, with the same output.

    At temperature 0, the output is token for token what the model alone would write, unless rounding decides between
    two tokens that are almost equally good. Above 0, it is drawn from the same distribution.

    \b
    Examples:
        spectool generate --model ./Bielik-11B --dict pl.dict --prompt "Napisz list do sąsiada."
        spectool generate --model ./Bielik-11B --draft-model gemma-3-270m-it-pl --temp 0.7 -p "Hej"
    """
    if show_drafts and (as_json or settings["stop_strings"]):
        raise click.UsageError("--show-drafts shows whole passes as they come: leave out --json and --stop")
    follow_rank_0(model, settings["pipeline"], settings["adapter_path"])
    text = _read_prompt(prompt)
    target, tokenizer, arguments = open_model(model, **settings)

    from spectool.runtime.chat_template import begins_reasoning, messages_of, rendered
    from spectool.runtime.decoding.streaming import encode_prompt, stream_generate

    templates = tokenizer.has_chat_template and not ignore_chat_template
    if templates:
        encoded = rendered(tokenizer, messages_of(text, system_prompt), template_variables)
    elif system_prompt is not None or template_variables:
        raise SpectoolError(f"{model}: --system-prompt and --chat-template-config need a chat template. Leave them out")
    else:
        encoded = encode_prompt(tokenizer, text)
    if json_schema is not None:
        from spectool.runtime.grammar import Grammar

        end = tokenizer.decode(list(encoded)[-32:])
        reasoning = None if ignore_chat_template else begins_reasoning(tokenizer, end)
        arguments["grammar"] = Grammar(tokenizer, "json_schema", json_schema, reasoning=reasoning)
    display = Display(tokenizer, own_text=templates and json_schema is None) if show_drafts else None
    if display:
        say(display.legend)
        arguments["on_cycle"] = display.echo
    arguments |= {"prediction": prediction, "own_text": templates}
    pieces: list[str] = []
    try:
        for response in stream_generate(target, tokenizer, encoded, **arguments):
            pieces.append(response.text)
            if not (display or as_json):
                click.echo(response.text, nl=False)
    except KeyboardInterrupt:
        if not as_json:
            click.echo()  # ends the line of the text
            if pieces:
                show(_figures(response, arguments["drafter"]) | {"finish": "interrupted"}, as_json=False, err=True)
        raise
    facts = _figures(response, arguments["drafter"])
    if as_json:
        show({"text": "".join(pieces), **facts}, as_json=True)
    else:
        click.echo(display.finish() if display else "")
        show(facts, as_json=False, err=True)


def _figures(response: Any, drafter: Any) -> dict[str, Any]:
    drafting = response.drafting
    reason = few_drafts(drafting, members_of(drafter), response.prompt_tokens + response.generation_tokens)
    return {
        "tokens": response.generation_tokens,
        "target passes": drafting.passes,
        "tokens per pass": round(drafting.tokens_per_pass, 3),
        "acceptance": round(drafting.acceptance_rate, 3) if drafting.proposed else None,
        "sources": by_drafter(drafting),
        **({"few drafts": reason} if reason else {}),
        "prompt tokens per second": round(response.prompt_tps, 1),
        "tokens per second": round(response.generation_tps, 1),
        "peak memory GB": round(response.peak_memory, 3),
        "finish": response.finish_reason,
    }


def few_drafts(statistics: DraftStatistics, drafters: Sequence[Drafter], context: int) -> str:
    """What kept a text of ``context`` tokens from being drafted; empty if it was, or if its length was fixed."""
    policy = statistics.policy
    if policy is None or not statistics.passes:
        return ""
    dear = f"a pass over two tokens takes {policy.costs(1, context)[1]:.1f} plain ones here"
    for model in drafters:
        if model.costs_a_pass and not model.passes:
            token = policy.records[model.name].cost.token
            return f"the draft model was never asked, since a token of it takes {token:.2f} plain passes; {dear}"
    if statistics.drafted_passes >= _FEW * statistics.passes:
        return ""
    stopped = ", and wrong ones had cost as much time as they may" if policy.paused() else ""
    right, proposed = statistics.accepted, statistics.proposed
    return f"{f'{right} of {proposed} guesses were right' if proposed else 'no guesses'}{stopped}; {dear}"


def _read_prompt(prompt: str | None) -> str:
    """The prompt, or standard input without one line end at its end."""
    if prompt not in (None, "-"):
        return str(prompt)
    if sys.stdin is None or (prompt is None and sys.stdin.isatty()):
        raise click.UsageError("give --prompt TEXT, or text on standard input")
    return some_text(re.sub(rb"\r?\n\Z", b"", sys.stdin.buffer.read()), "standard input: ")
