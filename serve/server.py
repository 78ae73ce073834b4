"""The server as a process has it: an address, an engine, and an end when a signal comes."""

import asyncio
import logging
import socket
from types import FrameType

import uvicorn

from spectool import SpectoolError
from spectool.serve.app import Service
from spectool.serve.engine import Engine
from spectool.serve.models import MakeDrafter
from spectool.serve.options import ServerOptions

_STOP_SECONDS = 5  # one pass of a large model, a prompt pass of a middling one
_BACKLOG = 128


class Server(uvicorn.Server):
    """Listens at its ``url``, once the model of its ``engine`` is loaded."""

    def __init__(self, host: str, port: int, options: ServerOptions, make_drafter: MakeDrafter) -> None:
        """Take the address, with any free port for 0, and begin to load the model.

        Raises:
            SpectoolError: The address cannot be had.
        """
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            problem = f"cannot listen there ({error.strerror or error}). Choose another --host or --port"
            raise SpectoolError(f"{host}:{port}: {problem}") from error
        name, port = self._socket.getsockname()[:2]
        self.url = f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
        self.engine = Engine(options, make_drafter)
        app = Service(self.engine, options, host).app
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=options.max_connections + 1,  # uvicorn counts the one that it refuses
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        super().__init__(config)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the log has what matters of it already

    def wait_until_loaded(self) -> None:
        """Wait for the model; then listen.

        Raises:
            SpectoolError: It cannot be loaded, or its drafter cannot.
        """
        self.engine.loaded.result()
        self._socket.listen(_BACKLOG)

    def answer(self) -> None:
        """Answer until a signal comes, or `handle_exit` is called."""
        asyncio.run(self.serve([self._socket]))
        if (error := self.engine.failure) is not None:
            raise SpectoolError(f"the server has ended, because its engine failed: {error}") from error

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, which uvicorn asks all the time."""
        return await super().on_tick(counter) or not self.engine.alive

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop: running texts end where they are, and everybody gets an answer or an error. Twice: stop at once."""
        self.engine.stop()
        super().handle_exit(sig, frame)

    def stop(self) -> bool:
        """End the engine, also in the middle of a generation; return whether that took seconds at most."""
        self._socket.close()
        return self.engine.stop(_STOP_SECONDS)
