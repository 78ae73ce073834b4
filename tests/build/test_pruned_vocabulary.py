"""Pruned vocabularies: kept tokens keep their bytes, texts come back, and every text counts the same."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.build.corpus_reading import sample_texts
from spectool.build.packs.stage import open_pack
from spectool.build.pruning.sources import counted_pack, counted_text
from spectool.build.pruning.vocabulary import choose_ids, needed_ids, placeholders, pruned_spec, renumber
from spectool.corpora import open_corpus
from spectool.tests.running import run
from spectool.tests.tiers import nightly
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

SEED = random.SystemRandom().randrange(10**6)
KINDS = ("bielik-11b-v2.5", "gemma-3", "gpt2", "llama-3.2", "qwen2.5", "xlm-roberta-base", "t5-small")


def counts_of(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    return np.bincount([token for ids in tokenizer.encode_batch(texts) for token in ids], minlength=tokenizer.size)


def pruned(tokenizer: Tokenizer, texts: list[str], ids: int | None = None) -> tuple[Tokenizer, dict[int, int]]:
    counts = counts_of(tokenizer, texts)
    kept = choose_ids(tokenizer, [counts], needed_ids(tokenizer, "".join(texts)), ids)
    spec, new = pruned_spec(json.loads(tokenizer.backend.to_str()), kept)
    return open_tokenizer(Backend.from_str(json.dumps(spec))), new


@pytest.mark.parametrize("name", ["gpt2", *nightly(*(each for each in KINDS if each != "gpt2"))])
def test_a_pruned_tokenizer_gives_back_what_the_whole_one_does(
    real: Callable[[str], Tokenizer], lines: list[str], name: str
) -> None:
    whole = real(name)
    small, new = pruned(whole, lines[:300])
    assert len(new) < whole.size
    assert small.size == max(new.values()) + 1
    for old, place in new.items():
        assert small.backend.id_to_token(place) == whole.backend.id_to_token(old)
        assert small.token_bytes[place] == whole.token_bytes[old] or old in whole.specials ^ {*small.specials}
    unused = placeholders(whole).keys() - new.keys()
    assert (len(unused) == 6242) == (name == "gemma-3")
    assert {token["content"]: token["special"] for token in small.spec["added_tokens"]} == {
        token["content"]: token["special"] for token in whole.spec["added_tokens"] if token["id"] not in unused
    }
    read = whole.encode_batch(lines)
    assert list(map(small.bytes_of, small.encode_batch(lines))) == list(map(whole.bytes_of, read))
    # What is spelled in kept tokens alone is spelled as before.
    kept = {text: ids for text, ids in zip(lines, read, strict=True) if new.keys() >= set(ids)}
    assert len(kept) > 100
    assert small.encode_batch(list(kept)) == [[new[token] for token in ids] for ids in kept.values()]
    # The template still puts the same tokens around a text.
    text = next(iter(kept))
    assert small.backend.encode(text).ids == [new[token] for token in whole.backend.encode(text).ids]


def test_every_corpus_weighs_the_same(bundled: Tokenizer) -> None:
    large, small = (counts_of(bundled, list(open_corpus(f"sample:{name}"))) for name in ("pl", "uk"))
    needed = needed_ids(bundled, "")
    once = choose_ids(bundled, [large, small], needed)
    assert choose_ids(bundled, [large * 1000, small], needed) == once
    assert min(count[list(once)].sum() / count.sum() for count in (large, small)) >= 0.999
    assert len(once) % 64 == 0 or len(once) == len(choose_ids(bundled, [large, small], needed, coverage=[1.0, 1.0]))


def test_the_number_of_ids_is_what_was_asked_for(bundled: Tokenizer) -> None:
    counts = counts_of(bundled, list(open_corpus("sample:pl")))
    needed = needed_ids(bundled, "")
    kept = choose_ids(bundled, [counts], needed, 700)
    assert len(kept) == 700
    assert kept >= needed
    with pytest.raises(TokenizerError, match="--ids"):
        choose_ids(bundled, [counts], needed, 100)


def test_ids_in_configurations_are_renumbered() -> None:
    config = {
        "eos_token_id": [1, 9],
        "pad_token_id": -1,
        "bos_token_id": None,
        "text_config": {"image_token_index": 5, "hidden_size": 5},
        "bad_words_ids": [[5], [1, 5]],
        "num_attention_heads": 1,
        "mm_tokens_per_image": 5,
        "sep": ["</s>", 5],
    }
    assert renumber(config, {1: 0, 5: 3}.get) == {
        "eos_token_id": [0],
        "pad_token_id": -1,
        "bos_token_id": None,
        "text_config": {"image_token_index": 3, "hidden_size": 5},
        "bad_words_ids": [[3], [0, 3]],
        "num_attention_heads": 1,
        "mm_tokens_per_image": 5,
        "sep": ["</s>", 3],
    }


def test_packs_count_as_the_text_of_their_pieces_does(tmp_path: Path, bundled: Tokenizer) -> None:
    """Of lines of words that all stand alone, where a pack knows everything that a count of the text does."""
    rng, seed = random.Random(SEED), f"seed {SEED}"
    words = sorted({word for document in open_corpus("sample:pl") for word in document.split()} - {""})
    lines = [" ".join(rng.choices([word for word in words if word.isalpha()], k=12)) for _ in range(300)]
    (tmp_path / "pl.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    asked = ["--language", "pl", "--min-count", 1, "--min-names", 0, "-o", tmp_path / "pl.pack"]
    assert run("pack", tmp_path / "pl.txt", *asked).exit_code == 0
    pack, corpus = open_pack(str(tmp_path / "pl.pack")), open_corpus(str(tmp_path / "pl.txt"))
    by_pack, by_text = counted_pack(pack, bundled), counted_text(corpus, bundled)
    assert by_pack.characters >= by_text.characters - {"\n"}, seed
    few = by_text.counts > 0
    ratio = by_pack.counts[few].sum() / by_text.counts[few].sum()
    assert 0.8 < ratio < 1.2 and np.corrcoef(by_pack.counts, by_text.counts)[0, 1] > 0.98, seed
    assert len(set(by_pack.compare(bundled, bundled).values())) == 1 and by_pack.facts["pieces"] == len(pack.pieces)


def test_documents_are_drawn_from_all_of_a_large_text() -> None:
    numbers = [f"{number:04}" for number in range(2500)]
    drawn = sample_texts(iter(numbers), 2003, 11)
    assert len(set(drawn)) == len(drawn) == 500 and set(drawn) < set(numbers)
    by_fifth = Counter(int(number) // 500 for number in drawn)
    assert all(70 <= by_fifth[fifth] <= 130 for fifth in range(5)), "a hundred each, give or take three deviations"
    assert sample_texts(["one", "a longer one"], 5, 11) in (["one"], ["a lon"]), "one document is always drawn"
