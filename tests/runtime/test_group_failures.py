"""Groups that cannot begin, and groups that are lost: every rank ends, soon, with an error that names the cause."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.runtime.groups.watch import Watch
from spectool.tests.rings import errors_of, host_file, outputs_of, start_rank
from spectool.tests.runtime.test_groups import saved
from spectool.tests.tiers import slow

MODEL = demo_path("target")
END_SECONDS = 10  # in which all processes have to end after one has


def generate(model: object, *more: object, tokens: int = 8) -> list[object]:
    return ["-m", "spectool.cli", "generate", "--model", model, "-p", "Ala ma kota", "--max-tokens", tokens, *more]


def without_its_second_half(file: Path) -> None:
    half = file.stat().st_size // 2
    file.write_bytes(file.read_bytes()[:half].ljust(2 * half, b"\0"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("file", "alter"),
    [
        ("model.safetensors", Path.unlink),
        ("model.safetensors", without_its_second_half),
        ("config.json", lambda file: file.write_text('{"model_type": "llama"}')),
    ],
)
@pytest.mark.parametrize("pipeline", [(), *slow((("--pipeline",),))])
def test_another_model_is_refused(tmp_path: Path, file: str, alter: Callable[[Path], object], pipeline: Any) -> None:
    other = shutil.copytree(MODEL, tmp_path / "copy")
    alter(other / file)
    hosts = host_file(2, tmp_path)
    ring = [start_rank(rank, hosts, generate(model, *pipeline)) for rank, model in enumerate((MODEL, other))]
    for error in errors_of(ring):
        assert re.search(rf"rank 1 \(127.0.0.1:\d+\) has another {file} than rank 0 \(127.0.0.1:\d+\)", error)


@pytest.mark.nightly
def test_other_versions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mlx_lm-99.9.dist-info").mkdir()
    (tmp_path / "mlx_lm-99.9.dist-info" / "METADATA").write_text("Name: mlx-lm\nVersion: 99.9\n")
    hosts, path = host_file(2, tmp_path), f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    ring = [start_rank(rank, hosts, generate(MODEL), {"PYTHONPATH": path} if rank else None) for rank in (0, 1)]
    for error in errors_of(ring):
        assert re.search(r"rank 1 has .*mlx-lm 99\.9, and rank 0 .*mlx-lm 0\.", error)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("of_each", "own", "others_say"),
    [
        ((generate(MODEL), generate("nowhere")), "nowhere: no such directory", "rank 1 (ADDRESS): nowhere: no such"),
        ((generate(MODEL, "--dict", "no.dict"),) * 2, "no.dict: ", "rank 0 (ADDRESS): no.dict: "),
    ],
)
def test_what_fails_on_one_rank_is_said_on_the_other(tmp_path: Path, of_each: Any, own: str, others_say: str) -> None:
    hosts = host_file(2, tmp_path)
    errors = errors_of([start_rank(rank, hosts, arguments) for rank, arguments in enumerate(of_each)])
    errors = sorted((re.sub(r"127.0.0.1:\d+", "ADDRESS", each) for each in errors), key=len)
    assert errors[0].startswith(f"Error: {own}")
    assert errors[1].startswith(f"Error: {others_say}")


def test_the_watch_listens_where_the_host_file_says_and_serves_strangers_aside() -> None:
    addresses = ["127.0.0.1:1", "127.0.0.1:2"]
    ranks = [Watch(rank, addresses) for rank in (0, 1)]
    address = ranks[0].listen()
    assert [host for host, _ in address["addresses"]] == ["127.0.0.1"]
    with ExitStack() as strangers:
        for first in (b"", b"\xff\n", f"{address['key'][:-1]} 1\n".encode(), b"0" * 500) * 20:
            stranger = strangers.enter_context(socket.create_connection(address["addresses"][0]))
            stranger.sendall(first)
        began = time.monotonic()
        assert ranks[1].connect(address)
        assert time.monotonic() - began < 1
    assert not Watch(1, addresses).connect({**address, "key": "0" * 32})
    for each in ranks:
        each.expects_end = True
        each.begin()


def writing(rank: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """A rank 0 that has begun its text."""
    assert rank.stdout is not None
    assert rank.stdout.read(1)
    return rank


@pytest.mark.nightly
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_that_is_killed_inside_a_pass_is_named_on_all_others(tmp_path: Path, victim: int) -> None:
    model, hosts = saved(tmp_path / "model", "qwen2", 3), host_file(3, tmp_path)
    arguments = [*generate(model, "--pipeline", tokens=1_000_000)]
    ring = [start_rank(rank, hosts, ["-u", *arguments]) for rank in range(3)]
    writing(ring[0])
    ring[victim].kill()
    ring.pop(victim).wait()
    for error in errors_of(ring, END_SECONDS):
        assert re.match(rf"Error: rank {victim} \(127.0.0.1:\d+\) is gone", error)


@pytest.mark.nightly
def test_a_rank_that_is_missing_is_waited_for_by_name(tmp_path: Path) -> None:
    hosts = host_file(3, tmp_path)
    alone = start_rank(0, hosts, generate(MODEL))
    assert alone.stderr is not None
    line, at = alone.stderr.readline(), [address for (address,) in json.loads(hosts.read_text())]
    alone.kill()
    alone.wait()
    assert line == f"rank 0 of 3 is waiting for rank 1 ({at[1]}), rank 2 ({at[2]})\n"


TELLS = """
import sys
import mlx.core as mx
from spectool.runtime.groups.mirrored import SpreadCache
from spectool.runtime.groups.rank_0 import leader_of
from spectool.runtime.loading import load_model

model = load_model(sys.argv[1], pipeline=False)[0]
exec(sys.argv[2])
sys.stdin.read()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            "leader = leader_of(model)\nname = leader.named(SpreadCache([]))\n"
            "leader.send('work', 'subprocess:call', name, [['touch', 'FILE']], {})",
            "rank 0 asks for 'subprocess:call', which is no",
        ),
        *slow(
            (
                "leader_of(model).send('subprocess:call', [['touch', 'FILE']], {}, None)",
                "rank 0 asks for 'subprocess:call', which is no",
            ),
        ),
        ("leader_of(model)._watch.tell(b'no message')", "no message, so rank 1 ends, too"),
        ("mx.eval(mx.distributed.all_sum(mx.full((2, 1), 1 << 29)))", "expected a message of each rank, got ["),
    ],
)
def test_only_known_operations_can_be_called(tmp_path: Path, message: str, says: str) -> None:
    hosts = host_file(2, tmp_path)
    rank_0 = start_rank(0, hosts, ["-c", TELLS, MODEL, message.replace("FILE", str(tmp_path / "made"))])
    try:
        (error,) = errors_of([start_rank(1, hosts, generate(MODEL))])
    finally:
        rank_0.kill()
        rank_0.wait()
    assert error.startswith(f"Error: {says}")
    assert not (tmp_path / "made").exists()


@pytest.mark.nightly
def test_bench_runs_on_a_group(tmp_path: Path) -> None:
    hosts, out = host_file(2, tmp_path), tmp_path / "pl.bench"
    bench = ["-m", "spectool.cli", "bench", "--model", MODEL, "--drafter", "history", "--prompts", "pl"]
    bench += ["--count", 1, "--tokens", 8, "-o", out]
    outputs_of([start_rank(rank, hosts, bench) for rank in (0, 1)], 120)
    assert (out / "report.md").is_file()
