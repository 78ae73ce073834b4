"""What the server needs of mlx-lm's: its request handling, and the one name in it that is replaced.

mlx-lm 0.32 has no hook where a server makes its tokens: ``ResponseGenerator._serve_single`` calls what its
module names ``stream_generate``. `install` replaces that name once. The replacement asks a context variable who
is being served; without an answer it is mlx-lm's own function.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from spectool import RuntimeUnsupported
from spectool.runtime.mlx_lm_compat import mlx_lm  # first: it imports mlx-lm where few files may be open

# isort: split
from mlx_lm import __version__, server
from mlx_lm.models.cache import LRUPromptCache
from mlx_lm.server import APIHandler, CompletionRequest, ModelProvider, ResponseGenerator

_own_stream = server.stream_generate
_replacement: ContextVar[Callable[..., Iterator[Any]] | None] = ContextVar("replacement", default=None)


def _stream_generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
    return (_replacement.get() or _own_stream)(*args, **kwargs)


def install() -> None:
    """Replace mlx-lm's ``stream_generate``.

    Raises:
        RuntimeUnsupported: This version of mlx-lm generates in another way.
    """
    if "stream_generate" not in ResponseGenerator._serve_single.__code__.co_names:
        raise RuntimeUnsupported(
            f"mlx-lm {__version__}: expected a server that calls stream_generate, as in 0.32, got another one. "
            "Install mlx-lm 0.32: pip install 'mlx-lm==0.32.*'"
        )
    server.stream_generate = _stream_generate


@contextmanager
def serving(stream: Callable[..., Iterator[Any]]) -> Iterator[None]:
    """Let ``stream`` make the tokens of what mlx-lm's server answers in this block."""
    token = _replacement.set(stream)
    try:
        yield
    finally:
        _replacement.reset(token)
