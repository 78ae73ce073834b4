"""Servers of the demo target: as it is, and with a chat template and tools."""

from collections.abc import Iterator

import pytest

from spectool.serve.server import Server
from spectool.tests.serve.questions import chatting_model
from spectool.tests.serve.servers import serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a model that converses and calls tools, under a name of its own."""
    model = chatting_model(tmp_path_factory.mktemp("chatting"))
    with serving(model=model, served_names=("demo",)) as running:
        yield running


@pytest.fixture
def thinking(chatting: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model of `chatting` have markers of reasoning."""
    for edge, marker in (("start", "<think>"), ("end", "</think>")):
        monkeypatch.setattr(chatting.engine.model.tokenizer, f"_think_{edge}", marker)
