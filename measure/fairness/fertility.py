"""Fertility and the tokenization tax: how many tokens a language needs for what it says.

Fertility is tokens per piece of text between white space (DictSpec, section 4.3). The tax is fertility over that of a
reference: the task that the tokenizer serves best, or one that is named. Where the corpora are translations of each
other, document by document, the tax is tokens over tokens of the reference for the same content, which needs no words
(the premium of Petrov et al., 2023).
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from spectool import CorpusError
from spectool.artifacts import Tokenizer
from spectool.measure.fairness.texts import TaskText


def fertility(
    tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, TaskText], reference: str | None, parallel: bool
) -> dict[str, Any]:
    """Return fertility and tax of every tokenizer and task.

    Args:
        tokenizers: By name.
        texts: By task.
        reference: Task whose tax is 1; None for the least of each tokenizer.
        parallel: Whether the documents of all tasks say the same.

    Raises:
        CorpusError: Said to be parallel, the corpora have different numbers of documents.
    """
    counts = {task: text.inputs["documents"] for task, text in texts.items()}
    if parallel and len(set(counts.values())) > 1:
        said = ", ".join(f"{task} {count:,}" for task, count in counts.items())
        raise CorpusError(
            f"--parallel: expected corpora of as many documents, got {said}. Give translations, document by document, "
            "or leave it out"
        )
    words = pd.Series({task: text.words for task, text in texts.items()})
    found: dict[str, Any] = {}
    for name, tokenizer in tokenizers.items():
        tokens = {task: sum(map(len, tokenizer.encode_batch(list(text.documents)))) for task, text in texts.items()}
        table = pd.DataFrame({"tokens": tokens, "fertility": pd.Series(tokens) / words})
        compared = table["tokens" if parallel else "fertility"]
        table["tax"] = compared / (compared.min() if reference is None else compared[reference])
        found[name] = {task: row.to_dict() | {"tokens": tokens[task]} for task, row in table.iterrows()}
    return {"reference": reference, "parallel": parallel, "tokenizers": found}
