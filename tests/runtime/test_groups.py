"""Models that are spread over processes of MLX's ring, on loopback: the same text as plain decoding."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from spectool.runtime.demo_models import demo_path
from spectool.runtime.groups.link import processes_of
from spectool.runtime.groups.others import follow_rank_0
from spectool.runtime.groups.rank_0 import leader_of
from spectool.tests.rings import outputs_of, start_ring
from spectool.tests.running import run
from spectool.tests.runtime.models import KINDS, tiny_model
from spectool.tests.runtime.renumbered import renumbered_target
from spectool.tests.tiers import slow

pytestmark = pytest.mark.nightly


USUAL = {"pipeline": False, "late": 0.0, "dictionary": None, "draft_model": None, "alignment": None}


def written(folder: Path, count: int, **settings: Any) -> None:
    """Write texts on a ring, and check that they are those of plain decoding."""
    told = json.dumps(USUAL | settings, default=str)
    ring = start_ring(count, folder, "-m", "spectool.tests.runtime.group_program", told)
    found = json.loads(outputs_of(ring)[0])
    assert len(found) == settings["generations"]
    assert [text for text, right in found if not right] == []


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A dictionary for the demo model, and a draft model with another tokenizer."""
    folder = tmp_path_factory.mktemp("drafts")
    made = run("build-dict", "--tokenizer", demo_path("target"), "--corpus", "sample:pl", "-o", folder / "pl.dict")
    assert made.exit_code == 0, made.output
    draft, alignment = renumbered_target(folder)
    return {"dictionary": str(folder / "pl.dict"), "draft_model": draft, "alignment": alignment}


def saved(folder: Path, kind: str, layers: int, **changes: Any) -> Path:
    """A random model that can be pipelined, with the demo model's tokenizer."""
    arguments = {**KINDS[kind], "num_hidden_layers": layers, "vocab_size": 1536, "model_type": kind, **changes}
    module = import_module(f"mlx_lm.models.{kind}")
    mx.random.seed(3)
    weights: Any = dict(tree_flatten(module.Model(module.ModelArgs.from_dict(arguments)).parameters()))
    weights = {name: each * 2.0 if each.ndim == 2 and "embed" not in name else each for name, each in weights.items()}
    shutil.copytree(demo_path("target"), folder, ignore=shutil.ignore_patterns("*.safetensors*", "config.json"))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps({**arguments, "eos_token_id": 2}))
    index = {"weight_map": dict.fromkeys(weights, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.slow
def test_ranks_that_are_late_write_the_same_text(tmp_path: Path, drafts: dict[str, str]) -> None:
    written(tmp_path, 2, model=demo_path("target"), generations=36, late=0.2, **drafts)


def test_a_pipeline_of_three_processes_writes_the_same_text(tmp_path: Path, drafts: dict[str, str]) -> None:
    kinds = ["sliding_attention", "full_attention"] * 3  # windows are taken back on every rank
    model = saved(tmp_path / "model", "ministral3", 6, layer_types=kinds)
    written(tmp_path, 3, model=model, pipeline=True, generations=12, **drafts)


@pytest.mark.parametrize(("kind", "pipeline"), [("qwen3_5", False), *slow(("qwen2", True), ("qwen3_5", True))])
def test_other_kinds_of_models_write_the_same_text(tmp_path: Path, kind: str, pipeline: bool) -> None:
    heads = {"num_key_value_heads": 2, "linear_num_key_heads": 2} if kind == "qwen3_5" else {}  # some on each rank
    model = saved(tmp_path / "model", kind, 4, **heads)
    written(tmp_path, 2, model=model, pipeline=pipeline, generations=12)


def test_a_model_of_one_process_has_nobody_to_tell() -> None:
    model: Any = tiny_model()
    assert processes_of(model) == 1
    assert leader_of(model) is None
    follow_rank_0(model)  # returns at once
