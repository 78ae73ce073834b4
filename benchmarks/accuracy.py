"""Accuracy of a target in each language, and how well a draft serves the answers that it was judged by.

    pip install lm_eval
    git clone https://github.com/google-research/url-nlp        MGSM: 250 problems of school mathematics
    python benchmarks/accuracy.py --alignment PAIR.align url-nlp/mgsm/mgsm_en.tsv url-nlp/mgsm/mgsm_ru.tsv
    python benchmarks/accuracy.py --alignment PAIR.align benchmarks/questions/*.tsv        our own, in three languages

``SET_LANGUAGE.tsv`` has a question and a number on each line, with a tab between them. mlx-lm's own adapter of the
evaluation library `lm_eval` asks greedily, through the chat template, for a short answer. Its last number counts. Draft
and target then read the first of these questions and answers. They are compared at each token of the answers, as
`spectool fairness` does. A draft with another tokenizer reads the question without the template.

Source: "Disparate Impacts of Speculative Decoding", Figures 1 and 4 (MGSM; Qwen2.5 0.5B for 3B).

Prints a line for each file, and adds it to ``benchmarks/results/accuracy.jsonl``. Preload OpenBLAS as README says.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import lm_eval
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.evaluate import MLXLM
from real_models import real_model

from spectool.lab.fairness.formulas import speedup
from spectool.lab.fairness.places import compare
from spectool.lab.tuning.divergence import pairing_of
from spectool.lab.tuning.examples import NOWHERE, Example, byte_ends, row_of
from spectool.lab.tuning.tuned_model import Opened, open_model
from spectool.tokenization import Tokenizer

RESULTS = Path(__file__).parent / "results" / "accuracy.jsonl"
SYSTEM = "Solve the problem in at most three short sentences, in its own language, and end with the number."
_NUMBER = r"(-?[0-9]+(?:[.,][0-9]{3})*)(?:[.,]0+)?"  # 1,250 and 1250.00, without the latter's zeros
_LAST = {"function": "regex", "group_select": -1, "regex_pattern": _NUMBER}
_COLUMNS = {"delimiter": "\t", "column_names": ["question", "answer"], "quoting": 3}  # no quotation marks of CSV


class Answered(NamedTuple):
    """A question, the prompt that was made of it, what the target answered, and whether that is right."""

    question: str
    prompt: str
    answer: str
    right: bool


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--target", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--draft", default="gemma3-270m", show_default=True)
@click.option("--alignment", type=click.Path(path_type=Path), help="Where the two have different vocabularies.")
@click.option("--count", default=20, show_default=True, help="Questions of a file, from its beginning.")
@click.option("--compared", default=8, show_default=True, help="Of these, answers that draft and target read.")
@click.option("--tokens", default=256, show_default=True, help="Longest answer.")
@click.option("--gamma", default=5, show_default=True, help="Draft tokens a pass.")
def main(
    files: Sequence[Path],
    target: str,
    draft: str,
    alignment: Path | None,
    count: int,
    compared: int,
    tokens: int,
    gamma: int,
) -> None:
    """Ask, judge, compare, save and print."""
    asked = MLXLM(real_model(target), max_tokens=tokens, batch_size=64, use_chat_template=True)
    large = open_model(real_model(target))._replace(model=asked._model)  # one copy of the weights
    small = open_model(real_model(draft))
    pairing = pairing_of(small.tokenizer, large.tokenizer, alignment)
    if pairing is None:
        raise click.UsageError(f"{draft} and {target} have different vocabularies: --alignment")
    cost = _bytes(small) / _bytes(large)
    for path, answers in judged(asked, files, count):
        chosen = small.tokenizer if not pairing.same_vocabulary else None
        rows = [example(asked.tokenizer, large.tokenizer, chosen, each) for each in answers[:compared]]
        found = compare(small.model, large.model, pairing, rows, temperatures=(0.0,)).figures(gamma)
        name, _, language = path.stem.rpartition("_")
        line = {"target": target, "draft": draft, "set": name, "language": language, "questions": len(answers)}
        line |= {"accuracy": sum(each.right for each in answers) / len(answers), "tokens": tokens}
        line |= {"cut": sum(len(large.tokenizer.encode(each.answer)) >= tokens for each in answers)}
        line |= {name: found[name] for name in ("rows", "places", "share", "acceptance", "acceptance_error")}
        line |= {name: found[name] for name in ("kl", "cross_entropy")} | {"greedy": found["by_temperature"]["0"]}
        line |= {"gamma": gamma, "cost": cost, "speedup": speedup(found["acceptance"], gamma, cost)}
        click.echo(json.dumps(line))
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def judged(asked: Any, files: Sequence[Path], count: int) -> Iterator[tuple[Path, list[Answered]]]:
    """Ask all questions together, and yield each file with what was answered."""
    tasks = [
        {
            "task": path.stem,
            "dataset_path": "csv",
            "dataset_kwargs": {"data_files": {"test": str(path)}} | _COLUMNS,
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": "{{question}}",
            "doc_to_target": "{{answer}}",
            "generation_kwargs": {"until": ["<|im_end|>"], "do_sample": False},
            "filter_list": [{"name": "last number", "filter": [_LAST, {"function": "take_first"}]}],
            "metric_list": [{"metric": "exact_match", "aggregation": "mean", "ignore_punctuation": True}],
        }
        for path in files
    ]
    options: Any = {"limit": count, "apply_chat_template": True, "system_instruction": SYSTEM, "bootstrap_iters": 0}
    found = lm_eval.simple_evaluate(asked, tasks=tasks, **options)
    for path in files:
        samples = sorted(found["samples"][path.stem], key=lambda sample: sample["doc_id"])
        told = ((s["doc"]["question"], s["arguments"][0][0], s["resps"][0][0], s["exact_match"] == 1) for s in samples)
        yield path, [Answered(*each) for each in told]


def example(template: Any, target: Tokenizer, draft: Tokenizer | None, asked: Answered) -> Example:
    """Return a row of which the places that predict the answer count; no draft: it has the target's vocabulary."""
    before, after = template.encode(asked.prompt, add_special_tokens=False), target.encode(asked.answer)
    row = np.array([*before, *after], dtype=np.int32)
    places = np.arange(len(row) - 1, dtype=np.int32)
    if draft is None:
        return Example(row, places >= len(before) - 1, row, places)
    there = {end: len(before) - 1 + n for n, end in enumerate([0, *byte_ends(target, after).tolist()[:-1]])}
    question = f"{asked.question}\n\n"
    ids = draft.encode(question + asked.answer)
    own = row_of(draft, ids)
    ends = [0] * (len(own) - len(ids)) + byte_ends(draft, ids).tolist()
    at = [there.get(end - len(question.encode()), NOWHERE) for end in ends[:-1]]
    return Example(own, np.array([end >= len(question.encode()) for end in ends[:-1]]), row, np.array(at, np.int32))


def _bytes(opened: Opened) -> int:
    weights: Any = tree_flatten(opened.model.parameters(), destination={})
    return sum(weight.nbytes for weight in weights.values())


if __name__ == "__main__":
    main()
