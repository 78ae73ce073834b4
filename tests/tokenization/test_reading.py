"""A tokenizer read for a few texts alone: it must say and write what the library's own reading of the file does."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models

from spectool.tokenization import Tokenizer
from spectool.tokenization.backend import part_of
from spectool.tokenization.fingerprint import file_digest
from spectool.tokenization.opening import open_tokenizer, read_tokenizer
from spectool.tokenization.round_trips import LIMITS_READ, limits

NAMES = [
    *("bert-base-uncased", "bielik-11b-v2.5", "bielik-4.5b-v3-apt4", "claude-legacy", "falcon-7b", "gpt2"),
    *("herbert-base-cased", "mistral-7b-v0.1", "phi-3-mini", "t5-small"),
    *("gemma-3", "gpt4o-o200k", "llama-3.2", "mistral-nemo", "nanochat-pl-ours6-nfkc", "qwen2.5"),
    "xlm-roberta-base",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_part_is_as_the_whole(name: str, real: Callable[[str], Tokenizer], shared: Path, rng: random.Random) -> None:
    whole, file = real(name), shared / "tokenizers" / name / "tokenizer.json"
    strings = json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))
    texts = [*(text for _, text in rng.sample(strings, 4)), f" kot{whole.backend.id_to_token(3)}kot"]
    ids = rng.sample(range(whole.size), 300)
    for chosen in ([text] for text in texts):
        part = read_tokenizer(str(file), [*chosen, *LIMITS_READ], ids)
        assert part is not None
        assert [part.encode(text) for text in chosen] == [whole.encode(text) for text in chosen]
    assert (part.name, part.kind, part.size, part.roles, limits(part), part.spec) == (
        *(whole.name, whole.kind, whole.size, whole.roles, limits(whole), whole.spec),
    )
    assert [part.surfaces[index] for index in ids] == [whole.surfaces[index] for index in ids]
    cut = name not in ("bert-base-uncased", "herbert-base-cased", "t5-small")
    assert (len(part.backend.get_vocab()) < len(whole.backend.get_vocab()) / 2) == cut


def test_what_stands_for_other_pieces_is_in_no_text(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("a", -1.0), ("b", -1.0), ("zz", -2.0), ("last", -2.0)]
    backend = Backend(models.Unigram(pieces, 0))
    backend.save(str(tmp_path / "tokenizer.json"))
    for text in ("a\U0010ffffb", "a\U0010fffe\U0010ffffb"):
        part = part_of(tmp_path / "tokenizer.json", [text], (), {})
        assert part is not None and part.token_to_id("zz") is None
        assert part.encode(text).ids == backend.encode(text).ids


def _gap(spec: dict[str, Any]) -> None:
    spec["added_tokens"][-1]["id"] += 5


def _twice(spec: dict[str, Any]) -> None:
    spec["model"]["vocab"]["kot"] = spec["model"]["vocab"]["ko"]


def _prefix(spec: dict[str, Any]) -> None:
    spec["model"]["end_of_word_suffix"] = "</w>"


@pytest.mark.parametrize("change", [_gap, _twice, _prefix])
def test_where_the_library_may_give_other_ids_it_is_asked(
    change: Callable[[dict[str, Any]], None], byte_level: Backend, tmp_path: Path
) -> None:
    file = tmp_path / "tokenizer.json"
    byte_level.save(str(file))
    assert part_of(file, ["kot"], (), {}) is not None
    spec = json.loads(file.read_text())
    change(spec)
    file.write_text(json.dumps(spec))
    assert part_of(file, ["kot"], (), {}) is None


def test_what_is_not_compared_is_said(byte_level: Backend, tmp_path: Path) -> None:
    byte_level.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "eos_token_id": 7}')
    read = read_tokenizer(str(tmp_path), LIMITS_READ)
    assert read is not None and read.notes[0].endswith(f"To compare: spectool inspect {tmp_path} --as-loaded")
    assert 7 in read.roles.eos
    alone = read_tokenizer(str(tmp_path / "tokenizer.json"), LIMITS_READ)
    assert alone is not None and alone.notes == () and 7 not in alone.roles.eos
    digest = file_digest(tmp_path / "tokenizer.json")
    assert read_tokenizer(str(tmp_path), LIMITS_READ, recorded={"file": digest}) is not None
    assert read_tokenizer(str(tmp_path), LIMITS_READ, recorded={"file": digest[::-1]}) is None
    assert read_tokenizer(str(tmp_path / "no-such"), LIMITS_READ) is None


def test_the_file_and_what_is_changed_are_as_transformers_loads_it(shared: Path, tmp_path: Path) -> None:
    """Rebuilt with other steps, but with vocabulary and merges of the file."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
    (tmp_path / "tokenizer.json").write_bytes((shared / "tokenizers/mistral-7b-v0.1/tokenizer.json").read_bytes())
    strings = json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))
    texts = [text for _, text in strings]
    rebuilt = open_tokenizer(tmp_path)
    recorded = rebuilt.identity
    assert "pre_tokenizer" in recorded["changed"] and "vocab" not in json.dumps(recorded["changed"])
    read = read_tokenizer(str(tmp_path), [*texts, *(f" {text}" for text in texts)], range(1000), recorded)
    assert read is not None and read.notes == ()
    plain = open_tokenizer(tmp_path / "tokenizer.json")
    assert [plain.encode(text) for text in texts] != [rebuilt.encode(text) for text in texts]
    assert [read.encode(text) for text in texts] == [rebuilt.encode(text) for text in texts]
    assert read.encode_after_space(texts) == rebuilt.encode_after_space(texts)
    assert read.surfaces[:1000] == rebuilt.surfaces[:1000]
    other = plain.identity["file"][::-1]
    assert read_tokenizer(str(tmp_path), texts, (), recorded | {"file": other}) is None


def test_the_file_is_recorded_where_it_says_what_was_loaded(byte_level: Backend, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    byte_level.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert open_tokenizer(loaded).identity["file"] == file_digest(tmp_path / "tokenizer.json")
    loaded.add_tokens(["<new>"])
    changed = open_tokenizer(loaded).identity
    assert [token["content"] for token in changed["changed"]["added_tokens"]] == ["<new>"]
    read = read_tokenizer(str(tmp_path), ["a<new>"], (), changed)
    assert read is not None and read.encode("a<new>") == loaded.encode("a<new>", add_special_tokens=False)
