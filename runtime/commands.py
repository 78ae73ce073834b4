"""The command ``generate``."""

import sys
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.artifacts.console import guarded, say, show


@click.command("generate")
@click.option("--model", required=True, metavar="M", help="Target model: directory or hub id, as for mlx-lm.")
@click.option(
    "--dict",
    "dictionary",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Dictionary built for the model's tokenizer.",
)
@click.option("--draft-model", metavar="M2", help="Draft model with the same tokenizer.")
@click.option(
    "--history/--no-history",
    default=True,
    show_default=True,
    help="Draft from what the prompt and the answer already said.",
)
@click.option("--prompt", metavar="TEXT", help="The prompt; `-` reads standard input.")
@click.option(
    "--prompt-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the prompt from a file.",
)
@click.option("--ignore-chat-template", is_flag=True, help="Give the prompt to the model as it is.")
@click.option(
    "-m",
    "--max-tokens",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Tokens to generate at most.",
)
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    help="Draft tokens per verification at most; 0 decodes plainly.",
)
@click.option(
    "--temp",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Sampling temperature; 0 takes the most probable token.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Sample from the most probable tokens up to this mass; 0 from all.",
)
@click.option(
    "--top-k",
    type=click.IntRange(0),
    default=0,
    help="Sample from this many most probable tokens; 0 from all.",
)
@click.option(
    "--min-p",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Leave out tokens less probable than this share of the best one.",
)
@click.option("--seed", type=int, help="Seed of the sampler.")
@click.option("--kv-bits", type=click.Choice(["4", "8"]), help="Quantise the key-value cache to so many bits.")
@click.option("--show-drafts", is_flag=True, help="Colour accepted, rejected, corrected and undrafted tokens.")
@click.option("--json", "as_json", is_flag=True, help="Print text and figures as JSON at the end instead of streaming.")
@guarded
def generate(
    model: str,
    dictionary: Path | None,
    draft_model: str | None,
    history: bool,
    prompt: str | None,
    prompt_file: Path | None,
    ignore_chat_template: bool,
    max_tokens: int,
    num_draft_tokens: int,
    temp: float,
    top_p: float,
    top_k: int,
    min_p: float,
    seed: int | None,
    kv_bits: str | None,
    show_drafts: bool,
    as_json: bool,
) -> None:
    """Generate text with a target model, sooner, with the output that it would give alone.

    \b
    Example:
        spectool generate --model ./Bielik-11B --dict pl.dict --prompt "Napisz list do sąsiada."
    """
    text = _read_prompt(prompt, prompt_file)

    import mlx.core as mx
    from mlx_lm.sample_utils import make_sampler

    from spectool.runtime import display
    from spectool.runtime.drafter import Cycle
    from spectool.runtime.loading import load_model, make_drafter
    from spectool.runtime.streaming import encode_prompt, stream_generate
    from spectool.runtime.verification import ids

    if seed is not None:
        mx.random.seed(seed)
    target, tokenizer = load_model(model)
    drafter = make_drafter(tokenizer, dictionary, draft_model, history)
    encoded = encode_prompt(tokenizer, _with_template(tokenizer, text, ignore_chat_template))
    tail = display.Tail(tuple(ids(encoded)[-display.CONTEXT_TOKENS :]))

    def decode(tokens: Any) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

    def paint(cycle: Cycle) -> None:
        nonlocal tail
        shown, tail = display.render(cycle, decode, tail)
        click.echo(shown, nl=False, color=True)

    if show_drafts:
        say(display.legend())
    pieces: list[str] = []
    response = None
    for response in stream_generate(
        target,
        tokenizer,
        encoded,
        drafter=drafter,
        max_tokens=max_tokens,
        num_draft_tokens=num_draft_tokens,
        sampler=make_sampler(temp, top_p=top_p, min_p=min_p, top_k=top_k) if temp else None,
        kv_bits=int(kv_bits) if kv_bits else None,
        on_cycle=paint if show_drafts else None,
    ):
        pieces.append(response.text)
        if not (show_drafts or as_json):
            click.echo(response.text, nl=False)
    if response is None:
        raise SpectoolError(f"{model}: generated nothing. Give a longer prompt or more --max-tokens")
    if show_drafts:
        click.echo(display.finish(decode, tail), nl=False)
    if not as_json:
        click.echo()
    facts = _figures(response)
    if as_json:
        show({"text": "".join(pieces), **facts}, as_json=True)
    else:
        for key, value in facts.items():
            say(f"{key:<20}  {value}")


def _figures(response: Any) -> dict[str, Any]:
    drafting = response.drafting
    return {
        "tokens": response.generation_tokens,
        "target passes": drafting.passes,
        "tokens per pass": round(drafting.tokens_per_pass, 3),
        "acceptance": round(drafting.acceptance_rate, 3),
        "accepted by source": {
            source: f"{drafting.accepted_by[source]} of {proposed}" for source, proposed in drafting.proposed_by.items()
        },
        "tokens per second": round(response.generation_tps, 1),
        "finish": response.finish_reason,
    }


def _read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if prompt is not None and prompt_file is not None:
        raise click.UsageError("give --prompt or --prompt-file, not both")
    if prompt_file is not None:
        try:
            return prompt_file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SpectoolError(f"{prompt_file}: not UTF-8 at byte {error.start}. Convert it first") from error
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError("give --prompt TEXT, --prompt-file FILE, or text on standard input")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpectoolError(f"standard input: not UTF-8 at byte {error.start}. Convert it first") from error


def _with_template(tokenizer: Any, text: str, ignore_chat_template: bool) -> Any:
    if ignore_chat_template or tokenizer.chat_template is None:
        return text
    messages = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
