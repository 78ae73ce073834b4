"""Whether the processes of a group are all alive.

A rank that waits inside MLX for one that is gone would wait for ever, or until MLX's backend notices. So rank 0 keeps a
connection to each of the others. The kernel closes it when a process ends, and its keep-alive when a machine does.
"""

import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_CONNECT_SECONDS = 5.0
_GRACE_SECONDS = 3.0  # in which MLX may notice by itself, which gives an ordinary error
_KEEP_ALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPALIVE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 4}  # seconds, and tries

_WAKE = "wake"

log = logging.getLogger(__name__)


class Watch:
    """Ends this process if it would wait for one that is gone."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._peers: dict[int, socket.socket] = {}
        self._waits = self._at_once = self._ends = False
        self._woken = threading.Event()

    def listen(self) -> dict[str, Any]:
        """On rank 0: where the others find it."""
        self._listening = socket.create_server(("", 0), backlog=self._size)
        self._key = secrets.token_hex(16)
        return {"hosts": _own_hosts(), "port": self._listening.getsockname()[1], "key": self._key}

    def begin(self, address: dict[str, Any], *, at_once: bool) -> None:
        """Connect to rank 0, or let the others connect.

        If one is gone, this process ends when it waits for it, or ``at_once``.
        """
        self._at_once = at_once
        if self._rank == 0:
            self._accept()
        else:
            self._connect(address)
        for rank, peer in self._peers.items():
            threading.Thread(target=self._read, args=(rank, peer), name=f"watch rank {rank}", daemon=True).start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this process needs the others."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    @property
    def complete(self) -> bool:
        """Whether rank 0 is connected to all others."""
        return len(self._peers) == self._size - 1

    def sleep(self) -> None:
        """Wait until rank 0 wakes this one."""
        self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        """Wake the others, each of which sleeps or is about to."""
        self._tell(_WAKE)

    def expect_end(self) -> None:
        """The others end from here on, and that is no error."""
        self._ends = True

    def end(self, error: BaseException) -> None:
        """Tell the others what went wrong here: they end, too."""
        self._tell(f"rank {self._rank}: {type(error).__name__}: {error}")

    def _tell(self, reason: str) -> None:
        for peer in self._peers.values():
            with suppress(OSError):
                peer.sendall(f"{reason.splitlines()[0]}\n".encode())

    def _accept(self) -> None:
        until = time.monotonic() + _CONNECT_SECONDS
        with self._listening:
            while len(self._peers) < self._size - 1 and (left := until - time.monotonic()) > 0:
                self._listening.settimeout(left)
                with suppress(OSError):
                    peer, _ = self._listening.accept()
                    peer.settimeout(max(0.1, left))
                    key, _, rank = peer.makefile("rb").readline(100).strip().partition(b" ")
                    if secrets.compare_digest(key, self._key.encode()):
                        self._keep(int(rank), peer)
        if not self.complete:
            log.warning("a process of the group cannot reach rank 0, so it may wait for ever if rank 0 is lost")

    def _connect(self, address: dict[str, Any]) -> None:
        for host in address["hosts"]:
            with suppress(OSError):
                peer = socket.create_connection((host, address["port"]), _CONNECT_SECONDS)
                peer.sendall(f"{address['key']} {self._rank}\n".encode())
                self._keep(0, peer)
                return

    def _keep(self, rank: int, peer: socket.socket) -> None:
        peer.settimeout(None)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._peers[rank] = peer

    def _read(self, rank: int, peer: socket.socket) -> None:
        """Wait until a process ends; then end this one once it waits for it."""
        reason = ""
        with suppress(OSError), peer.makefile("r", encoding="utf-8", errors="replace") as lines:
            while (reason := lines.readline(1000).strip()) == _WAKE:
                self._woken.set()
        reason = reason or f"rank {rank} is gone"
        waited = 0.0
        while waited < _GRACE_SECONDS:
            time.sleep(0.1)
            if self._ends:
                return
            waited = waited + 0.1 if self._waits or self._at_once else 0.0
        self._tell(reason)
        print(f"Error: {reason}, so rank {self._rank} ends, too. Start all of them again", file=sys.stderr, flush=True)
        os._exit(1)


def _own_hosts() -> list[str]:
    """Addresses of this machine that the other ranks may reach: those that MLX's backends use, and its name."""
    hosts: list[str] = []
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        first = json.loads(Path(os.environ["MLX_HOSTFILE"]).read_text())[0]
        hosts += [str(address).rpartition(":")[0] for address in first]
    hosts.append(os.environ.get("MLX_JACCL_COORDINATOR", "").rpartition(":")[0])
    return [host for host in dict.fromkeys([*hosts, socket.gethostname(), "127.0.0.1"]) if host]
