"""Waiting for an asyncio event for a limited time."""

import asyncio
from contextlib import suppress


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after that time. A cancellation always ends the wait: Python 3.11's ``wait_for``
    loses one that comes at the moment at which the event is set.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
