"""Pruned drafts: kept rows are those of the whole model, and what is unclear is refused."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.utils import load
from platformdirs import user_cache_path
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from spectool import ArtifactError, TokenizerError
from spectool.artifacts.pruned_draft import RECORD, read_record
from spectool.build.pruning.stage import prune_model
from spectool.build.pruning.vocabulary import placeholders
from spectool.build.pruning.weights import open_weights
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.running import error_of, figures, run
from spectool.tests.tiers import nightly
from spectool.tokenization.opening import open_tokenizer

DRAFT = demo_path("draft")


def make_model(
    folder: Path, tied: bool, quantised: bool, shards: int = 1, padding: int = 8, tokenizer: Path = DRAFT
) -> Path:
    """A tiny random model with a tokenizer, by default the bundled draft's; its matrices have more rows than ids."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder)
    from mlx_lm.models import llama

    config = json.loads((demo_path("draft") / "config.json").read_text())
    config = {key: value for key, value in config.items() if "quantization" not in key}
    config |= {"tie_word_embeddings": tied, "vocab_size": open_tokenizer(folder / "tokenizer.json").size + padding}
    model = llama.Model(llama.ModelArgs.from_dict(config))
    if quantised:
        nn.quantize(model, group_size=64, bits=4)
        config["quantization"] = {"group_size": 64, "bits": 4}
    weights: Any = tree_flatten(model.parameters())
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2], "bos_token_id": 1}))
    places = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        part = dict(weights[number::shards])
        places |= dict.fromkeys(part, name)
        mx.save_safetensors(str(folder / name), part, {"format": "mlx"})
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


@pytest.mark.parametrize(
    ("tied", "quantised", "shards"), [(True, False, 1), *nightly((False, True, 2), (False, False, 3), (True, True, 1))]
)
def test_logits_are_those_of_the_kept_rows(tmp_path: Path, tied: bool, quantised: bool, shards: int) -> None:
    mx.random.seed(3)
    folder = make_model(tmp_path / "whole", tied, quantised, shards)
    found = figures("prune-draft", "--draft", folder, "--corpus", "sample:pl", "--ids", 700, "-o", tmp_path / "small")
    assert found["statistics"]["ids"] == {"before": 1536, "after": 700}
    (whole, whole_tokenizer), (small, tokenizer) = load(str(folder)), load(str(tmp_path / "small"))
    names = {place: name for name, place in tokenizer.get_vocab().items()}
    vocabulary = whole_tokenizer.get_vocab()
    olds = [vocabulary[names[place]] for place in range(700)]
    tokens = tokenizer.encode("Wczoraj wieczorem w domu kultury")
    theirs = whole(mx.array([[olds[token] for token in tokens]]))[0]
    mine = small(mx.array([tokens]))[0]
    assert mine.shape == (len(tokens), 700)
    np.testing.assert_allclose(np.array(mine), np.array(theirs)[:, olds], rtol=0, atol=1e-5)
    before, after = (dict(tree_flatten(model.parameters())) for model in (whole, small))
    assert before.keys() == after.keys()
    for name, weight in after.items():
        rows = before[name][mx.array(olds)] if name.split(".")[-2] in ("embed_tokens", "lm_head") else before[name]
        assert mx.array_equal(weight, rows), name  # exactly, also where they are quantised


@pytest.mark.parametrize(("bits", "tied"), [(4, True), *nightly((32, False), (16, True), (8, False))])
def test_a_form_changes_the_weights_alone(tmp_path: Path, tied: bool, bits: int) -> None:
    mx.random.seed(5)
    folder, asked = make_model(tmp_path / "whole", tied, False, 2), ["--corpus", "sample:pl", "--ids", 700]
    plain = figures("prune-draft", "--draft", folder, *asked, "-o", tmp_path / "plain")
    found = figures("prune-draft", "--draft", folder, *asked, "--bits", bits, "-o", tmp_path / "small")
    (model, tokenizer), (expected, _) = load(str(tmp_path / "small")), load(str(tmp_path / "plain"))
    if bits >= 16:
        expected.set_dtype(mx.bfloat16 if bits == 16 else mx.float32)
    else:
        nn.quantize(expected, 64, bits)
    mine, theirs = (dict(tree_flatten(each.parameters())) for each in (model, expected))
    assert mine.keys() == theirs.keys() and all(mx.array_equal(mine[name], theirs[name]) for name in mine)
    assert found["statistics"]["weights"]["after"] == sum(weight.nbytes for weight in mine.values())
    assert found["statistics"]["ids"] == plain["statistics"]["ids"] and found["statistics"]["bits"] == bits
    assert tokenizer.get_vocab() == load(str(tmp_path / "plain"))[1].get_vocab()
    if bits == 4:
        again = run("prune-draft", "--draft", tmp_path / "small", *asked, "--bits", 8, "-o", tmp_path / "again")
        assert "quantised already" in error_of(again) and not (tmp_path / "again").exists()


