"""``spectool lab tune-draft``: drafts that fit better, a target that stays as it is, and errors before the work."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spectool.build.alignment.stage import build_alignment
from spectool.corpora import open_corpus
from spectool.lab.resumable import work_path
from spectool.lab.training.options import TuneOptions
from spectool.lab.training.run import CURVE, Point, read_table
from spectool.lab.tuning.stage import STEPS, TASKS, StepPoint, TaskPoint, tune
from spectool.lab.tuning.tuned_model import OpenedModel
from spectool.tests.lab.training.tiny import interrupted_at
from spectool.tests.lab.training.tiny_pair import run, stored, tokenizer_of, tuned, weights_hash
from spectool.tests.running import error_of

FAIR = ["--objective", "s-cdf", "--steps", 20, "--measure-every", 5, "--seed", 3]
SHORT = ["--steps", 12, "--measure-every", 6]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, a draft with its tokenizer, and one with another."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "target": stored(folder / "target", hidden=24, seed=1, scale=0.4),
        "draft": stored(folder / "draft", seed=2, scale=0.1),
        "other": stored(folder / "other", "other", seed=3, scale=0.1),
    }


@pytest.fixture(scope="module")
def made(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A draft tuned by s-CDF, and its record."""
    out = tmp_path_factory.mktemp("made") / "tuned"
    return out, tuned(models["draft"], models["target"], *FAIR, "-o", out)


