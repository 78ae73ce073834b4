"""Answers held to JSON schemas: valid, the same tokens as constrained plain decoding, and how many were forced.

    git clone https://github.com/guidance-ai/jsonschemabench
    python benchmarks/structured_output.py --model qwen2.5-coder-0.5b --schemas jsonschemabench/data --count 100

Schemas are drawn by a seed. Each is answered greedily three times: plainly, with forced tokens as drafts, and with
history in addition. Finished answers are checked by the ``jsonschema`` package. A difference or an invalid answer is
printed and makes the exit status 1. Adds a line to ``benchmarks/results/structured_output.jsonl``.
"""

import json
import random
from pathlib import Path
from typing import Any

import click
import jsonschema
from mlx_lm import load
from real_models import real_model
from saving import save
from tqdm import tqdm

from spectool import RuntimeUnsupported
from spectool.runtime import load_drafter, stream_generate
from spectool.runtime.grammar import Grammar


@click.command()
@click.option("--model", "name", default="qwen2.5-coder-0.5b", show_default=True)
@click.option(
    "--schemas", type=click.Path(exists=True, path_type=Path), required=True, help="Folder with JSON schemas."
)
@click.option("--count", default=100, show_default=True)
@click.option("--tokens", default=64, show_default=True, help="Tokens of an answer, at most.")
@click.option("--seed", default=7, show_default=True)
def main(name: str, schemas: Path, count: int, tokens: int, seed: int) -> None:
    """Compare constrained answers with and without drafts."""
    model, tokenizer = load(real_model(name))
    drafters = {"plain": (0, None), "forced": (4, None), "history": (4, load_drafter(tokenizer))}
    total: dict[str, Any] = dict.fromkeys(("schemas", "refused", "finished", "invalid", "different", "tokens"), 0)
    total |= {"model": name, "seed": seed, "most_tokens": tokens, "passes": dict.fromkeys(drafters, 0), "forced": 0}
    files = sorted(schemas.rglob("*.json"))
    for file in tqdm(random.Random(seed).sample(files, min(count, len(files))), unit="schema"):
        schema = json.loads(file.read_text(encoding="utf-8"))
        total["schemas"] += 1
        try:
            grammar = Grammar(tokenizer, "json_schema", schema)
        except RuntimeUnsupported:
            total["refused"] += 1
            continue
        asked = f"Write a short example of JSON for this schema:\n{json.dumps(schema, ensure_ascii=False)[:400]}\n"
        written: dict[str, list[int]] = {}
        for kind, (length, drafter) in drafters.items():
            options = {"grammar": grammar, "drafter": drafter, "num_draft_tokens": length, "max_tokens": tokens}
            responses = list(stream_generate(model, tokenizer, asked, **options))  # type: ignore[arg-type]
            written[kind] = [response.token for response in responses]
            total["passes"][kind] += responses[-1].drafting.passes
            if kind == "forced":
                total["forced"] += sum(responses[-1].drafting.accepted_by.values())
        total["tokens"] += len(written["plain"])
        if different := [kind for kind in drafters if written[kind] != written["plain"]]:
            total["different"] += 1
            print(f"{file}: {', '.join(different)} differ from plain decoding")
        if responses[-1].finish_reason == "stop":
            total["finished"] += 1
            text = "".join(response.text for response in responses)
            try:
                jsonschema.validators.validator_for(schema)(schema).validate(json.loads(text))
            except (ValueError, jsonschema.ValidationError) as error:
                total["invalid"] += 1
                print(f"{file}: {str(error).splitlines()[0]}: {text}")
    print(json.dumps(total, indent=2))
    save("structured_output", total)
    raise SystemExit(bool(total["different"] or total["invalid"]))


if __name__ == "__main__":
    main()
