"""A server of the demo target."""

from collections.abc import Iterator

import pytest

from spectool.serve.handler import Server
from spectool.tests.serve.servers import serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running
