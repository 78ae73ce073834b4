"""DictSpec dictionaries on disk: the paper's example through all steps, and what they may hold."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from spectool import SpectoolError
from spectool.artifacts.dictionary import Dictionary
from spectool.artifacts.formats import verify_artifact
from spectool.artifacts.manifest import Manifest
from spectool.build.corpus_reading import describe_corpus
from spectool.corpora import open_corpus
from spectool.lab.dictspec import DictSpecOptions, WordNgrams, build_dictspec
from spectool.tests.running import run
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

DEFAULT = DictSpecOptions()


def built(tokenizer: Tokenizer, spec: object, out: Path, options: DictSpecOptions = DEFAULT) -> Manifest:
    corpus = open_corpus(str(spec))
    words = WordNgrams(document.text for document in corpus)
    return build_dictspec(tokenizer, words, out, options, describe_corpus(corpus))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("personal computer. " * 62 + "personal committee. " * 9 + "a personal matter.", encoding="utf-8")
    return path


def test_the_papers_example_through_all_stages(tmp_path: Path, corpus: Path, bundled: Tokenizer) -> None:
    out = tmp_path / "x.dict"
    manifest = built(bundled, corpus, out)
    dictionary = Dictionary(out)
    verify_artifact(dictionary.path)
    match = dictionary.look_up(bundled.encode("we know a personal com"))
    assert match is not None
    assert bundled.bytes_of([*bundled.encode("com"), *match.tokens]).startswith((b"computer", b"comput"))
    assert manifest == dictionary.manifest
    assert manifest.arguments == {
        "method": "dictspec",
        "orders": "n123",
        "entries": 200_000,
        "min_probability": 0.2,
        "reading": DictSpecOptions().reading,
        "max_prefix": 8,
        "max_continuation": 8,
    }
    statistics = manifest.statistics
    assert statistics["words"] == 2 * 71 + 3
    assert statistics["ngrams"] == 10
    assert statistics["smallest_count"] == 1
    assert statistics["entries"] == len(dictionary) <= statistics["entries_before_pruning"]
    assert manifest.inputs["documents"] == 1
    assert manifest.inputs["files"][0]["size"] == corpus.stat().st_size
    assert manifest.tokenizers == {"target": bundled.identity}
    shown = run("inspect", out)
    assert shown.exit_code == 0 and "method dictspec" in shown.output and "chained no" in shown.output


def test_every_entry_is_a_piece_of_an_ngram(tmp_path: Path, bundled: Tokenizer) -> None:
    options = DictSpecOptions(entries=500, min_probability=0.5)
    built(bundled, "sample:uk", tmp_path / "x.dict", options)
    counted = WordNgrams(document.text for document in open_corpus("sample:uk"))
    texts = [text for text, _ in counted.most_frequent(500)]
    spelled = {tuple(ids) for ids in bundled.encode_after_space(texts)}
    pieces = {ids[a:b] for ids in spelled for a in range(len(ids)) for b in range(a + 1, len(ids) + 1)}
    dictionary = Dictionary(tmp_path / "x.dict")
    assert len(dictionary) > 100
    for entry in dictionary.entries():
        assert (*entry.context, *entry.continuation) in pieces
        assert len(entry.context) <= 8
        assert len(entry.continuation) <= 8
        assert entry.probability >= 0.5 - 1 / 256
        assert entry.count >= 1


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gpt2", "t5-small"])
def test_real_tokenizers_propose_text_that_follows(
    name: str, tmp_path: Path, corpus: Path, real: Callable[[str], Tokenizer]
) -> None:
    tokenizer = real(name)
    built(tokenizer, corpus, tmp_path / "x.dict")
    match = Dictionary(tmp_path / "x.dict").look_up(tokenizer.encode("their personal"))
    assert match is not None
    proposed = b"".join(tokenizer.token_bytes[token] for token in match.tokens)
    assert b" computer".startswith(proposed)
    assert len(proposed) > 3


def test_special_tokens_are_never_proposed(tmp_path: Path) -> None:
    """A word of the text is a special token of the tokenizer, and another cannot be spelled."""
    names = ["[UNK]", "eos", "red", "cat", "dog"]
    backend = Backend(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[UNK]", "eos"])
    text = tmp_path / "text.txt"
    text.write_text("red cat eos dog. " * 20 + "red cat dog elephant. " * 3, encoding="utf-8")
    options = DictSpecOptions(min_probability=0.0)
    built(open_tokenizer(backend), text, tmp_path / "x.dict", options)
    used = {
        token for entry in Dictionary(tmp_path / "x.dict").entries() for token in (*entry.context, *entry.continuation)
    }
    assert used == {2, 3, 4}


def test_lower_orders_give_other_dictionaries(tmp_path: Path, bundled: Tokenizer) -> None:
    hashes = set()
    for orders in ("n1", "n12", "n123"):
        manifest = built(bundled, "sample:pl", tmp_path / orders, DictSpecOptions(orders=orders, entries=3000))
        hashes.add(manifest.files["contexts.marisa"]["sha256"])
    assert len(hashes) == 3


def test_nothing_to_build_from(tmp_path: Path, bundled: Tokenizer) -> None:
    text = tmp_path / "text.txt"
    text.write_text("— … !", encoding="utf-8")
    out = tmp_path / "x.dict"
    with pytest.raises(SpectoolError, match=r"no entry to store from 0 words .*Give more text, or a lower"):
        built(bundled, text, out)
    assert not out.exists()
