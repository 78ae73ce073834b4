"""The proposer for vLLM: what it proposes for a batch, and that vLLM's own code takes it."""

import ast
import inspect
import random
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spectool import FingerprintMismatch, SpectoolError
from spectool.artifacts.dictionary import Dictionary
from spectool.measure.replay import replay
from spectool.runtime.demo_models import demo_path
from spectool.runtime.drafters.drafter import accepted_length
from spectool.runtime.drafters.lookup import LookupDrafter
from spectool.runtime.vllm_proposer import DictionaryProposer
from spectool.tests.build.dictionaries import written
from spectool.tokenization.opening import open_tokenizer

TOKENIZER = demo_path("target") / "tokenizer.json"
LONGEST = 400
NAME = "spectool.runtime.vllm_proposer.DictionaryProposer"


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vllm") / "x.dict"
    rows = [([a], (a * 7 + 1) % 50, 0.5) for a in range(40)]
    rows += [([b, a], (a + b) % 50, 0.9) for a in range(40) for b in range(0, 40, 3)]
    return written(path, rows, open_tokenizer(TOKENIZER).identity).path


def config(dictionary: Path, tokens: int = 5, tokenizer: object = TOKENIZER, **settings: Any) -> Any:
    """The part of vLLM's configuration that matters here."""
    return SimpleNamespace(
        additional_config={"spectool": {"dictionary": str(dictionary), **settings}},
        model_config=SimpleNamespace(tokenizer=str(tokenizer), max_model_len=LONGEST),
        speculative_config=SimpleNamespace(num_speculative_tokens=tokens, model=NAME),
    )


class Batch:
    """Requests in rows, as vLLM keeps them: token ids padded to the longest, lengths, and what is new."""

    def __init__(self, rows: int) -> None:
        self.tokens = np.zeros((rows, LONGEST), dtype=np.int32)
        self.lengths = np.zeros(rows, dtype=np.int32)

    def put(self, row: int, tokens: Sequence[int]) -> None:
        self.tokens[row, : len(tokens)] = tokens
        self.lengths[row] = len(tokens)


@pytest.mark.parametrize("history", [False, True])
def test_replaying_through_the_batch_gives_what_the_emulator_gives(dictionary: Path, history: bool) -> None:
    choice = random.Random(5)
    texts = [chained_text(choice) for _ in range(3)]
    proposer = DictionaryProposer(config(dictionary, history=history, min_probability=0.0))
    batch, passes = Batch(3), 0
    new: list[list[int]] = [[text[0]] for text in texts]
    at = [1, 1, 1]
    while any(new):
        for row, text in enumerate(texts):
            batch.put(row, text[: at[row]])
        proposals = proposer.propose(new, batch.lengths, batch.tokens, slot_mappings=None)
        assert all(type(token) is int for proposal in proposals for token in proposal)
        for row, (text, proposal) in enumerate(zip(texts, proposals, strict=True)):
            if not new[row]:
                assert proposal == []
                continue
            truth = text[at[row] : at[row] + len(proposal) + 1]
            new[row] = truth[: accepted_length(proposal, truth) + 1]
            at[row] += len(new[row])
            passes += bool(new[row])
    drafter = LookupDrafter(Dictionary(dictionary), history)
    # The emulator's first pass is over nothing and commits one token; here that token is the prompt.
    assert passes == replay(texts, drafter, 5).passes - len(texts)
    assert passes < sum(map(len, texts)) * 0.8


def chained_text(choice: random.Random) -> list[int]:
    """A text that the dictionary often knows, and that repeats itself."""
    text = [choice.randrange(40)]
    while len(text) < 120:
        text.append((text[-1] * 7 + 1) % 50 if choice.random() < 0.6 else choice.randrange(45))
    return text + text


def test_a_row_that_changes_hands_starts_again(dictionary: Path) -> None:
    choice = random.Random(7)
    proposer = DictionaryProposer(config(dictionary, history=True, min_probability=0.0))
    fresh = [choice.sample(range(60, 160), 40) for _ in range(4)]
    batch = Batch(2)
    for row in (0, 1):
        batch.put(row, fresh[row] + fresh[row][:4])
    first = proposer.propose([[fresh[0][3]], [fresh[1][3]]], batch.lengths, batch.tokens)
    assert first == [fresh[0][4:9], fresh[1][4:9]], "each from its own history"
    batch.tokens[[0, 1]] = batch.tokens[[1, 0]]
    for row, text in ((0, fresh[1]), (1, fresh[0])):
        batch.put(row, text + text[:5])
    swapped = proposer.propose([[fresh[1][4]], [fresh[0][4]]], batch.lengths, batch.tokens)
    assert swapped == [fresh[1][5:10], fresh[0][5:10]]
    batch.put(0, fresh[2] + fresh[2][:9])
    other = proposer.propose([[fresh[2][8]], []], batch.lengths, batch.tokens)
    assert other == [fresh[2][9:14], []], "a new request in an old row, and one whose prompt is being read"


