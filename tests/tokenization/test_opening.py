"""Opening tokenizers from every form, and what is said where nothing usable is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool import TokenizerError
from spectool.runtime.loading import load_model
from spectool.tokenization.fingerprint import PROBES, probed
from spectool.tokenization.incremental.by_text import TailReencoder
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.round_trips import limits
from spectool.tokenization.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path: Path, byte_level: Backend) -> Path:
    """A model's folder with a tokenizer, as transformers writes it."""
    directory = tmp_path / "model"
    directory.mkdir()
    byte_level.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def test_every_form_is_the_same_tokenizer(folder: Path, byte_level: Backend) -> None:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(folder)
    forms = [folder, str(folder), folder / "tokenizer.json", loaded, TokenizerWrapper(loaded), byte_level]
    opened = [open_tokenizer(form) for form in forms]
    assert len({tokenizer.fingerprint for tokenizer in opened}) == 1
    assert {tokenizer.size for tokenizer in opened} == {261}
    end = byte_level.token_to_id("<|endoftext|>")
    assert [tokenizer.roles.eos for tokenizer in opened] == [(end,)] * len(forms)
    assert [t.name for t in opened[:3]] == [str(folder), str(folder), str(folder / "tokenizer.json")]
    assert opened[3].name == str(folder)
    assert opened[-1].name == "(loaded tokenizer)"
    assert open_tokenizer(opened[0]) is opened[0]
    assert open_tokenizer(TokenizerWrapper(loaded, eos_token_ids=[7, end])).roles.eos == (end, 7)


def test_a_folder_with_nothing_but_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 5]}')
    tokenizer = open_tokenizer(folder)
    assert tokenizer.name == str(folder)
    assert tokenizer.roles.eos == (3, 5, 259)  # the well-known name among them


@pytest.mark.parametrize("form", ["folder", "file"])
def test_ends_of_text_of_a_model(folder: Path, form: str) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [9, 4, "x", true, 99999, 99999999999]}')
    tokenizer = open_tokenizer(folder if form == "folder" else folder / "tokenizer.json")
    assert tokenizer.roles.eos == (259, 4, 9)
    (folder / "generation_config.json").write_text('{"eos_token_id": 12}')
    assert open_tokenizer(folder).roles.eos == (259, 12)


def test_truncation_and_padding_change_nothing(byte_level: Backend, tmp_path: Path) -> None:
    text = "kot " * 50
    whole = open_tokenizer(byte_level).encode(text)
    assert len(whole) > 10
    byte_level.enable_truncation(10)
    byte_level.enable_padding(length=500)
    byte_level.save(str(tmp_path / "tokenizer.json"))
    for source in (byte_level, tmp_path / "tokenizer.json"):
        tokenizer = open_tokenizer(source)
        assert tokenizer.encode(text) == whole
        assert tokenizer.encode_batch([text, "a"]) == [whole, tokenizer.encode("a")]
    assert byte_level.truncation is not None, "the caller's own tokenizer must stay as it is"


def test_mistral_rebuilt_by_transformers(shared: Path, real: Callable[[str], Tokenizer], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    source = shared / "tokenizers" / "mistral-7b-v0.1"
    shutil.copyfile(source / "tokenizer.json", tmp_path / "tokenizer.json")
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "LlamaTokenizer"}))
    rebuilt, plain, loaded = open_tokenizer(tmp_path), real(source.name), AutoTokenizer.from_pretrained(tmp_path)
    assert rebuilt.fingerprint != plain.fingerprint
    assert open_tokenizer(tmp_path / "tokenizer.json").fingerprint == plain.fingerprint
    for text in ("  dwa  spacje", "\n\nnowy", "HTTPServer2 don't", "Zażółć"):
        assert rebuilt.encode(text) == loaded.encode(text, add_special_tokens=False)
        assert open_tokenizer(loaded).encode(text) == rebuilt.encode(text)
    # Two leading spaces: one token in tokenizer.json, kept apart by the rebuilt one.
    assert rebuilt.encode("  dwa") != plain.encode("  dwa")


def check_as_transformers_loads_it(directory: Path) -> Tokenizer:
    """Hold a directory's tokenizer against what transformers makes of it; return it."""
    from transformers import AutoTokenizer

    opened, loaded = open_tokenizer(directory), open_tokenizer(AutoTokenizer.from_pretrained(directory))
    assert (opened.spec, opened.fingerprint) == (loaded.spec, loaded.fingerprint)
    assert opened.roles == loaded.roles
    return opened


