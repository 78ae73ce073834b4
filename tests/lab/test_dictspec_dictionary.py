"""DictSpec dictionaries of texts: the paper's example through all steps, and what they may hold."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from spectool.corpora import open_corpus
from spectool.lab.dictspec import DictSpecDrafter, DictSpecOptions, PhraseTable, WordNgrams, dictspec_table
from spectool.lab.token_strings import as_tokens
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

DEFAULT = DictSpecOptions()


def table_of(tokenizer: Tokenizer, spec: object, options: DictSpecOptions = DEFAULT) -> PhraseTable:
    return dictspec_table(tokenizer, WordNgrams(document.text for document in open_corpus(str(spec))), options)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("personal computer. " * 62 + "personal committee. " * 9 + "a personal matter.", encoding="utf-8")
    return path


def test_the_papers_example_through_all_stages(corpus: Path, bundled: Tokenizer) -> None:
    drafter = DictSpecDrafter(table_of(bundled, corpus))
    drafter.start(bundled.encode("we know a personal"))
    drafter.commit(bundled.encode("com"))
    proposed = drafter.propose(8).tokens
    assert bundled.bytes_of([*bundled.encode("com"), *proposed]).startswith((b"computer", b"comput"))
    assert drafter.propose(1).tokens == proposed[:1]
    drafter.commit(bundled.encode("—"))
    assert drafter.propose(8).tokens == ()


def test_every_entry_is_a_piece_of_an_ngram(bundled: Tokenizer) -> None:
    table = table_of(bundled, "sample:uk", DictSpecOptions(entries=500, min_probability=0.5))
    counted = WordNgrams(document.text for document in open_corpus("sample:uk"))
    texts = [text for text, _ in counted.most_frequent(500)]
    spelled = {tuple(ids) for ids in bundled.encode_after_space(texts)}
    pieces = {ids[a:b] for ids in spelled for a in range(len(ids)) for b in range(a + 1, len(ids) + 1)}
    assert len(table) > 100
    for context, phrase in table.items():
        assert (*as_tokens(context), *phrase.continuation) in pieces
        assert len(context) <= 8
        assert len(phrase.continuation) <= 8
        assert phrase.probability >= 0.5


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gpt2", "t5-small"])
def test_real_tokenizers_propose_text_that_follows(name: str, corpus: Path, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    drafter = DictSpecDrafter(table_of(tokenizer, corpus))
    drafter.start(tokenizer.encode("their personal"))
    proposed = b"".join(tokenizer.token_bytes[token] for token in drafter.propose(8).tokens)
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
    table = table_of(open_tokenizer(backend), text, DictSpecOptions(min_probability=0.0))
    used = {token for context, phrase in table.items() for token in (*as_tokens(context), *phrase.continuation)}
    assert used == {2, 3, 4}


def test_lower_orders_give_other_dictionaries(bundled: Tokenizer) -> None:
    one, two, three = (
        table_of(bundled, "sample:pl", DictSpecOptions(orders=orders, entries=3000)) for orders in ("n1", "n12", "n123")
    )
    assert one != two != three != one
