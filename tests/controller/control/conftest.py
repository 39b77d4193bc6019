"""The command on functions, for every gateway that a test has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.control.attached_functions import AttachedFunctions


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[AttachedFunctions]:
    made = AttachedFunctions(tmp_path)
    yield made
    made.kill()
