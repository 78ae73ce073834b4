"""The command ``generate``."""

import sys
from pathlib import Path
from typing import Any

import click

from spectool import SpectoolError
from spectool.artifacts.console import Finite, guarded, say, show
from spectool.artifacts.manifest import read_manifest


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
    "--min-draft-prob",
    type=Finite(0, 1),
    default=0.2,
    show_default=True,
    help="End proposals of dictionary and history before they get less probable than this: fewer and surer tokens.",
)
@click.option(
    "--temp",
    type=Finite(0),
    default=0.0,
    show_default=True,
    help="Sampling temperature; 0 takes the most probable token.",
)
@click.option(
    "--top-p",
    type=Finite(0, 1),
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
    type=Finite(0, 1),
    default=0.0,
    help="Leave out tokens less probable than this share of the best one.",
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Seed of the sampler.")
@click.option(
    "--kv-bits",
    type=click.Choice(["4", "8"]),
    help="Quantise the key-value cache from 5,000 tokens on.",
)
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
    min_draft_prob: float,
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

    At temperature 0 the output is token for token the same; above, it is drawn from the same
    distribution. A prompt file and standard input lose one final line end.

    \b
    Example:
        spectool generate --model ./Bielik-11B --dict pl.dict --prompt "Napisz list do sąsiada."
    """
    if as_json and show_drafts:
        raise click.UsageError("--json prints JSON alone: leave out --show-drafts")
    text = _read_prompt(prompt, prompt_file)
    if dictionary is not None:
        read_manifest(dictionary)  # before the model is loaded, which takes longer

    import mlx.core as mx

    from spectool.runtime import display
    from spectool.runtime.drafter import Cycle
    from spectool.runtime.loading import load_model, make_drafter
    from spectool.runtime.streaming import encode_prompt, stream_generate
    from spectool.runtime.verification import ids

    if seed is not None:
        mx.random.seed(seed)
    target, tokenizer = load_model(model)
    drafter = make_drafter(tokenizer, dictionary, draft_model, history, min_draft_prob)
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
        sampler=_sampler(temp, top_p, min_p, top_k, len(tokenizer.vocab)),
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
        facts["sources"] = ", ".join(
            f"{source} {counts['accepted']} of {counts['proposed']}" for source, counts in facts["sources"].items()
        )
        for key, value in facts.items():
            say(f"{key:<17}  {value}")


def _figures(response: Any) -> dict[str, Any]:
    drafting = response.drafting
    return {
        "tokens": response.generation_tokens,
        "target passes": drafting.passes,
        "tokens per pass": round(drafting.tokens_per_pass, 3),
        "acceptance": round(drafting.acceptance_rate, 3),
        "sources": {
            source: {"proposed": proposed, "accepted": drafting.accepted_by[source]}
            for source, proposed in drafting.proposed_by.items()
        },
        "tokens per second": round(response.generation_tps, 1),
        "finish": response.finish_reason,
    }


def _sampler(temp: float, top_p: float, min_p: float, top_k: int, vocabulary: int) -> Any:
    """Return mlx-lm's sampler, or None for the most probable token."""
    from mlx_lm.sample_utils import make_sampler

    # mlx-lm refuses a top-k of the whole vocabulary, which is no restriction at all.
    return make_sampler(temp, top_p=top_p, min_p=min_p, top_k=top_k if top_k < vocabulary else 0) if temp else None


def _read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    """Return the prompt from where it was given; files and standard input lose one final line end.

    Raises:
        SpectoolError: It is empty or not UTF-8.
    """
    where, data = _prompt_bytes(prompt, prompt_file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpectoolError(f"{where}: not UTF-8 at byte {error.start}. Convert it first") from error
    text = text if prompt == text else text.removesuffix("\n")
    if not text:
        raise SpectoolError(f"{where}: expected a prompt, got nothing. Give some text to go on from")
    return text


def _prompt_bytes(prompt: str | None, prompt_file: Path | None) -> tuple[str, bytes]:
    if prompt is not None and prompt_file is not None:
        raise click.UsageError("give --prompt or --prompt-file, not both")
    if prompt_file is not None:
        return str(prompt_file), prompt_file.read_bytes()
    if prompt is not None and prompt != "-":
        return "--prompt", prompt.encode("utf-8", "surrogateescape")
    if sys.stdin is None or (prompt is None and sys.stdin.isatty()):
        raise click.UsageError("give --prompt TEXT, --prompt-file FILE, or text on standard input")
    return "standard input", sys.stdin.buffer.read()


def _with_template(tokenizer: Any, text: str, ignore_chat_template: bool) -> Any:
    if ignore_chat_template or tokenizer.chat_template is None:
        return text
    messages = [{"role": "user", "content": text}]
    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # whatever a template raises
        raise SpectoolError(
            f"the model's chat template refuses the prompt ({str(error)[:200]}). Give the prompt as the model "
            "expects it, with --ignore-chat-template"
        ) from error
