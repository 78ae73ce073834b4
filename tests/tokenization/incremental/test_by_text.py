"""The slow path: Unigram, and BPE that cannot be followed on ids, text encoded again from a few words back."""

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.tiers import nightly
from spectool.tokenization.incremental.by_text import TailReencoder, recent
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.roles import Roles
from spectool.tokenization.tokenizer import Tokenizer

NAMES = ("t5-small", "falcon-7b")
SLOW = ("xlm-roberta-base",)


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    return TailReencoder(tokenizer).encode(text.encode())


@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_growing_text(name: str, real: Callable[[str], Tokenizer], lines: list[str], rng: random.Random) -> None:
    tokenizer = real(name)
    encoder = TailReencoder(tokenizer)
    for line in lines[:25]:
        text = " ".join(line.split())[:200]
        words = text.split(" ")
        ids: list[int] = []
        done = ""
        while words:
            count = rng.randrange(1, 4)
            fresh = (" " if done else "") + " ".join(words[:count])
            start, tail = encoder.join(ids, done.encode(), fresh.encode())
            ids[start:] = tail
            done, words = done + fresh, words[count:]
        assert ids == whole(tokenizer, text), text


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_a_boundary(name: str, real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real(name)
    encoder = TailReencoder(tokenizer)
    ids = encoder.encode_after(b"the small house", b" is old")
    assert whole(tokenizer, "the small house") + ids == whole(tokenizer, "the small house is old")
    assert encoder.encode_after(b"the small hou", b"se is old") == []


def test_special_tokens_are_not_read_out_of_text(real: Callable[[str], Tokenizer]) -> None:
    tokenizer = real("falcon-7b")
    assert tokenizer.encode(">>TITLE<<") == [tokenizer.vocabulary[">>TITLE<<"]]
    assert tokenizer.vocabulary[">>TITLE<<"] not in TailReencoder(tokenizer).encode(b">>TITLE<<")


def test_half_a_character_is_left_out(real: Callable[[str], Tokenizer]) -> None:
    encoder = TailReencoder(real("t5-small"))
    assert encoder.encode("kot ż".encode()[:-1]) == encoder.encode(b"kot ")


def test_what_is_cut_off_leaves_no_space_behind(real: Callable[[str], Tokenizer]) -> None:
    """A tokenizer that puts a space before everything it encodes, joined through text a few words back."""
    tokenizer = real("mistral-7b-v0.1")
    encoder = TailReencoder(tokenizer)
    ids: list[int] = []
    text = b""
    for word in ["", "", "To", "jest.\n", "Długi", "tekst:", "", "pięć", "albo", "sześć", "słów,", "§", "&", "znaki"]:
        fresh = (" " + word if text else word).encode()
        start, tail = encoder.join(ids, recent(text), fresh)
        ids[start:] = tail
        text += fresh
        assert ids == whole(tokenizer, text.decode())


SPACES = normalizers.Replace(" ", "▁")
READ = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])