def test_nothing_is_proposed_beyond_the_longest_text(dictionary: Path) -> None:
    proposer = DictionaryProposer(config(dictionary, tokens=8, min_probability=0.0))
    batch = Batch(1)
    for length, most in ((LONGEST - 20, 8), (LONGEST - 4, 3), (LONGEST - 1, 0), (LONGEST, 0)):
        batch.put(0, [3] * length)
        assert len(proposer.propose([[3]], batch.lengths, batch.tokens)[0]) == most


def test_a_drafter_that_fails_leaves_its_request_alone(
    dictionary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    proposer = DictionaryProposer(config(dictionary))
    batch = Batch(2)
    batch.put(0, [1, 2])
    batch.put(1, [3, 4])
    propose = LookupDrafter.propose
    broken: list[object] = []

    def failing(self: LookupDrafter, limit: int) -> Any:
        if not broken or broken[0] is self:
            broken[:] = [self]
            raise RuntimeError("no more")
        return propose(self, limit)

    monkeypatch.setattr(LookupDrafter, "propose", failing)
    proposals = proposer.propose([[2], [4]], batch.lengths, batch.tokens)
    assert "switched off" in caplog.text and proposals[0] == [] and proposals[1]
    broken[:] = [None]
    batch.put(0, [1, 2, 3])
    assert proposer.propose([[3], []], batch.lengths, batch.tokens) == [[], []], "not asked again"
    batch.put(0, [7, 8])
    assert proposer.propose([[8], []], batch.lengths, batch.tokens)[0], "but by the next request"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (None, "dictionary: Field required"),
        ({"min_probability": 2}, "min_probability: Input should be less than or equal to 1"),
        ({"min_probability": "high"}, "min_probability: Input should be a valid number"),
        ({"history": 1}, "history: Input should be a valid boolean"),
        ({"speed": 9}, r"spectool\.speed: Extra inputs are not permitted"),
    ],
)
def test_wrong_settings(dictionary: Path, settings: dict[str, Any] | None, says: str) -> None:
    wrong = config(dictionary, **settings or {})
    if settings is None:
        wrong.additional_config = {}
    with pytest.raises(SpectoolError, match=says):
        DictionaryProposer(wrong)


def test_a_dictionary_of_another_tokenizer(dictionary: Path) -> None:
    with pytest.raises(FingerprintMismatch, match="spectool build-dict"):
        DictionaryProposer(config(dictionary, tokenizer=demo_path("other") / "tokenizer.json"))


def test_a_worker_that_imports_it_loads_no_mlx() -> None:
    code = "import sys, spectool.runtime.vllm_proposer; print({'mlx', 'mlx_lm', 'torch', 'vllm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture(scope="module")
def vllm_sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Some of vLLM's own files, from its newest wheel; nothing of it is installed or run but what is tested."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "vllm", "--no-deps", "--only-binary", ":all:", "-d", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"vLLM's wheel cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = {"proposer": "spec_decode/custom_class_proposer.py", "runner": "worker/gpu_model_runner.py"}
        yield {key: wheel.read(f"vllm/v1/{name}").decode() for key, name in names.items()}
    wheels[0].unlink()


@pytest.mark.slow
def test_vllms_own_loader_makes_one(
    dictionary: Path, vllm_sources: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vllm", "vllm.config", "vllm.logger"):
        stand_in: Any = types.ModuleType(name)
        stand_in.VllmConfig, stand_in.init_logger = SimpleNamespace, lambda name: SimpleNamespace(info=print)
        monkeypatch.setitem(sys.modules, name, stand_in)
    loader: dict[str, Any] = {"__name__": "custom_class_proposer"}
    exec(compile(vllm_sources["proposer"], "custom_class_proposer.py", "exec"), loader)
    proposer = loader["create_custom_proposer"](config(dictionary))
    assert isinstance(proposer, DictionaryProposer)


@pytest.mark.slow
def test_vllms_own_call_fits(vllm_sources: dict[str, str]) -> None:
    calls = [
        node
        for branch in ast.walk(ast.parse(vllm_sources["runner"]))
        if isinstance(branch, ast.If) and "'custom_class'" in ast.unparse(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".propose")
    ]
    assert len(calls) == 1
    arguments = [ast.unparse(argument) for argument in calls[0].args]
    keywords = {str(keyword.arg): ast.unparse(keyword.value) for keyword in calls[0].keywords}
    bound = inspect.signature(DictionaryProposer.propose).bind(None, *arguments, **keywords).arguments
    for name in ("sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu", "slot_mappings"):
        assert bound[name].endswith(name)


def test_tokens_that_the_model_does_not_have_are_not_proposed(dictionary: Path) -> None:
    batch = Batch(1)
    batch.put(0, [1, 2, 3])
    settings = config(dictionary, min_probability=0.0)
    (whole,) = DictionaryProposer(settings).propose([[3]], batch.lengths, batch.tokens)
    for rows in {1, 9, *whole}:
        settings.model_config.get_vocab_size = lambda rows=rows: rows
        (cut,) = DictionaryProposer(settings).propose([[3]], batch.lengths, batch.tokens)
        assert cut == whole[: next((at for at, token in enumerate(whole) if token >= rows), len(whole))]
