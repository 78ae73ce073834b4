"""The main promise with pretrained weights: every drafter in every precision, beside mlx-lm's plain decoding.

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 OPENBLAS_NUM_THREADS=1 \\
        python benchmarks/real_lossless.py --target smollm2-135m --draft gemma3-270m --language en

Greedy answers to the prompts of ``real_text.py``. Where an output differs, an oracle (lossless_oracle.py) tells
near-ties of the two tokens from errors. It reads logits of passes over one token and over several. Drafting starts anew
behind a near-tie, so that every token of every answer is compared. Errors are printed whole, and the exit status is 1.

The drafters are dictionary and history, the target with noise on its weights, ``--draft`` through an alignment, and all
of them but the second together. ``--drafter`` names some of them. What a draft says decides nothing here but how much
is accepted, so ``--draft`` computes its most used ids alone. A hundred prompts of all take hours in each precision, so
that ``--first`` lets several runs share them.

Prints a Markdown table and adds a line for every drafter and precision to ``benchmarks/results/real_lossless.jsonl``.
"""

import json
import os
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
from lossless_models import KINDS, PRECISIONS, TRAIN_TOKENS, USED, in_precision, noisy, with_used_ids
from lossless_oracle import Cell, Setting, compare
from real_artifacts import alignment_of, dictionary_of
from real_data import encoded, real_corpus
from real_models import real_model
from real_text import prompt_ids, real_prompts
from tqdm import tqdm

from spectool.runtime import Drafter, load_drafter
from spectool.runtime.loading import load_model
from spectool.tokenization import open_tokenizer

RESULTS = Path(__file__).parent / "results" / "real_lossless.jsonl"
LOOK_UP, ITSELF, TRANSLATED, TOGETHER = "look-ups", "itself, with noise", "translated", "together"


@click.command()
@click.option("--target", default="smollm2-135m", show_default=True)
@click.option("--draft", default="gemma3-270m", show_default=True, help="Draft model with another tokenizer.")
@click.option("--language", default="en", show_default=True)
@click.option("--precision", "precisions", multiple=True, default=PRECISIONS, show_default=True)
@click.option("--drafter", "names", multiple=True, default=(LOOK_UP, ITSELF, TRANSLATED, TOGETHER), show_default=True)
@click.option("--prompts", "count", default=100, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first prompt, to go on where a run ended.")
@click.option("--tokens", default=128, show_default=True, help="Of each answer.")
@click.option("--num-draft-tokens", "length", default=4, show_default=True)
def main(
    target: str,
    draft: str,
    language: str,
    precisions: tuple[str, ...],
    names: tuple[str, ...],
    count: int,
    first: int,
    tokens: int,
    length: int,
) -> None:
    """Compare, print and save."""
    made, lines = drafters(target, draft, language), []
    for precision in precisions:
        model, tokenizer = load_model(real_model(target))
        setting = Setting(in_precision(model, precision), KINDS["KV"])
        texts = (prompt_ids(tokenizer, target, text) for text in real_prompts(target, language, 10 * (first + count)))
        prompts = list(islice((ids for ids in texts if len(ids) < 200), first, first + count))
        cells = {name: Cell() for name in names}
        for number, prompt in enumerate(tqdm(prompts, desc=precision, mininterval=30), first):
            begun = setting.begun(prompt)
            output = setting.plain(prompt, begun, tokens)
            for name, cell in cells.items():
                for error in compare(setting, made[name], prompt, begun, output, length, cell):
                    click.echo(f"ERROR: {target}, {precision}, {name}, prompt {number}: {error}")
        for name, cell in cells.items():
            lines.append(
                {
                    "target": target,
                    "draft": draft,
                    "language": language,
                    "precision": precision,
                    "blas": "OpenBLAS" if "openblas" in os.environ.get("LD_PRELOAD", "") else "reference",
                    "drafter": name,
                    "prompts": len(prompts),
                    "first": first,
                    "k": length,
                    "compared": cell.compared,
                    "near-ties": cell.near_ties,
                    "of these shown": cell.shown,
                    "widest gap": round(cell.widest, 6),
                    "errors": cell.errors,
                    "proposed": cell.statistics.proposed,
                    "tokens per pass": round(cell.statistics.tokens_per_pass, 3),
                }
            )
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    columns = ("precision", "drafter", "compared", "near-ties", "widest gap", "errors", "tokens per pass")
    click.echo("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for line in lines:
        click.echo("| " + " | ".join(str(line[column]) for column in columns) + " |")
    if wrong := sum(line["errors"] for line in lines):
        raise click.ClickException(f"{wrong} answers are not plain decoding's")
    if silent := [line["drafter"] for line in lines if not line["proposed"]]:
        raise click.ClickException(f"nothing was proposed by {', '.join(silent)}")


def drafters(target: str, draft: str, language: str) -> dict[str, Drafter]:
    """Make every drafter; all of them serve one target at a time, and each begins anew with a prompt."""
    where, other = Path(real_model(target)), Path(real_model(draft))
    dictionary = dictionary_of(f"{target}-{language}", where, language)
    drafting, its_tokenizer = load_model(str(other))
    text = encoded(open_tokenizer(str(other)), real_corpus(language, "valid"), TRAIN_TOKENS)
    used = [token for token, _ in Counter(chain.from_iterable(text)).most_common(USED)]
    pair: dict[str, Any] = {
        "draft_model": (with_used_ids(drafting, drafting.model.embed_tokens.weight, used), its_tokenizer),
        "alignment": alignment_of(f"{draft}-{target}-{language}", other, where, language),
    }
    itself, tokenizer = load_model(str(where))
    return {
        LOOK_UP: load_drafter(str(where), dictionary=dictionary),
        ITSELF: load_drafter(str(where), draft_model=(noisy(itself), tokenizer), history=False),
        TRANSLATED: load_drafter(str(where), **pair, history=False),
        TOGETHER: load_drafter(str(where), dictionary=dictionary, **pair),
    }


if __name__ == "__main__":
    main()