@pytest.mark.nightly
def test_a_draft_pruned_by_a_pack_covers_other_text(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "whole", True, False)
    found = figures("prune-draft", "--draft", folder, "--pack", "pl", "--pack", "uk", "-o", tmp_path / "small")
    assert [text["pack"] for text in found["statistics"]["text"]] == ["pl.pack", "uk.pack"]
    assert all(text["covered"] >= 0.999 for text in found["statistics"]["text"])
    record = read_record(tmp_path / "small")
    assert record is not None and [pack["language"] for pack in record.inputs["packs"]] == ["pl", "uk"]
    small, whole = open_tokenizer(tmp_path / "small"), open_tokenizer(folder)
    assert record.tokenizers["pruned"]["fingerprint"] == small.fingerprint
    for sample in ("sample:pl", "sample:uk"):
        texts = list(open_corpus(sample))
        more = sum(map(len, small.encode_batch(texts))) / sum(map(len, whole.encode_batch(texts)))
        assert 1 <= more < 1.01, (sample, more)


def test_the_directory_is_a_model(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "whole", True, False, 2)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "vocab.json").write_text("{}")
    arguments = "prune-draft", "--draft", folder, "--corpus", "sample:pl", "--corpus", "sample:uk"
    found = figures(*arguments, "-o", tmp_path / "small")
    small = tmp_path / "small"
    record = read_record(small)
    assert record is not None and record.statistics["ids"] == found["statistics"]["ids"]
    assert record.statistics["guesses"]["places"] > 100
    assert (small / "chat_template.jinja").read_text() == "{{ messages }}"
    assert not (small / "vocab.json").exists()
    config = json.loads((small / "config.json").read_text())
    after = found["statistics"]["ids"]["after"]
    assert (config["vocab_size"], config["bos_token_id"], config["eos_token_id"]) == (after, 1, 2)
    index = json.loads((small / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {path.name for path in small.glob("*.safetensors")}
    assert index["metadata"]["total_size"] == found["statistics"]["weights"]["after"]
    for text in found["statistics"]["text"]:
        assert text["covered"] >= 0.999
        assert text["before"] <= text["after"] < 1.01 * text["before"]
    assert run("inspect", small).exit_code == 0
    for out in (small, folder):
        assert "exists already" in error_of(run(*arguments, "-o", out))
    for damaged in ("{", "[]", "5", "[" * 100_000):
        (small / RECORD).write_text(damaged)
        assert read_record(small) is None


def test_a_model_that_mlx_lm_cannot_load_is_pruned_without_trying_it(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "whole", True, False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "not_yet_known"}))
    done = run("prune-draft", "--draft", folder, "--corpus", "sample:pl", "-o", tmp_path / "small")
    record = read_record(tmp_path / "small")
    assert done.exit_code == 0 and "its guesses were not tried" in done.stderr
    assert record is not None and "guesses" not in record.statistics


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.0.gate.weight", (1544, 4)),  # has as many rows as there are ids
        ("lm_head.weight", (1536, 128)),  # has not
        ("model.embed_tokens.qweight", (1544, 16)),
    ],
)
def test_what_is_unclear_is_named(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    folder = make_model(tmp_path / "whole", True, False)
    mx.save_safetensors(str(folder / "model-2.safetensors"), {name: mx.zeros(shape)})
    arguments = "prune-draft", "--draft", folder, "--corpus", "sample:pl", "-o", tmp_path / "small"
    assert name in error_of(run(*arguments))
    assert not (tmp_path / "small").exists()


def test_an_added_token_may_have_no_row(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "whole", True, False, padding=0)
    spec = json.loads((folder / "tokenizer.json").read_text())
    spec["added_tokens"].append({**spec["added_tokens"][-1], "id": 1536, "content": "<image>"})
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    found = figures("prune-draft", "--draft", folder, "--corpus", "sample:pl", "--ids", 700, "-o", tmp_path / "small")
    assert found["statistics"]["ids"] == {"before": 1537, "after": 701}
    assert json.loads((tmp_path / "small" / "config.json").read_text())["vocab_size"] == 700
    assert open_tokenizer(tmp_path / "small").backend.token_to_id("<image>") == 700


@pytest.mark.nightly
def test_placeholders_stay_only_where_something_names_them(tmp_path: Path, shared: Path) -> None:
    """Of Bielik's 119, the one in the chat template, the one in the map of special tokens, and the one in the text."""
    folder = make_model(tmp_path / "whole", True, False, tokenizer=shared / "tokenizers" / "bielik-11b-v2.5")
    (folder / "chat_template.jinja").write_text("{{ '<|control_20|>' }}")
    (folder / "special_tokens_map.json").write_text(json.dumps({"sep_token": "<|control_21|>"}))
    text = tmp_path / "pl.txt"
    text.write_text("\n".join(["Rzeka <|control_22|> płynie.", *open_corpus("sample:pl")]))
    whole, said = open_tokenizer(folder), list[str]()
    prune_model(folder, whole, [open_corpus(str(text))], tmp_path / "small", said.append)
    small = open_tokenizer(tmp_path / "small")
    assert {*placeholders(small).values()} == {f"<|control_{number}|>" for number in (20, 21, 22)}
    others = {token["content"] for token in whole.spec["added_tokens"]} - {*placeholders(whole).values()}
    assert others <= {token["content"] for token in small.spec["added_tokens"]}
    assert len(placeholders(whole)) == 119 and any("116 added tokens" in line for line in said)


def test_damaged_and_missing_weights_are_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "whole", True, False)
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(ArtifactError, match="each of the tokenizer's 2,000 ids"):
        open_weights(folder, config, 2000)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"model\.safetensors: damaged"):
        open_weights(folder, config, 1536)
    file.unlink()
    with pytest.raises(ArtifactError, match="expected model"):
        open_weights(folder, config, 1536)


