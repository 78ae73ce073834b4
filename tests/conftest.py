"""Fixtures shared by all tests: real tokenizers and corpora where they are, bundled and small made-up tokenizers."""

import json
import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import mlx.core as mx
import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.incremental.by_ids import IncrementalBPE
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer

SHARED = Path(os.environ.get("SPECTOOL_SHARED", Path(__file__).resolve().parents[2] / "shared"))


# Vocabularies of 128,000 ids and more take seconds to open and to walk through.
BIG = (
    "gemma-3",
    "gemma3-",
    "gpt4o-o200k",
    "llama-3.2",
    "mistral-nemo",
    "nanochat-pl-ours6-nfkc",
    "qwen2.5",
    "xlm-roberta-base",
)
# Of tiny models, `make test` takes llama, gemma3_text and qwen3_5: caches that grow, windows, and recurrent layers.
# Each of the others is like one of these, or rare.
OTHERS = {
    *("qwen2", "qwen3", "ministral3", "internlm2", "gemma2"),
    *("deepseek_v3", "falcon_h1", "llama4", "mamba2", "nemotron-nas"),
}

# Folders and files of tests that run tiny models; the others have no model and no process.
ENGINE = (
    *("build/test_pruning", "cli", "commands", "measure", "serve", "test_docs", "test_real"),
    *(f"runtime/{name}" for name in ("batching", "caches", "decoding", "drafters", "sampling", "test_")),
)

# An example may take long on a busy machine; what grows with its input has tests of its own.
hypothesis.settings.register_profile("spectool", deadline=None)
hypothesis.settings.load_profile("spectool")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the processes of tests, and leave models uncompiled in `make test`."""
    # A shell makes what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not compiles(config):
        mx.disable_compile()


def compiles(config: pytest.Config) -> bool:
    """Whether MLX compiles: on a CPU each of mlx-lm's filters takes seconds, so only the longer tiers do."""
    return any(tier in config.option.markexpr for tier in ("nightly", "slow", "real"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files of the longer tiers in `make test`, and what they import: clients, pandas, SciPy."""
    if not config.option.markexpr or compiles(config) or collection_path.suffix != ".py":
        return None
    longer = re.search(r"^pytestmark = pytest.mark.(nightly|real)$", collection_path.read_text("utf-8"), re.MULTILINE)
    return bool(longer) or collection_path.is_relative_to(Path(__file__).parent / "lab") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its tier: by its marks, by the tokenizers and models that it takes, or else by its folder."""
    for item in items:
        values = (
            item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        )
        where = item.path.relative_to(Path(__file__).parent).as_posix()
        if item.get_closest_marker("real"):
            continue
        if (
            item.get_closest_marker("nightly")
            or item.get_closest_marker("slow")
            or where.startswith("lab/")
            or any(name in str(value) for value in values for name in BIG)
            or (where.startswith("runtime/") and not OTHERS.isdisjoint(map(str, values)))
        ):
            item.add_marker(pytest.mark.nightly)
        else:
            item.add_marker(pytest.mark.engine if where.startswith(ENGINE) else pytest.mark.unit)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what commands write without ``-o``, and what they find there, apart from the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    caches = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("platformdirs.user_cache_dir", lambda name: str(folder / name))
        patch.setenv("HF_HOME", os.environ.get("HF_HOME", str(caches / "huggingface")))
        patch.setenv("XDG_CACHE_HOME", str(folder))  # the same for processes
        yield


@pytest.fixture(name="cache")
def _cache_of_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the user's cache."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache" / name))
    return tmp_path / "cache" / "spectool"


@pytest.fixture(scope="session", autouse=True)
def _few_texts_are_checked() -> Iterator[None]:
    """Let `align` check 80 made texts instead of 800, and draft models guess in 2 texts instead of 8.

    These take most of the time of `align`, `prune-draft` and `setup`. Tests of the check itself want all of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spectool.build.alignment.check._TEXTS", 40)
        patch.setattr("spectool.measure.first_guesses._TEXTS", 2)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with real ``tokenizers/`` and ``corpora/``; tests that need it skip without it."""
    if not (SHARED / "tokenizers").is_dir():
        pytest.skip(f"no tokenizers and corpora at {SHARED}; set SPECTOOL_SHARED to their folder")
    return SHARED


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], Tokenizer]:
    """Open one of the real tokenizers from its ``tokenizer.json``; kept for the whole run."""

    @cache
    def opened(name: str) -> Tokenizer:
        return open_tokenizer(shared / "tokenizers" / name / "tokenizer.json")

    return opened


@pytest.fixture(scope="session")
def bundled() -> Tokenizer:
    """The demo target's tokenizer: SentencePiece-style BPE of a few hundred tokens."""
    return open_tokenizer(demo_path("target") / "tokenizer.json")


@pytest.fixture(scope="session")
def other_bundled() -> Tokenizer:
    """Another bundled tokenizer, byte-level."""
    return open_tokenizer(demo_path("other") / "tokenizer.json")


@pytest.fixture
def byte_level() -> Backend:
    """Byte-level BPE with all 256 bytes, `` kot`` as one token and two added tokens."""
    names = [*byte_symbols(), "ko", "kot", "Ġkot"]
    merges = [("k", "o"), ("ko", "t"), ("Ġ", "kot")]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    backend.add_tokens([AddedToken("<think>", normalized=False)])
    return backend


@pytest.fixture
def sentence_piece() -> Backend:
    """SentencePiece-style BPE with byte fallback, laid out like Llama 2."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", "k", "o", "t", "\n", "ko", "kot", "▁kot"]
    merges = [("k", "o"), ("ko", "t"), ("▁", "kot")]
    vocabulary = {name: place for place, name in enumerate(names)}
    backend = Backend(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


@pytest.fixture(scope="session")
def encoder(real: Callable[[str], Tokenizer]) -> Callable[[str], IncrementalBPE]:
    """What joins ids of a real tokenizer; kept for the whole run."""

    @cache
    def prepared(name: str) -> IncrementalBPE:
        return IncrementalBPE(real(name))

    return prepared


@pytest.fixture(scope="session")
def lines(shared: Path) -> list[str]:
    """Real lines, Ukrainian, Polish and of many kinds, in an order that is the same in every run."""
    found = [text for _, text in json.loads((shared / "tokenizers" / "test_strings.json").read_text(encoding="utf-8"))]
    for language in ("uk", "pl"):
        corpus = open_corpus(str(shared / "corpora" / f"{language}.valid.txt.zst"))
        found += [document for document, _ in zip(corpus, range(400), strict=False)]
    random.Random(1).shuffle(found)
    return found


@pytest.fixture
def rng() -> random.Random:
    """Random numbers, another sequence in every run; a test that fails shows the seed."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def interpreted(pytestconfig: pytest.Config) -> Iterator[None]:
    """Leave mlx-lm's filters uncompiled, in every tier."""
    mx.disable_compile()
    yield
    if compiles(pytestconfig):
        mx.enable_compile()
