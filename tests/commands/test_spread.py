"""Commands under ``mlx.launch``: rank 0 prints what one process prints, and the others nothing."""

import json
from pathlib import Path

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.tests.rings import outputs_of, start_ring
from spectool.tests.running import figures, run

MODEL = demo_path("target")


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["generate", "doctor", "bench"])
def test_rank_0_prints_and_the_others_follow(tmp_path: Path, command: str) -> None:
    options = {
        "generate": ("--prompt", "Most w Jaworowcu", "-m", 24),
        "doctor": ("--seconds", 2),
        "bench": ("--drafter", "history", "--prompts", "pl", "--count", 2, "--tokens", 8, "-o", tmp_path / "run"),
    }[command]
    ring = start_ring(2, tmp_path, "-m", "spectool.cli", "--debug", command, "--model", MODEL, "--json", *options)
    first, second = outputs_of(ring)
    found = json.loads(first)
    assert second == ""
    if command == "generate":
        assert found["text"] == figures(command, "--model", MODEL, *options)["text"]
    elif command == "doctor":
        assert "2 processes" in found["target"]["machine"]
    else:
        assert (found["blocks"], found["outputs"], found["different"]) == (2, 2, 0)


def test_pipelines_need_several_processes() -> None:
    refused = run("generate", "--model", MODEL, "--pipeline", "--prompt", "x")
    assert refused.exit_code == 2
    assert "mlx.launch" in refused.output
