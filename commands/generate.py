"""The command ``generate``."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.commands.console import guarded, say, show
from spectool.commands.display import COLOURS, MARKS, Display, by_source, legend, spelled
from spectool.commands.model_options import model_options, open_model, template_variables
from spectool.commands.option_sections import SectionedCommand, under
from spectool.commands.options import Text
from spectool.commands.saved_prompt import check_opening, check_saving, names_of, open_prompt, save_prompt
from spectool.runtime.decoding.drafter import Cycle

_TIMED = 16  # tokens: the first passes make up most of the time of a shorter answer
_prompt = under("Prompt")
_cache = under("Cache")


@click.command("generate", cls=SectionedCommand)
@_prompt("-p", "--prompt", metavar="TEXT", help="The prompt; `-` reads standard input.")
@_prompt(
    "--prompt-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the prompt from a file.",
)
@_prompt("--prefill-response", type=Text(), metavar="TEXT", help="Beginning of the answer, which the model continues.")
@_prompt("--ignore-chat-template", is_flag=True, help="Give the prompt to the model as it is.")
@model_options
@_cache(
    "--prompt-cache-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on after the prompt that --save-prompt-cache or `mlx_lm.cache_prompt` has saved there.",
)
@_cache(
    "--save-prompt-cache",
    "saved_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the prompt as the model and the draft model have read it, and end without an answer.",
)
@click.option("--show-drafts", is_flag=True, help="Colour (in files: mark) tokens by what became of their drafts.")
@click.option("--json", "as_json", is_flag=True, help="Print text and figures as JSON at the end instead of streaming.")
@guarded
def generate(
    prompt: str | None,
    prompt_file: Path | None,
    prefill_response: str | None,
    ignore_chat_template: bool,
    system_prompt: str | None,
    chat_template_config: str | None,
    prompt_cache_file: Path | None,
    saved_file: Path | None,
    show_drafts: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Generate text with a target model: the same output that it would give alone, in less time.

    At temperature 0 the output is token for token the same; above, it is drawn from the same
    distribution. A prompt file and standard input lose one final line end.

    \b
    Examples:
        spectool generate --model ./Bielik-11B --dict pl.dict --prompt "Napisz list do sąsiada."
        spectool generate --model ./Bielik-11B --draft-model ./Bielik-1.5B --temp 0.7 --top-p 0.9 --prompt-file list.txt
        spectool generate --model ./Bielik-11B --draft-model ./Qwen2.5-1.5B --alignment qwen-bielik.align -p "Hej"
        spectool generate --model ./Bielik-11B --prompt-file statute.txt --save-prompt-cache statute.safetensors
        spectool generate --model ./Bielik-11B --prompt-cache-file statute.safetensors -p "Co mówi artykuł 5?"
    """
    if as_json and show_drafts:
        raise click.UsageError("--json prints JSON alone: leave out --show-drafts")
    if ignore_chat_template and (system_prompt is not None or prefill_response is not None):
        raise click.UsageError("--system-prompt and --prefill-response need the chat template that is ignored")
    if saved_file is not None:
        check_saving(saved_file, prompt_cache_file, prefill_response, show_drafts)
        options |= {"dictionary": None, "history": False}  # which have no cache
    elif prompt_cache_file is not None:
        check_opening(options["max_kv_size"])
    text = _read_prompt(prompt, prompt_file)
    variables = template_variables(chat_template_config)
    name = options["model"]
    only_history = options["dictionary"] is None and options["draft_model"] is None and options["history"]
    made_with = names_of(options)
    target, tokenizer, arguments = open_model(options)
    if saved_file is None and only_history and not as_json:
        say("drafting from the prompt and the answer so far; --dict and --draft-model draft more")

    from spectool.commands.blas import blas_hint
    from spectool.runtime.chat_template import encode, messages_of, rendered, rendered_after, rendered_up_to
    from spectool.runtime.decoding.streaming import encode_prompt, stream_generate

    if not as_json and (hint := blas_hint(target)):
        say(hint)
    templated = tokenizer.has_chat_template and not ignore_chat_template
    if not templated and (system_prompt is not None or prefill_response is not None):
        raise SpectoolError(f"{name}: no chat template, so --system-prompt and --prefill-response have no place")
    if prompt_cache_file is not None:
        arguments |= open_prompt(prompt_cache_file, target, arguments, made_with)
    if templated:
        render = rendered_up_to if saved_file else rendered_after if prompt_cache_file else rendered
        encoded = render(tokenizer, messages_of(text, system_prompt, prefill_response), variables)
    elif prompt_cache_file is not None:
        encoded = encode(tokenizer, text)
    else:
        encoded = encode_prompt(tokenizer, text)
    if saved_file is not None:
        show(save_prompt(saved_file, target, tokenizer, encoded, arguments, made_with), as_json)
        return

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

    def paint(cycle: Cycle) -> None:
        click.echo(display.render(cycle), nl=False)

    styles = COLOURS if sys.stdout.isatty() else MARKS
    display = Display(decode, encoded, styles, arguments.get("stop_strings", ()))
    if show_drafts:
        say(legend(styles))
    pieces: list[str] = []
    for response in stream_generate(target, tokenizer, encoded, on_cycle=paint if show_drafts else None, **arguments):
        pieces.append(response.text)
        if not (show_drafts or as_json):
            click.echo(response.text, nl=False)
    facts = _figures(response)
    if as_json:
        show({"text": "".join(pieces), **facts}, as_json=True)
        return
    click.echo(display.finish() if show_drafts else "")
    _say_figures(facts)