def lossy() -> Backend:
    """Unigram without bytes, in which ``ż`` is spelled by no token but the whole word."""
    pieces = [("<unk>", 0.0), *((char, -5.0) for char in "▁abco"), ("▁żaba", -9.0), *((f"a{x}", -6.0) for x in "bco")]
    backend = Backend(models.Unigram(pieces, 0, False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


def test_a_text_that_does_not_come_back_is_named(tmp_path: Path) -> None:
    whole = open_tokenizer(lossy())
    folder = make_model(tmp_path / "whole", True, False)
    (folder / "tokenizer_config.json").unlink()
    (tmp_path / "text.txt").write_text("ab aco\nżaba\n" + "abo aba\n" * 100)
    with pytest.raises(TokenizerError, match=r"text\.txt, .*: from byte 0"):
        prune_model(folder, whole, [open_corpus(str(tmp_path / "text.txt"))], tmp_path / "out", print, ids=7)
    assert list(tmp_path.glob(".out*")) == []


def test_a_text_of_which_nothing_is_known_is_named(tmp_path: Path) -> None:
    backend = Backend(models.BPE({char: place for place, char in enumerate("▁abcdefghijkl")}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(prepend_scheme="never"), decoders.Metaspace()
    (tmp_path / "uk.txt").write_text("річка\nгора\n" * 50, encoding="utf-8")
    folder, corpora = make_model(tmp_path / "whole", True, False), [open_corpus(str(tmp_path / "uk.txt"))]
    with pytest.raises(TokenizerError, match=r"knows none of .*uk\.txt\. Give another text"):
        prune_model(folder, open_tokenizer(backend), corpora, tmp_path / "out", print)


@pytest.mark.real
def test_pruned_gemma_writes_what_the_whole_one_does(tmp_path: Path, shared: Path) -> None:
    """In mlx-lm; and transformers loads the same tokenizer."""
    folder = Path(os.environ.get("SPECTOOL_MODELS", user_cache_path("spectool-models"))) / "gemma3-270m"
    if not (folder / "config.json").exists():
        pytest.skip(f"no gemma3-270m in {folder.parent}; get it with: python benchmarks/real_models.py gemma3-270m")
    corpora = [open_corpus(str(shared / "corpora" / f"{language}.valid.txt.zst")) for language in ("pl", "uk")]
    manifest = prune_model(folder, open_tokenizer(folder), corpora, tmp_path / "small", print)
    assert manifest.statistics["ids"]["after"] < 50_000
    (whole, whole_tokenizer), (small, tokenizer) = load(str(folder)), load(str(tmp_path / "small"))
    names = {place: name for name, place in tokenizer.get_vocab().items()}
    vocabulary, rows = whole_tokenizer.get_vocab(), small.model.embed_tokens.weight.shape[0]
    olds = mx.array([vocabulary[names[place]] for place in range(rows)])
    for prompt in ("Rzeka ma swoje źródła w górach, a kończy bieg w morzu. Rzeka", "Річка бере початок у горах, а"):
        fed = mx.array(tokenizer.encode(prompt))
        mine = [int(token) for token, _ in generate_step(fed, small, max_tokens=40)]
        # The whole model writes among the kept tokens alone.
        theirs = generate_step(
            olds[fed], whole, max_tokens=40, sampler=lambda scores: olds[mx.argmax(scores[:, olds], axis=-1)]
        )
        assert olds[mx.array(mine)].tolist() == [int(token) for token, _ in theirs]
    loaded = AutoTokenizer.from_pretrained(tmp_path / "small")
    messages = [{"role": "user", "content": "Dzień dobry, Олю! 12 zł\n"}]
    theirs, mine = (side.apply_chat_template(messages, tokenize=False) for side in (whole_tokenizer, loaded))
    assert theirs == mine
    assert loaded.decode(loaded.encode(mine, add_special_tokens=False)) == mine
    assert loaded.encode("Dzień")[0] == loaded.bos_token_id == 2
