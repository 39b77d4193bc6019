"""A gateway for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.functions.gateway_process import GatewayProcess


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One for all tests of a file, without functions at first; nothing is left of it."""
    started = GatewayProcess(tmp_path_factory.mktemp("g"))
    started.start()
    yield started
    assert started.stop() == 0
    assert started.left() == []