@pytest.mark.nightly
def test_real_folders_are_what_transformers_makes_of_them(shared: Path) -> None:
    directories = [path.parent for path in sorted((shared / "tokenizers").glob("*/tokenizer.json"))]
    assert len(directories) >= 17
    refused = []
    for directory in directories:
        try:
            open_tokenizer(directory)
        except TokenizerError as error:
            assert "marks for parts of words" in str(error)
            refused.append(directory.name)
        else:
            check_as_transformers_loads_it(directory)
    assert refused and set(refused) <= {"bert-base-uncased", "herbert-base-cased"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<new>"}),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "the"}),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "image_token": "<image>"}),
        ("special_tokens_map.json", {"pad_token": "<new>"}),
        ("added_tokens.json", {"<new>": 5000}),
    ],
)
def test_other_files_and_keys_may_add_tokens(folder: Path, name: str, content: dict[str, str | int]) -> None:
    plain = check_as_transformers_loads_it(folder)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    assert check_as_transformers_loads_it(folder).spec["added_tokens"] != plain.spec["added_tokens"]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"/no-such: no such file.*not a hub id"):
        open_tokenizer(tmp_path / "no-such")
    for wrong in (None, 7, ["a"]):
        with pytest.raises(TokenizerError, match=f"{type(wrong).__name__}: not backed by the `tokenizers` library"):
            open_tokenizer(wrong)


@pytest.mark.parametrize("name", ["tokenizer.model", "model.safetensors"])
def test_a_folder_without_a_fast_tokenizer(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00")
    with pytest.raises(TokenizerError, match=rf"{tmp_path}: no tokenizer\.json in this directory, .*AutoTokenizer"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("damage", [b"{", b"", b"[]", b'{"model": 5}', b"\xff\xfe\x00"])
def test_a_damaged_tokenizer_json(folder: Path, damage: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(damage)
    with pytest.raises(TokenizerError, match=r"model: transformers cannot load .*Download its files again"):
        open_tokenizer(folder)
    with pytest.raises(
        TokenizerError, match=r"model/tokenizer\.json: not a tokenizer\.json that the tokenizers library"
    ):
        open_tokenizer(folder / "tokenizer.json")


KERAS = {"class_name": "Tokenizer", "config": {}}


@pytest.mark.parametrize(
    ("content", "came"),
    [
        ({"config": {}, "one_token_stream": True, "has_bpe": False}, "expected"),
        ({"version": "bpe-1", "model": {"n_layer": 6}}, ""),
        (KERAS, ""),
        (json.dumps(KERAS), ""),
        (["<", "body", ">"], ""),
    ],
)
def test_other_json_is_refused_in_the_librarys_words(content: object, came: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    for form in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(TokenizerError, match=rf"/tokenizer\.json: not .*{came}.* Expected .*save_pretrained"):
            open_tokenizer(form)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "tokenizer.model"])
def test_what_git_lfs_has_not_downloaded_is_named(folder: Path, name: str) -> None:
    if name == "tokenizer.model":
        (folder / "tokenizer.json").unlink()
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 2281\n")
    with pytest.raises(TokenizerError, match=rf"model/{name}: .*Git LFS.*git lfs pull"):
        open_tokenizer(folder)


def test_the_hub_out_of_reach(tmp_path: Path) -> None:
    """In a process of its own: the hub library reads the variable when it is imported."""
    code = (
        "from spectool import TokenizerError\n"
        "from spectool.tokenization.opening import open_tokenizer\n"
        "try:\n    open_tokenizer('nobody-here/no-such-model')\n"
        "except TokenizerError as error:\n    print(error)\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("nobody-here/no-such-model: no such directory; as a hub id, not found (")
    assert "download it first" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("tekken.json", b'{"config": {"pattern": "x", "default_num_special_tokens": 1000}, "vocab": []}'),
        ("tokenizer.model", b"IQ== 0\nIg== 1\n"),
        ("model.gguf", b"GGUF\x03\0\0\0"),
    ],
)
def test_other_formats_are_refused_with_the_way_out(file: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(data)
    with pytest.raises(TokenizerError, match=rf"{file}: not a tokenizer\.json .*save_pretrained"):
        open_tokenizer(tmp_path / file)


def test_a_directory_without_tokenizer_json_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    import sentencepiece

    text = tmp_path / "text"
    text.write_text("Ala ma kota, a kot ma Alę.\nWczoraj wieczorem poszliśmy do kina.\n" * 50, encoding="utf-8")
    folder = tmp_path / "model"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), vocab_size=330, model_type="bpe", byte_fallback=True
    )
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}', encoding="utf-8")
    tokenizer = open_tokenizer(folder)
    assert tokenizer.bytes_of(tokenizer.encode("Ala ma 🙂 kota")) == "Ala ma 🙂 kota".encode()


