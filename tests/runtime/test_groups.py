"""A model over two processes of MLX's ring, on loopback: automatic lengths are refused, and fixed ones work."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.runtime.groups import processes_of, require_same_lengths
from spectool.tests.runtime.models import tiny_model

PROGRAM = """
import sys
import mlx.core as mx
from mlx_lm import load
from spectool import RuntimeUnsupported
from spectool.runtime import generate, load_drafter

group = mx.distributed.init(strict=True, backend="ring")
model, tokenizer = load(sys.argv[1])
expected = generate(model, tokenizer, "Most w Jaworowcu", max_tokens=24)
model.shard(group)
drafter = load_drafter(tokenizer)
try:
    generate(model, tokenizer, "Most w Jaworowcu", max_tokens=24, drafter=drafter)
except RuntimeUnsupported as error:
    print(error)
fixed = generate(model, tokenizer, "Most w Jaworowcu", max_tokens=24, drafter=drafter, num_draft_tokens=4)
print(fixed == expected)
"""


@pytest.mark.nightly
def test_automatic_lengths_are_refused_where_processes_would_not_agree(tmp_path: Path) -> None:
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in ports]))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(demo_path("target"))],
            env={**os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        refused, same = out.splitlines()[-2:]
        assert "spread over 2 processes" in refused and "--num-draft-tokens 4" in refused
        assert same == "True"


def test_a_model_of_one_process_is_not_refused() -> None:
    model: Any = tiny_model()
    assert processes_of(model) == 1
    require_same_lengths(model)
