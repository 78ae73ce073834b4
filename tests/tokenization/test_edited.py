"""Tokenizers as fine-tunes edit them: ordinary tokens with a role, and added tokens with every option."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.tests.tiers import nightly
from spectool.tests.tokenization.round_trip import keeps
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.incremental.ids_or_text import reasons_for_text
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.round_trips import limits
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

# What a text has of each token, where that is not its name.
ORDINARY = {
    "gpt2": {"!": "!", "Ġthe": " the", "7": "7", "Ċ": "\n", "the": "the", "Ä": ""},
    "mistral-7b-v0.1": {"!": "!", "▁the": " the", "7": "7", "<0x0A>": "\n", "the": "the", "▁": " ", "<0xC4>": ""},
    "t5-small": {"!": "!", "▁the": " the"},
}
CASES = [(name, token) for name, tokens in ORDINARY.items() for token in tokens]
CASES = [*CASES[::3], *nightly(*(case for place, case in enumerate(CASES) if place % 3))]


def edited(shared: Path, name: str, edit: Callable[[Backend], Any]) -> Tokenizer:
    backend = Backend.from_file(str(shared / "tokenizers" / name / "tokenizer.json"))
    edit(backend)
    return open_tokenizer(backend)


@pytest.mark.parametrize(("name", "token"), CASES)
def test_an_ordinary_token_with_a_role_keeps_its_bytes(
    name: str, token: str, shared: Path, real: Callable[[str], Tokenizer]
) -> None:
    plain = real(name)
    special = edited(shared, name, lambda backend: backend.add_special_tokens([token]))
    index = plain.vocabulary[token]
    assert special.token_bytes[index] == plain.token_bytes[index] != b""
    assert plain.token_bytes[index] == (ORDINARY[name][token].encode() or plain.token_bytes[index])
    assert special.specials == plain.specials


@pytest.mark.parametrize("role", ["pad_token", *nightly("eos_token", "mask_token")])
def test_a_role_from_the_configuration(role: str, shared: Path, tmp_path: Path) -> None:
    source = shared / "tokenizers" / "bielik-4.5b-v3-apt4" / "tokenizer.json"
    (tmp_path / "tokenizer.json").write_bytes(source.read_bytes())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", role: "!"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded, alone = open_tokenizer(tmp_path), open_tokenizer(tmp_path / "tokenizer.json")
    for tokenizer in (loaded, alone):
        index = tokenizer.backend.token_to_id("!")
        assert (index in tokenizer.roles.eos) == (role == "eos_token")
        assert tokenizer.token_bytes_of([index]) == [b"!"]
    assert keeps(alone, "Hej! Co?")
    assert not keeps(loaded, "Hej! Co?") and keeps(loaded, "Hej!")


@pytest.mark.parametrize("end", ["<|EOS|>", "[END]"])
def test_a_control_token_that_merges_reach(end: str, rng: random.Random) -> None:
    """It has no bytes, and ids are joined as the tokenizer itself writes them."""
    names, merges, made = [*byte_symbols(), "Ġk"], [("Ġ", "k")], end[0]
    for char in end[1:]:
        merges.append((made, char))
        made += char
        names.append(made)
    names.append(f"{end}k")
    merges.append((end, "k"))
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([end])
    tokenizer = open_tokenizer(backend)
    index = tokenizer.vocabulary[end]
    assert tokenizer.token_bytes[index] == b"" and index in tokenizer.specials
    assert reasons_for_text(tokenizer) == ()
    encoder, kept = IncrementalBPE(tokenizer), 0
    for _ in range(300):
        text = "".join(rng.choices([end, end[:-1], end[-1], end[0], "k", " k", "ż"], k=rng.randint(1, 6)))
        ids: list[int] = []
        at = rng.randrange(len(text) + 1)
        for piece in (text[:at], text[at:]):
            start, tail = encoder.join(ids, piece.encode())
            ids[start:] = tail
        assert ids == tokenizer.plain_backend.encode(text).ids, (text, at)
        kept += end in text
    assert kept > 30


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "bielik-4.5b-v3-apt4", "phi-3-mini"])
def test_a_normalized_added_token_keeps_the_space_before_it(name: str, shared: Path) -> None:
    tokenizer = edited(shared, name, lambda backend: backend.add_tokens(["<narzędzie>"]))
    for text in ("Użyj <narzędzie> teraz", "a<narzędzie>b", "<narzędzie>", " <narzędzie>\n <narzędzie>x"):
        ids = tokenizer.encode(text)
        assert tokenizer.bytes_of(ids).decode() == tokenizer.backend.decode(ids, skip_special_tokens=False) == text
    assert not any("narzędzie" in limit for limit in limits(tokenizer))
    assert reasons_for_text(tokenizer) == ()


OPTIONS: tuple[dict[str, bool], ...] = ({}, {"lstrip": True}, {"rstrip": True}, {"single_word": True})
CONTENTS = ("<narzędzie>", "narzędzie", "ot ko", "42", "Ala", "!", "\n\n", "x y")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gpt2", "t5-small"])
def test_edited_tokenizers_spell_what_they_decode_and_name_what_they_lose(
    name: str, shared: Path, rng: random.Random
) -> None:
    pairs = json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))
    texts, compared, lost = [text for _, text in pairs], 0, 0
    source = (shared / "tokenizers" / name / "tokenizer.json").read_text(encoding="utf-8")
    for drawn in range(60):
        if drawn >= 6 and compared > 50:  # how many texts can be compared depends on the tokens drawn
            break
        backend = Backend.from_str(source)
        backend.add_special_tokens(rng.sample(["<|im_end|>", ".", "?"], 1))
        chosen = rng.sample(CONTENTS, 2)
        backend.add_tokens([AddedToken(each, normalized=rng.random() < 0.5, **rng.choice(OPTIONS)) for each in chosen])
        tokenizer = open_tokenizer(backend)
        stated = limits(tokenizer)
        taking = {token["id"] for token in tokenizer.spec["added_tokens"]}  # spaces with them, perhaps
        for text in rng.sample(texts, 20):
            at = rng.randrange(len(text) + 1)
            for said in (text, text[:at] + rng.choice(["", " ", "\n"]) + rng.choice(chosen) + text[at:]):
                ids = tokenizer.encode(said)
                restored = tokenizer.bytes_of(ids)
                if tokenizer.specials.isdisjoint(ids):
                    if (decoded := backend.decode(ids, False)).isprintable():
                        assert restored.decode("utf-8", "replace") == decoded, (chosen, said)
                        compared += 1
                    added = not taking.isdisjoint(ids)
                    assert stated or added or "▁" in said or restored == said.encode(), (chosen, said)
                lost += restored != said.encode()
    print(f"{compared} compared, {lost} lost")
    assert compared > 50


def test_an_unknown_decoder_step_names_the_tokenizer_everywhere(byte_level: Backend) -> None:
    byte_level.decoder = decoders.CTC()
    tokenizer = open_tokenizer(byte_level)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: tokenizer.token_bytes,
        lambda: tokenizer.token_bytes_of([0]),
        lambda: tokenizer.running_added,
        lambda: reasons_for_text(tokenizer),
    )
    for use in uses:
        with pytest.raises(TokenizerError, match=r"^\(loaded tokenizer\): decoder step 'CTC' .*give another tokenizer"):
            use()
