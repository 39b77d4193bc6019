"""Waiting for a condition instead of sleeping."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 60.0
"""A busy machine is slow; a property that does not hold by then fails."""


def eventually(
    condition: Callable[[], object],
    message: str | Callable[[], object] = "the condition does not hold",
    within_s: float = PATIENCE_S,
    poll_s: float = 0.02,
) -> None:
    """Return when ``condition`` is true; AssertionError with ``message`` after ``within_s`` seconds."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {within_s:g} s: {message() if callable(message) else message}")
        time.sleep(poll_s)
