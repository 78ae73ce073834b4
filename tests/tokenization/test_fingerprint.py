"""Fingerprints: the same for the same tokenizer, another for any change of ids or bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, normalizers, pre_tokenizers, processors

from spectool import FingerprintMismatch
from spectool.tokenization.fingerprint import short
from spectool.tokenization.opening import open_tokenizer


def fingerprint(backend: Backend) -> str:
    """The fingerprint of a backend as it is now."""
    return open_tokenizer(backend).fingerprint


def changed(backend: Backend, change: Callable[[dict[str, Any]], object]) -> str:
    """Fingerprint of the tokenizer after a change of its JSON."""
    spec = json.loads(backend.to_str())
    change(spec)
    return fingerprint(Backend.from_str(json.dumps(spec)))


def test_stable_over_saving_again(byte_level: Backend, tmp_path: Path) -> None:
    first = fingerprint(byte_level)
    assert len(first) == 64
    byte_level.save(str(tmp_path / "a.json"), pretty=True)
    again = Backend.from_file(str(tmp_path / "a.json"))
    assert fingerprint(again) == first


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda spec: spec["model"]["merges"].pop(),
    lambda spec: spec["model"].update(ignore_merges=True),
    lambda spec: spec["model"].update(byte_fallback=True),
    lambda spec: spec["added_tokens"].pop(),
    lambda spec: spec["added_tokens"][0].update(special=False),
    lambda spec: spec["added_tokens"][1].update(content="<thinks>"),
    lambda spec: spec["added_tokens"][1].update(lstrip=True),
    lambda spec: spec.update(normalizer={"type": "NFC"}),
    lambda spec: spec.update(normalizer={"type": "Prepend", "prepend": "x"}),
    lambda spec: spec["pre_tokenizer"].update(add_prefix_space=True),
    lambda spec: spec["pre_tokenizer"].update(use_regex=False),
    lambda spec: spec.update(decoder={"type": "Fuse"}),
    lambda spec: spec["model"]["vocab"].update({"kot": 256, "ko": 257}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_differs_where_ids_or_bytes_may(byte_level: Backend, change: Callable[[dict[str, Any]], object]) -> None:
    assert changed(byte_level, change) != fingerprint(byte_level)


def test_every_token_counts(sentence_piece: Backend) -> None:
    """Two tokens that no sample meets have changed places, or one of them has an id beyond a gap."""
    first = fingerprint(sentence_piece)
    spec = json.loads(sentence_piece.to_str())
    unused = {f"\U0001f600{number}": len(spec["model"]["vocab"]) + number for number in range(6000)}
    spec["model"]["vocab"] |= unused
    one, other = list(unused)[3001:3003]
    found = {first}
    for change in ({}, {one: unused[other], other: unused[one]}, {other: 10_000}, {other: 20_000}, {one: 20_000}):
        spec["model"]["vocab"] |= unused | change
        found.add(fingerprint(Backend.from_str(json.dumps(spec))))
    assert len(found) == 6


def test_options_of_steps_with_content_count(sentence_piece: Backend) -> None:
    first = fingerprint(sentence_piece)
    sentence_piece.normalizer = normalizers.Sequence([normalizers.Replace(" ", "▁"), normalizers.Prepend("▁")])
    assert fingerprint(sentence_piece) != first
    sentence_piece.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    assert fingerprint(sentence_piece) == first
    sentence_piece.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 0, 0)]
    )
    assert fingerprint(sentence_piece) != first


def test_equal_where_neither_can(byte_level: Backend) -> None:
    first = fingerprint(byte_level)
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.post_processor = processors.ByteLevel(trim_offsets=True)
    byte_level.enable_truncation(5)
    byte_level.enable_padding()
    assert fingerprint(byte_level) == first
    assert changed(byte_level, lambda spec: spec["model"].update(dropout=None)) == first


def test_a_mismatch_names_both_and_the_command(byte_level: Backend, sentence_piece: Backend) -> None:
    left, right = open_tokenizer(byte_level), open_tokenizer(sentence_piece)
    left.require(left.identity, "pl.dict", "spectool build-dict")
    with pytest.raises(FingerprintMismatch) as caught:
        right.require(left.identity, "pl.dict", "spectool build-dict --tokenizer X")
    assert str(caught.value) == (
        f"pl.dict: built for tokenizer {short(left.fingerprint)} with {left.size} ids, (loaded tokenizer) is "
        f"{short(right.fingerprint)} with {right.size}. "
        "Rebuild it: spectool build-dict --tokenizer X"
    )


@pytest.fixture
def folder(byte_level: Backend, tmp_path: Path) -> Path:
    byte_level.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return tmp_path


def test_a_change_in_memory_is_found(folder: Path) -> None:
    """The file is as it was; what is generated with has other steps."""
    from transformers import AutoTokenizer

    recorded, loaded = open_tokenizer(folder / "tokenizer.json").identity, AutoTokenizer.from_pretrained(folder)
    loaded.backend_tokenizer.normalizer = normalizers.NFC()
    with pytest.raises(FingerprintMismatch):
        open_tokenizer(loaded).require(recorded, "pl.dict", "")


def test_a_file_written_otherwise_is_the_same_tokenizer(folder: Path) -> None:
    from transformers import AutoTokenizer

    recorded = open_tokenizer(folder / "tokenizer.json").identity
    (folder / "again").mkdir()
    spec = json.loads((folder / "tokenizer.json").read_text())
    (folder / "again" / "tokenizer.json").write_text(json.dumps(spec, indent=3))
    for source in (folder, folder / "again", AutoTokenizer.from_pretrained(folder)):
        open_tokenizer(source).require(recorded, "pl.dict", "")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gpt2", "t5-small", "qwen2.5"])
def test_many_ids_or_merges_that_changed_are_met_by_the_sample(shared: Path, name: str) -> None:
    """As of two vocabularies trained alike: one token in a hundred is another, or the later merges are."""
    first = open_tokenizer(file := shared / "tokenizers" / name / "tokenizer.json").fingerprint
    spec = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = spec["model"]["vocab"]
    names = [entry[0] for entry in vocabulary] if isinstance(vocabulary, list) else list(vocabulary)
    moved = names[1000::200]
    keys = {name: place if isinstance(vocabulary, list) else name for place, name in enumerate(names)}
    for one, other in zip(map(keys.get, moved[::2]), map(keys.get, moved[1::2]), strict=False):
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    assert fingerprint(Backend.from_str(json.dumps(spec))) != first
    if merges := spec["model"].get("merges"):
        spec = json.loads(file.read_text(encoding="utf-8"))
        spec["model"]["merges"] = merges[: len(merges) // 2] + merges[: len(merges) // 2 - 1 : -1]
        assert fingerprint(Backend.from_str(json.dumps(spec))) != first