def test_it_fits_better(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    before, after = record["measured"]["before"], record["measured"]["after"]
    assert [row["task"] for row in before] == ["pl", "uk"]
    for one, two in zip(before, after, strict=True):
        assert two["divergence"] < one["divergence"] - 0.01
        assert two["kl"] == pytest.approx(one["kl"] + two["divergence"] - one["divergence"], abs=1e-4)
        assert one["acceptance"] < two["acceptance"] < 1
    losses = [point.loss for point in read_table(out / CURVE, Point)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert [point.step for point in read_table(out / CURVE, Point)] == list(range(1, 21))


def test_the_files(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    assert {path.name for path in out.iterdir()} == {*record["files"], "training.json"}
    assert set(record["files"]) >= {"tasks.parquet", "steps.parquet", "curve.parquet"}
    assert json.loads((out / "training.json").read_text()) | {"path": str(out)} == record
    assert [path.name for path in out.parent.iterdir()] == ["tuned"], "nothing is left beside it"
    points = read_table(out / TASKS, TaskPoint)
    assert [point.step for point in points] == [step for step in range(0, 21, 5) for _ in range(2)]
    for one, two in zip(points[::2], points[1::2], strict=True):
        gap = abs(one.divergence - two.divergence)
        assert one.unfairness == two.unfairness == pytest.approx(gap**2 / 2)
        assert one.kl is not None and two.kl is not None
        assert one.unfairness_kl == two.unfairness_kl == pytest.approx((one.kl - two.kl) ** 2 / 2)
        assert one.acceptance is not None and two.acceptance is not None
        assert one.acceptance_variance == pytest.approx((one.acceptance - two.acceptance) ** 2 / 4)
    stored_rows = record["measured"]["after"]
    assert [row["divergence"] for row in stored_rows] == pytest.approx([p.divergence for p in points[-2:]], abs=1e-4)


def test_the_reference_of_each_step(made: tuple[Path, dict[str, Any]]) -> None:
    out, record = made
    points = read_table(out / STEPS, StepPoint)
    assert [(point.step, point.task) for point in points] == [(n, task) for n in range(1, 21) for task in ("pl", "uk")]
    references = Counter[str]()
    for losses, one, two in zip(read_table(out / CURVE, Point), points[::2], points[1::2], strict=True):
        assert losses.loss == pytest.approx((one.divergence + two.divergence) / 2)
        assert (one.reference, two.reference) == (
            int(one.divergence <= two.divergence),
            int(one.divergence > two.divergence),
        )
        references[one.task if one.reference else two.task] += 1
    assert record["references"] == {task: references[task] / 20 for task in ("pl", "uk")}


def test_the_target_stays_as_it_is(models: dict[str, Path], tmp_path: Path) -> None:
    draft, target = OpenedModel.load(str(models["draft"])), OpenedModel.load(str(models["target"]))
    files = {path.name: path.read_bytes() for path in models["target"].iterdir()}
    before, draft_before = weights_hash(target.model), weights_hash(draft.model)
    options = TuneOptions(steps=3, rate=0.01, batch=2, length=16, valid_rows=4)
    tune(draft, target, {"pl": open_corpus("sample:pl")}, tmp_path / "out", options)
    assert weights_hash(target.model) == before
    assert {path.name: path.read_bytes() for path in models["target"].iterdir()} == files
    assert weights_hash(draft.model) != draft_before, "the test can fail"


@pytest.mark.slow
def test_an_alignment(models: dict[str, Path], tmp_path: Path) -> None:
    text = tmp_path / "pl.txt"
    text.write_text("\n".join(list(open_corpus("sample:pl"))[:25]), encoding="utf-8")
    aligned = tmp_path / "x.align"
    build_alignment(tokenizer_of("other"), tokenizer_of("target"), open_corpus(str(text)), aligned, lambda step: None)
    arguments = [*SHORT, "--alignment", aligned, "-o", tmp_path / "out"]
    result = run(models["other"], models["target"], *arguments, corpora=["--corpus", str(text)])
    assert result.exit_code == 0, result.output
    points = read_table(tmp_path / "out" / TASKS, TaskPoint)
    assert points[-1].divergence < points[0].divergence
    assert 0 < points[0].acceptance < 1
    assert points[0].task == "pl.txt"


@pytest.mark.slow
def test_s_cdf_is_fairer_than_the_mean(models: dict[str, Path], tmp_path: Path) -> None:
    """From a draft that knows one language only, with the same steps."""
    alike = ["--measure-every", 40]
    polish = ["--corpus", "pl=sample:pl"]
    tuned(models["draft"], models["target"], *alike, "--steps", 60, "-o", tmp_path / "pl", corpora=polish)
    found = {}
    for objective in ("mean", "s-cdf"):
        arguments = [*alike, "--objective", objective, "--steps", 40, "--rate", 0.003, "-o", tmp_path / objective]
        record = tuned(tmp_path / "pl", models["target"], *arguments)
        before, after = (record["measured"][when][0]["unfairness"] for when in ("before", "after"))
        assert after < 0.88 * before
        found[objective] = after
    assert found["s-cdf"] < found["mean"]


def test_the_seed_decides(made: tuple[Path, dict[str, Any]], models: dict[str, Path], tmp_path: Path) -> None:
    out, _ = made
    tuned(models["draft"], models["target"], *FAIR, "-o", tmp_path / "same")
    for name in ("model.safetensors", "tasks.parquet"):
        assert (tmp_path / "same" / name).read_bytes() == (out / name).read_bytes(), name
    tuned(models["draft"], models["target"], *FAIR[:-1], 4, "-o", tmp_path / "other")
    assert read_table(tmp_path / "other" / CURVE, Point)[0].loss != read_table(out / CURVE, Point)[0].loss


def test_a_tuning_that_was_interrupted_goes_on_with_the_same_numbers(
    made: tuple[Path, dict[str, Any]], models: dict[str, Path], tmp_path: Path
) -> None:
    again = (models["draft"], models["target"], *FAIR, "--checkpoint-every", 3, "-o", tmp_path / "again")
    with interrupted_at(15):
        assert run(*again).exit_code == 130
    assert [path.name for path in tmp_path.iterdir()] == [work_path(tmp_path / "again").name]
    assert "resuming after step 12 of 20" in run(*again).stderr
    for name in ("model.safetensors", TASKS, STEPS):
        assert (tmp_path / "again" / name).read_bytes() == (made[0] / name).read_bytes(), name


def test_a_finished_tuning_is_not_done_again(made: tuple[Path, dict[str, Any]], models: dict[str, Path]) -> None:
    out, record = made
    before = (out / "training.json").stat().st_mtime_ns
    result = run(models["draft"], models["target"], *FAIR, "-o", out)
    assert "is finished already" in result.stderr
    assert (out / "training.json").stat().st_mtime_ns == before
    assert "D_T before" in result.stdout and "unfairness U" in result.stdout
    for row in record["measured"]["after"]:
        assert f"{row['divergence']:.4f}" in result.stdout
    message = error_of(run(models["draft"], models["target"], *FAIR, "--steps", 21, "-o", out))
    assert "has a model of another training: steps is 20 there and 21 now" in message
