"""Look-ups step by step: how a text was split, and what would be drafted."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from spectool.artifacts.dictionary import Dictionary, Entry
from spectool.commands.look_ups import explain
from spectool.tests.build.dictionaries import written
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.roles import Roles
from spectool.tokenization.tokenizer import Tokenizer


def dictionary_of(path: Path, tokenizer: Any, entries: list[tuple[str, str, float]]) -> Dictionary:
    """A dictionary whose entries are one token after the tokens of a text."""
    rows = []
    for context, following, probability in entries:
        (ids, whole) = tokenizer.encode_after_space([context, context + following])
        rows.append(Entry(ids, whole[len(ids)], probability))
    return written(path, rows, tokenizer.identity, {"method": "backoff"})


ENTRIES = [("idzie", " przez", 0.5), ("idzie przez", " las", 0.6), ("idzie przez las", " i", 0.5)]


@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "gemma-3", "qwen2.5"])
def test_a_look_up_is_a_chain_of_entries(shared: Path, tmp_path: Path, name: str) -> None:
    tokenizer = open_tokenizer(shared / "tokenizers" / name / "tokenizer.json")
    dictionary = dictionary_of(tmp_path / "x.dict", tokenizer, ENTRIES)
    facts = explain(dictionary, tokenizer, "idzie")
    assert facts["tokens"].replace(" | ", "").strip("▁") == "idzie"
    assert [step["comes"].strip("▁") for step in facts["proposal"]] == ["przez", "las", "i"]
    assert [step["probability"] for step in facts["proposal"]] == pytest.approx([0.5, 0.6, 0.5], abs=1 / 256)
    assert facts["proposal"][2]["in_all"] == pytest.approx(0.15, abs=0.01)
    assert all(step["after"].strip("▁").startswith("idzie") for step in facts["proposal"])
    inside = explain(dictionary, tokenizer, "idzie prze")
    assert " | " in inside["tokens"] and inside["proposal"] == []
    assert "\\x" in explain(dictionary, tokenizer, "𒀀")["tokens"] or tokenizer.unknown is not None


def test_special_tokens_have_names(tmp_path: Path) -> None:
    backend = Backend(models.BPE({"a": 0, "▁": 1, "▁a": 2}, [("▁", "a")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens(["<s>"])
    tokenizer = Tokenizer("small", backend, Roles())
    dictionary = dictionary_of(tmp_path / "x.dict", tokenizer, [("a", " a", 0.5)])
    assert explain(dictionary, tokenizer, "<s>") == {"tokens": "<s>", "proposal": []}
    assert explain(dictionary, tokenizer, "") == {"tokens": "", "proposal": []}
