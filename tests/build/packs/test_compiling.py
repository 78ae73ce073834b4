"""Packs compiled for tokenizers: the same windows as counted in the text itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from spectool import SpectoolError
from spectool.artifacts.pack import Pack
from spectool.build.corpus_reading import quiet
from spectool.build.dictionary import BackoffOptions
from spectool.build.packs import PackOptions
from spectool.build.packs.compiling import compile_pack, spell
from spectool.build.packs.stage import build_pack, count_and_build
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tests.build.counting_twin import spelled, token_windows
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

ABOUT = {"language": "pl", "credits": ["a sample"]}
ALL = PackOptions(max_bytes=10_000_000, orders=5, min_names=0)


def pack_of(path: Path, text: str, options: PackOptions = ALL) -> Pack:
    path.with_suffix(".md").write_text(text, encoding="utf-8")  # one document
    corpus = open_corpus(str(path.with_suffix(".md")))
    build_pack([], [corpus], ABOUT, path, options, quiet)
    return Pack(path)


def assert_same_windows(tokenizer: Tokenizer, folder: Path) -> None:
    """Every window of four tokens lies in five pieces, so a pack that keeps all n-grams has lost none of them.

    The text is read twice, so everything occurs twice, and n-grams that save nothing are the only ones that are left
    out.
    """
    text = "\n".join(open_corpus("sample:pl"))
    pack = pack_of(folder / "x.pack", f"{text}\n{text}")
    counts = compile_pack(pack, tokenizer, 4)
    for order in range(1, 5):
        expected = {window: n for window, n in token_windows([f"{text}\n{text}"], tokenizer, order).items() if n > 1}
        found = spelled(counts, order)
        common = expected.keys() & found.keys()
        assert sum(expected[window] for window in common) >= 0.9 * sum(expected.values())
        near = [abs(found[window] - expected[window]) <= 0.2 * expected[window] for window in common]
        assert np.mean(near) > 0.95


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["target", "other"])
def test_windows_of_the_demo(name: Literal["target", "other"], tmp_path: Path) -> None:
    assert_same_windows(open_tokenizer(demo_path(name) / "tokenizer.json"), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gpt2", "phi-3-mini", "bielik-11b-v2.5", "gemma-3", "qwen2.5"])
def test_windows_of_real_tokenizers(real: Callable[[str], Tokenizer], name: str, tmp_path: Path) -> None:
    assert_same_windows(real(name), tmp_path)


def test_text_counts_on_top_of_a_pack(tmp_path: Path) -> None:
    pack = pack_of(tmp_path / "x.pack", "Ala ma kota i psa. " * 50)
    own = tmp_path / "own.txt"
    own.write_text("\n".join(["Ala ma rybę i psa."] * 80), encoding="utf-8")
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    tokens = []
    for name, corpus in (("pack.dict", None), ("both.dict", open_corpus(str(own)))):
        manifest = count_and_build(tokenizer, corpus, tmp_path / name, BackoffOptions(), quiet, [pack])
        assert manifest.inputs["packs"] == [{"name": "x.pack", "sha256": pack.file.sha256, "language": "pl"}]
        tokens.append(manifest.statistics["tokens"])
    assert tokens[1] > tokens[0] > 0


def test_a_pack_that_is_too_large_is_refused_while_it_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = pack_of(tmp_path / "x.pack", "Ala ma kota i psa. " * 50)
    tokenizer = open_tokenizer(demo_path("target") / "tokenizer.json")
    monkeypatch.setattr("spectool.build.packs.compiling.memory_for_counting", lambda: 64 * 5)
    with pytest.raises(SpectoolError, match=r"x\.pack: has too many n-grams"):
        spell(pack, tokenizer)
