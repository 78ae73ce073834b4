"""Processes that are joined by MLX's ring on loopback, as ``mlx.launch`` starts them."""

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def host_file(count: int, folder: Path) -> Path:
    """The file of a new ring, with an address for each rank."""
    sockets: list[socket.socket] = []
    while len(sockets) < count:  # below the ports that clients get, who could take one before its rank does
        each, port = socket.socket(), 20_000 + secrets.randbelow(12_000)
        with suppress(OSError):
            each.bind(("127.0.0.1", port))
            sockets.append(each)
    addresses = [[f"127.0.0.1:{each.getsockname()[1]}"] for each in sockets]
    for each in sockets:
        each.close()
    hosts = folder / f"hosts-{addresses[0][0].rpartition(':')[2]}.json"
    hosts.write_text(json.dumps(addresses))
    return hosts


def start_rank(
    rank: int, hosts: Path, arguments: Sequence[object], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start ``python arguments`` as a rank."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_ring(count: int, folder: Path, *arguments: object) -> list[subprocess.Popen[str]]:
    """Start ``python arguments`` as every rank of a new ring."""
    hosts = host_file(count, folder)
    return [start_rank(rank, hosts, arguments) for rank in range(count)]


def outputs_of(ring: list[subprocess.Popen[str]], seconds: float = 900) -> list[str]:
    """What the ranks print on stdout, all of which have to end well."""
    found = []
    try:
        for process in ring:
            out, err = process.communicate(timeout=seconds)
            assert process.returncode == 0, err
            found.append(out)
    finally:
        for process in ring:
            process.kill()
    return found


def errors_of(ring: list[subprocess.Popen[str]], seconds: float = 60) -> list[str]:
    """The last line that each rank prints on stderr; all of them have to end with status 1 and without a traceback."""
    found = []
    try:
        for process in ring:
            _, err = process.communicate(timeout=seconds)
            assert process.returncode == 1, err
            found.append(next(line for line in reversed(err.splitlines()) if line.startswith("Error: ")))
    finally:
        for process in ring:
            process.kill()
            process.wait()
    return found
