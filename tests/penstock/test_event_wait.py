"""The wait for an event ends when it is set, after its time, and when it is cancelled."""

import asyncio

import pytest

from penstock.event_wait import set_within


def test_it_ends_when_the_event_is_set_or_the_time_is_over() -> None:
    async def told() -> None:
        event = asyncio.Event()
        await set_within(event, 0.001)
        asyncio.get_running_loop().call_soon(event.set)
        async with asyncio.timeout(60):
            await set_within(event, 3600)

    asyncio.run(told())


@pytest.mark.parametrize("ticks", [0, 1, 2])
def test_a_cancellation_next_to_the_event_ends_the_task(ticks: int) -> None:
    async def told() -> None:
        event = asyncio.Event()

        async def forever() -> None:
            while True:
                await set_within(event, 3600)
                event.clear()

        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        event.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=60)
        assert done and task.cancelled()

    asyncio.run(told())