def trained(model: str, texts: Sequence[str], **steps: Any) -> Tokenizer:
    """Train a tokenizer whose tokens go on behind spaces: nothing splits the text before."""
    backend = Backend(models.BPE(unk_token="<unk>") if model == "BPE" else models.Unigram())
    for name, step in steps.items():
        setattr(backend, name, step)
    special = {"special_tokens": ["<unk>"], "show_progress": False, "vocab_size": 1500}
    trainer = (
        trainers.BpeTrainer(**special) if model == "BPE" else trainers.UnigramTrainer(**special, unk_token="<unk>")
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer("trained", backend, Roles())


@pytest.fixture(scope="module")
def sample() -> list[str]:
    text = "\n".join(open_corpus("sample:pl"))
    return [text[begin : begin + 60] for begin in range(0, 60_000, 60)]


@pytest.fixture(scope="module")
def crossing_spaces(sample: list[str]) -> Callable[[str], Tokenizer]:
    """A tokenizer whose tokens cross spaces, by its kind; each is trained once."""
    return cache(lambda kind: made(kind, sample))


def made(kind: str, sample: list[str]) -> Tokenizer:
    match kind:
        case "BPE":
            return trained("BPE", sample, decoder=decoders.Fuse())
        case "Unigram":
            return trained("Unigram", sample, normalizer=SPACES, decoder=READ)
        case "Unigram with an artificial space":
            metaspace = pre_tokenizers.Metaspace("▁", "always", split=False)
            return trained("Unigram", sample, pre_tokenizer=metaspace, decoder=decoders.Metaspace("▁", "always"))
    spec = json.loads((demo_path("target") / "tokenizer.json").read_text())
    spec["pre_tokenizer"] = {"type": "UnicodeScripts"}
    return Tokenizer("scripts", Backend.from_str(json.dumps(spec)), Roles())


@pytest.mark.parametrize("count", [12, *nightly(60)])
@pytest.mark.parametrize("kind", ["BPE", *nightly("Unigram with an artificial space")])
def test_a_long_text_is_cut_where_the_tokenizer_agrees(
    kind: str, crossing_spaces: Callable[[str], Tokenizer], sample: list[str], count: int
) -> None:
    tokenizer = crossing_spaces(kind)
    encoder, text = TailReencoder(tokenizer), "".join(sample[:count])
    ids: list[int] = []
    for begin in range(0, len(text), 7):
        start, tail = encoder.join(ids, recent(text[:begin].encode()), text[begin : begin + 7].encode())
        assert len(tail) < 200, "no more than the end is encoded"
        ids[start:] = tail
    assert ids == whole(tokenizer, text)


PRE_TOKENIZERS = {
    "UnicodeScripts": pre_tokenizers.UnicodeScripts(),
    "UnicodeScripts and Metaspace": pre_tokenizers.Sequence(
        [pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace()]
    ),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "Metaspace": pre_tokenizers.Metaspace(),
    "ByteLevel": pre_tokenizers.ByteLevel(add_prefix_space=False),
}
ODD = ["", " ", "  a", "\n\n", "a\tb", "##", "a ##b", "##a##", "...", "Къырым", "漢字かな", "𒀀", "e\u0301", "\u200d"]
ODD += ["ala##ma", "a , b .", "1234567", "«ї»", "\u00a0x", "🙂🙂", "ł" * 260, "x" * 150, "ї" * 120, "qırım"]


@pytest.fixture(scope="module")
def three_languages(shared: Path) -> list[str]:
    corpora = (open_corpus(str(shared / "corpora" / f"{name}.valid.txt.zst")) for name in ("pl", "uk", "crh"))
    return [document[:200] for corpus in corpora for document in islice(corpus, 60)]


@pytest.mark.parametrize("splits", PRE_TOKENIZERS)
def test_any_text_in_any_pieces(splits: str, three_languages: list[str], rng: random.Random) -> None:
    """Joined piece by piece as the tokenizer itself encodes all of it, or not understood without the text."""
    backend = Backend(models.BPE(unk_token="[UNK]"))
    backend.pre_tokenizer = PRE_TOKENIZERS[splits]
    backend.decoder = decoders.Fuse()
    trainer = trainers.BpeTrainer(special_tokens=["[UNK]"], show_progress=False, vocab_size=1200)
    backend.train_from_iterator(three_languages, trainer)
    tokenizer = Tokenizer("trained", backend, Roles())
    if "Scripts" in splits:
        assert reasons_for_text(tokenizer)
    encoder = TailReencoder(tokenizer)
    texts = [*rng.sample(three_languages, 6), *ODD, *(f" {text[:60]}" for text in rng.sample(three_languages, 2))]
    texts += ["".join(rng.choices(ODD, k=3)) for _ in range(4)]
    for text in texts:
        ids: list[int] = []
        end = 0
        while end < len(text):
            begin, end = end, end + rng.randrange(1, 12)
            start, tail = encoder.join(ids, recent(text[:begin].encode()), text[begin:end].encode())
            ids[start:] = tail
            assert ids == whole(tokenizer, text[:end]), text[:end]


def test_agreement_on_unknown_tokens_proves_nothing(rng: random.Random) -> None:
    """They have no bytes, so that a cut falls elsewhere than it seems, where the same ids may stand for other text."""
    names = ("▁", "е", "и", "я", "▁е", "▁коллекц", "▁кот", "▁и", "▁лес", "коллекц")
    backend = Backend(models.Unigram([("<unk>", 0.0), *((name, -2 - len(name) / 9) for name in names)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    backend.decoder = decoders.Metaspace("▁", "always")
    tokenizer = Tokenizer("made", backend, Roles(unk=0))
    for _ in range(6):
        text = " ".join(rng.choices(("коллекция", "коллеги", "кот", "лес", "й", "лекции", "и", "дела"), k=30))
        joined, ids, at = TailReencoder(tokenizer), list[int](), 0
        while at < len(text):
            end = at + rng.randint(1, 5)
            start, tail = joined.join(ids, recent(text[:at].encode()), text[at:end].encode())
            ids[start:], at = tail, end
            assert ids == tokenizer.encode(text[:at]), text[:at]
