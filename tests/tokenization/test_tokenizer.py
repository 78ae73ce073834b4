"""Encoding as the stages need it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.tokenization import backend
from spectool.tokenization.backend import sections, with_added_tokens
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "bielik-11b-v2.5", "gpt2", "gemma-3", "t5-small", "phi-3-mini"])
def test_words_are_spelled_as_in_a_sentence(name: str, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    for word in ("computer", "personal computer", "komputer"):
        ids = tokenizer.encode(word if tokenizer.leading_space else f" {word}")
        assert b"".join(tokenizer.token_bytes[token] for token in ids) == b" " + word.encode()
        running = tokenizer.encode(f"The {word}")
        assert running[-len(ids) :] == ids, "the ids of the same words inside a text"


def test_batches_are_single_texts(byte_level: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever parts they are encoded."""
    tokenizer = open_tokenizer(byte_level)
    monkeypatch.setattr(backend, "_AT_ONCE", 600)
    texts = ["kot", "", " kot kot", "kot" * 500, "ż\n"]
    assert [text for text, _ in tokenizer.encode_each(iter(texts))] == texts
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_template_tokens_are_never_added(real: Callable[[str], Tokenizer]) -> None:
    for name in ("bielik-11b-v2.5", "mistral-7b-v0.1", "t5-small"):
        assert not set(real(name).encode("kot")) & real(name).specials


def test_sizes_with_holes_and_identity(sentence_piece: Backend) -> None:
    tokenizer = open_tokenizer(sentence_piece)
    assert tokenizer.size == 267
    assert tokenizer.identity == {"name": "(loaded tokenizer)", "fingerprint": tokenizer.fingerprint, "size": 267}
    assert len(tokenizer.byte_tokens) == 256
    assert tokenizer.specials == {0, 1, 2}
    assert tokenizer.unknown == 0


@pytest.mark.parametrize("name", ["bielik-11b-v2.5", "gpt2", "qwen2.5", "t5-small", "gemma-3"])
def test_a_copy_around_the_same_model_encodes_alike(name: str, real: Callable[[str], Tokenizer], shared: Path) -> None:
    backend = real(name).backend
    spec = json.loads(backend.to_str())
    found = sections(backend)
    assert found["added_tokens"] == spec["added_tokens"]
    assert all(found[part] == spec[part] for part in ("normalizer", "pre_tokenizer", "decoder"))
    assert found["model"].items() <= spec["model"].items() or spec["model"]["type"] == "Unigram"
    copy = with_added_tokens(backend, found["added_tokens"])
    strings = json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))
    texts = [*(text for _, text in strings), *(token["content"] for token in found["added_tokens"])]
    for text in texts:
        assert copy.encode(text, add_special_tokens=False).ids == backend.encode(text, add_special_tokens=False).ids


def _with_names(backend: Backend, names: dict[str, int], path: Path) -> Tokenizer:
    spec = json.loads(backend.to_str())
    spec["model"]["vocab"] |= names
    path.write_text(json.dumps(spec))
    return open_tokenizer(path)


def test_an_id_with_several_tokens_is_refused(byte_level: Backend, tmp_path: Path) -> None:
    """Which of them its bytes are would differ from start to start, and with it the fingerprint."""
    tokenizer = _with_names(byte_level, {"another": 40}, tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match=r"id 40 has several tokens, .*'another'"):
        _ = tokenizer.token_bytes


def test_an_added_token_names_its_id(byte_level: Backend, tmp_path: Path) -> None:
    """As `<|padding|>` of OLMo 1, which is `{-` as well."""
    size = byte_level.get_vocab_size(with_added_tokens=False)
    spec = json.loads(byte_level.to_str())
    spec["added_tokens"] = []
    byte_level = Backend.from_str(json.dumps(spec))
    byte_level.add_tokens(["<own>"])
    for names in ({"<own>": size, "another": size}, {"another": size, "<own>": size}):
        tokenizer = _with_names(byte_level, names, tmp_path / "tokenizer.json")
        assert tokenizer.token_bytes[size] == b"<own>" and tokenizer.size == size + 1
        assert reasons_for_text(tokenizer) == ("its token 'another' decodes as '<own>'",)