def _say_figures(facts: dict[str, Any]) -> None:
    """Say what `_figures` returns."""
    sources = facts.pop("sources")
    if sources:
        facts["accepted by source"] = spelled(sources)
    else:
        facts["acceptance"] = "nothing was drafted"
    if "draft length" in facts:
        known = facts["draft length"]
        facts["draft length"] = (
            f"{known['draft_length']} in the end, by its own timings" if known else "too few drafts to choose"
        )
    if facts["tokens"] < _TIMED:
        facts["tokens per second"] = f"too few tokens to tell (from {_TIMED} on)"
    for key, value in facts.items():
        say(f"{key:<24}  {value}")


def _figures(response: Any) -> dict[str, Any]:
    from spectool.runtime.draft_length.state import controller_state

    drafting = response.drafting
    length: dict[str, Any] = {}
    if drafting.controller:
        learnt = controller_state(drafting.controller)
        length["draft length"] = learnt and _rounded(learnt._asdict())
    return {
        "tokens": response.generation_tokens,
        "target passes": drafting.passes,
        "tokens per pass": round(drafting.tokens_per_pass, 3),
        "acceptance": round(drafting.acceptance_rate, 3) if drafting.proposed else None,
        "sources": by_source(drafting),
        **length,
        "prompt tokens per second": round(response.prompt_tps, 1),
        "tokens per second": round(response.generation_tps, 1),
        "peak memory GB": round(response.peak_memory, 3),
        "finish": response.finish_reason,
    }


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    passes = {str(size): round(time, 3) for size, time in figures.pop("pass_ms").items()}
    return {key: value and round(value, 4) for key, value in figures.items()} | {"pass_ms": passes}


def _read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    """Return the prompt from where it was given; files and standard input lose one final line end.

    Raises:
        SpectoolError: It is empty or not UTF-8.
    """
    if prompt is not None and prompt_file is not None:
        raise click.UsageError("give --prompt or --prompt-file, not both")
    if prompt_file is not None:
        where, data = str(prompt_file), prompt_file.read_bytes()
    elif prompt is not None and prompt != "-":
        where, data = "--prompt", prompt.encode("utf-8", "surrogateescape")
    elif sys.stdin is None or (prompt is None and sys.stdin.isatty()):
        raise click.UsageError("give --prompt TEXT, --prompt-file FILE, or text on standard input")
    else:
        where, data = "standard input", sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpectoolError(
            f"{where}: not UTF-8 at byte {error.start}. Convert it first, for example: iconv -f CP1250 -t UTF-8"
        ) from error
    text = text if prompt == text else re.sub(r"\r?\n\Z", "", text)
    if not text:
        raise SpectoolError(f"{where}: expected a prompt, got nothing. Give some text to go on from")
    return text
