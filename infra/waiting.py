"""The waiting loop of this package."""

import time
from collections.abc import Callable

from penstock.errors import PenstockError


def wait_until(done: Callable[[], object], timeout_s: float, otherwise: Callable[[], str], poll_s: float = 0.1) -> None:
    """Return once ``done()`` is true. Raise PenstockError with the text of ``otherwise()`` after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline_s:
            raise PenstockError(otherwise())
        time.sleep(poll_s)
