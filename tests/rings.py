"""Processes that are joined by MLX's ring on loopback, as ``mlx.launch`` starts them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path


def start_ring(count: int, folder: Path, *arguments: object) -> list[subprocess.Popen[str]]:
    """Start ``python arguments`` as every rank of a new ring."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [[f"127.0.0.1:{each.getsockname()[1]}"] for each in sockets]
    for each in sockets:
        each.close()
    hosts = folder / f"hosts-{addresses[0][0].rpartition(':')[2]}.json"
    hosts.write_text(json.dumps(addresses))
    return [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


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
