"""The connections between the processes of a group: what rank 0 tells the others, and whether all are alive.

A rank that waits inside MLX for one that is gone would wait for ever, or until MLX's backend notices. So rank 0 keeps a
connection to each of the others. The kernel closes it when a process ends, and its keep-alive when a machine does.

    [...]    a line with a message of rank 0, for the thread that follows it, which sleeps meanwhile
    stop     all end, and that is no error
    other    why a process ends
"""

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from spectool import SpectoolError

_CONNECT_SECONDS = 3.0  # for each address of rank 0
_GREETING_SECONDS = 1.0  # for each process that connects to rank 0
_NOTICE_SECONDS = 1.0  # in which it is known who is gone, after MLX has failed
_NOTICE_LOST_SECONDS = 6.0  # the same where MLX says that it lost a connection: as long as the keep-alive below takes
_LOST_ERRORS = ("[ring]", "[jaccl]", "[mpi]", "[nccl]")  # how those begin
_GRACE_SECONDS = 3.0  # in which MLX may notice by itself, which gives an ordinary error
_TCP = {"TCP_KEEPIDLE": 2, "TCP_KEEPALIVE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 4}  # seconds, and tries
_TCP |= {"TCP_USER_TIMEOUT": 5000}  # milliseconds; on Linux, which keeps nothing alive while a line is unanswered
_TCP |= {"TCP_NODELAY": 1}  # a message is short, and a pass waits for it

_STOP = b"stop"


class Watch:
    """Carries what rank 0 tells, and ends this process if another one is gone.

    Attributes:
        expects_end: The others end from here on, and that is no error.
        failed: The others end, because something went wrong here.
    """

    def __init__(self, rank: int, addresses: list[str]) -> None:
        """A watch on a rank; ``addresses`` are those of all ranks."""
        self._rank, self._addresses = rank, addresses
        self._peers: dict[int, socket.socket] = {}
        self._begun = self.expects_end = self.failed = False
        self._told, self._lost, self._reason = SimpleQueue[bytes | None](), threading.Event(), ""

    def named(self, rank: int) -> str:
        """A rank, and where it is."""
        return f"rank {rank} ({self._addresses[rank]})" if rank < len(self._addresses) else f"rank {rank}"

    def listen(self) -> dict[str, Any]:
        """On rank 0: let the others connect until `begin`; return where they find it, and the key that they show."""
        self._key, addresses = secrets.token_hex(16), []
        for host in _own_hosts(self._addresses):
            with suppress(OSError):
                listening = socket.create_server((host, 0))
                addresses.append((host or socket.gethostname(), listening.getsockname()[1]))
                threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
        return {"addresses": addresses, "key": self._key}

    def connect(self, address: dict[str, Any]) -> bool:
        """On the other ranks: connect to rank 0; return whether it answers."""
        for host, port in address["addresses"]:
            with suppress(OSError):
                peer = socket.create_connection((host, port), _CONNECT_SECONDS)
                peer.sendall(f"{address['key']} {self._rank}\n".encode())
                if peer.recv(1):
                    self._keep(0, peer)
                    return True
        return False

    def begin(self) -> None:
        """Watch, now that all are connected: where one is gone, this process ends, too."""
        self._begun = True
        for rank, peer in self._peers.items():
            threading.Thread(target=self._read, args=(rank, peer), name=f"watch rank {rank}", daemon=True).start()

    @contextmanager
    def waiting(self, *, meets: bool = False) -> Iterator[None]:
        """While this process needs the others, or only ``meets`` them; a SpectoolError where MLX lost one of them."""
        try:
            yield
        except RuntimeError as error:
            lost = str(error).startswith(_LOST_ERRORS)
            if self._lost.wait(_NOTICE_LOST_SECONDS if lost else _NOTICE_SECONDS) or meets:
                reason = self._reason or f"a process of the group is gone ({error})"
                raise SpectoolError(f"{reason}. Start all ranks again") from error
            raise

    @contextmanager
    def working(self, *expected: type[Exception]) -> Iterator[None]:
        """Work that the others do as well: they end if it fails here, but in an ``expected`` way, as it does there."""
        try:
            with self.waiting():  # where MLX lost a connection, until it is known whose
                yield
        except expected:
            raise
        except BaseException as error:
            self.end(error)
            raise

    def told(self) -> Iterator[bytes]:
        """On the other ranks: the messages of rank 0, until it ends the group."""
        return iter(self._told.get, None)

    def stop(self) -> None:
        """End the others."""
        self.expects_end = True
        self.tell(_STOP)

    def end(self, error: BaseException) -> None:
        """Tell the others what went wrong here: they end, too."""
        self.failed = True
        if not self._lost.is_set():
            kind = "" if isinstance(error, SpectoolError) else f"{type(error).__name__}: "
            self.tell(f"{self.named(self._rank)}: {kind}{error}".splitlines()[0][:1000].encode())

    def tell(self, line: bytes) -> None:
        """Send a line to all that are connected with this process."""
        for peer in self._peers.values():
            with suppress(OSError):
                peer.sendall(line + b"\n")

    def _accept(self, listening: socket.socket) -> None:
        with listening:
            listening.settimeout(_GREETING_SECONDS)
            while not self._begun:
                with suppress(OSError):
                    peer, _ = listening.accept()
                    threading.Thread(target=self._greet, args=(peer,), daemon=True).start()

    def _greet(self, peer: socket.socket) -> None:
        """Keep a connection to a process that knows the key; others have nothing to say here."""
        with suppress(OSError, ValueError):
            peer.settimeout(_GREETING_SECONDS)
            key, _, rank = peer.makefile("rb").readline(100).strip().partition(b" ")
            if secrets.compare_digest(key, self._key.encode()) and not self._begun:
                self._keep(int(rank), peer)
                peer.sendall(b"\n")
                return
        peer.close()

    def _keep(self, rank: int, peer: socket.socket) -> None:
        peer.settimeout(None)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP.items():
            if hasattr(socket, name):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._peers[rank] = peer

    def _read(self, rank: int, peer: socket.socket) -> None:
        """Wait until a process ends; then end this one."""
        reason = self._heard(peer) or f"{self.named(rank)} is gone"
        if self.expects_end:
            return
        if not self._lost.is_set():
            self.tell(reason.encode())
            self._reason = reason
            self._lost.set()
        time.sleep(_GRACE_SECONDS)
        if not self.expects_end:
            ends = f"Error: {self._reason}, so rank {self._rank} ends, too. Start all ranks again"
            print(ends, file=sys.stderr, flush=True)
            os._exit(1)

    def _heard(self, peer: socket.socket) -> str:
        """Why a process ends; empty if it is gone before it says so."""
        with suppress(OSError), peer.makefile("rb") as lines:
            while (line := lines.readline()).endswith(b"\n"):
                if line.startswith(b"["):
                    self._told.put(line)
                elif (said := line.rstrip(b"\n")) == _STOP:
                    self.expects_end = True
                    self._told.put(None)
                else:
                    return said.decode(errors="replace")
        return ""


def addresses_of_ranks() -> list[str]:
    """The first address of each rank, as MLX's backends have it; empty without a group, and where they do not say."""
    with suppress(OSError, ValueError, KeyError, IndexError):
        return [str(rank[0]) for rank in json.loads(Path(os.environ["MLX_HOSTFILE"]).read_text())]
    with suppress(OSError, ValueError, KeyError):
        ranks = len(json.loads(Path(os.environ["MLX_IBV_DEVICES"]).read_text()))
        return [os.environ["MLX_JACCL_COORDINATOR"], *["over RDMA"] * (ranks - 1)]
    return []


def _own_hosts(addresses: list[str]) -> list[str]:
    """Where rank 0 listens: the address that its neighbours use, and those of its name; everywhere without any."""
    own = [addresses[0].rpartition(":")[0]] if addresses else []
    if not all(each.startswith("127.") for each in addresses):
        with suppress(OSError):
            own += socket.gethostbyname_ex(socket.gethostname())[2]
    return list(dict.fromkeys(own)) or [""]
