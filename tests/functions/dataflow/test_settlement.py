"""What the pipeline manager asks of Redis while Redis is late."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from functions.dataflow import settlement


def test_what_is_asked_of_a_late_redis_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "BACKOFF_S", (0.0, 0.0))
    answers: Iterator[Any] = iter([redis.TimeoutError("late"), redis.ConnectionError("away"), b"snapshot"])

    async def ask() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> tuple[Any, int]:
        asked = settlement.Settlement("redis://127.0.0.1:1", "run-1", "ledger")
        try:
            return await asked.retried(ask)
        finally:
            await asked.close()

    assert asyncio.run(scenario()) == (b"snapshot", 3)