def test_a_model_that_stops_at_unknown_text_has_an_identity(tmp_path: Path) -> None:
    """Commands that compare files with what transformers loads must get as far as naming the fault."""
    Backend(models.Unigram([("a", -1.0)])).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}'
    )
    for path in (tmp_path / "tokenizer.json", tmp_path):
        assert len(open_tokenizer(path).identity["fingerprint"]) == 64


@pytest.mark.parametrize(
    ("name", "found"), [("bert-base-uncased", "WordPiece"), ("herbert-base-cased", "BPE with end_of_word_suffix")]
)
def test_tokenizers_of_no_causal_language_model_are_refused_by_name(
    shared: Path, name: str, found: str, byte_level: Backend
) -> None:
    for source in (shared / "tokenizers" / name, shared / "tokenizers" / name / "tokenizer.json"):
        with pytest.raises(TokenizerError, match=rf"{name}.*: expected BPE without marks.*got {found}"):
            open_tokenizer(source)
    byte_level.model.dropout = 0.1  # leaves out merges at random
    with pytest.raises(TokenizerError, match=r"without dropout, .* got BPE with dropout"):
        open_tokenizer(byte_level)


def test_a_declared_token_that_is_no_text_is_refused_by_name(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": "\\ud800"}')
    for form in (folder, folder / "tokenizer.json"):
        with pytest.raises(TokenizerError, match=rf"^{form}: .*surrogates not allowed"):
            open_tokenizer(form)


def test_a_file_on_which_the_library_panics_is_refused_by_name(tmp_path: Path, byte_level: Backend) -> None:
    spec = json.loads(byte_level.to_str())
    spec["model"]["continuing_subword_prefix"] = "@@@@@@@@"
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(spec))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: not a tokenizer\.json that the tokenizers library"):
        open_tokenizer(file)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(TokenizerError, match="transformers cannot load this tokenizer"):
        open_tokenizer(tmp_path)


def test_a_text_on_which_the_library_panics_is_an_error(byte_level: Backend) -> None:
    byte_level.normalizer = normalizers.Strip()
    byte_level.add_tokens([AddedToken("  ", rstrip=True)])
    tokenizer = open_tokenizer(byte_level)
    joined = TailReencoder(tokenizer)
    reads: list[Callable[[str], object]] = [tokenizer.encode, lambda text: joined.encode(text.encode())]
    for read in reads:
        with pytest.raises(TokenizerError, match="cannot encode a text"):
            read("kot ﬁ kot")
    assert len(probed(byte_level)) == len(PROBES)


def test_a_pattern_on_which_the_library_panics_is_an_error(byte_level: Backend) -> None:
    byte_level.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("(?=(.*)*z)"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer = open_tokenizer(byte_level)
    reads: list[Callable[[], object]] = [lambda: limits(tokenizer), lambda: tokenizer.loses_text("".join(PROBES))]
    for read in reads:
        with pytest.raises(TokenizerError, match="cannot encode a text"):
            read()


def test_an_id_far_beyond_all_others_is_refused_by_name(byte_level: Backend) -> None:
    spec = json.loads(byte_level.to_str())
    spec["model"]["vocab"]["kot"] = 2_000_000_000
    tokenizer = open_tokenizer(Backend.from_str(json.dumps(spec)))
    with pytest.raises(TokenizerError, match="token 'kot' has the id 2,000,000,000, expected ids below 16,777,216"):
        _ = tokenizer.size


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "vocab.txt"])
def test_a_pipe_in_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(TokenizerError, match=rf"{name}: expected a file, got a pipe"):
        open_tokenizer(folder)
    with pytest.raises(TokenizerError, match=rf"{name}: expected a file, got a pipe"):
        open_tokenizer(folder / name)
    with pytest.raises(TokenizerError, match=rf"{name}: expected a file, got a pipe"):
        load_model(str(folder))
