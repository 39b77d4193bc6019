"""Redis clients whose calls end in time and are never repeated: what to do about an absent Redis is the caller's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import DefaultParser
from redis.retry import Retry

from penstock.errors import PenstockError

AsyncRedis = redis.asyncio.Redis
RedisError = redis.RedisError

REDIS_AWAY: Final = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
)
"""What a call raises while Redis is away or starting (BusyLoadingError is a ConnectionError), or takes no writes since
its disk or its memory is full: try again later.
"""

# For a write that is refused since the disk is full the client library raises a ResponseError, as for a wrong command.
# All its parsers, also those for event loops, look error codes up in this one table.
DefaultParser.EXCEPTION_CLASSES["MISCONF"] = redis.exceptions.ReadOnlyError


def redis_client(url: str, timeout_s: float) -> redis.Redis:
    """A client of ``url``, redis://:secret@host:port/0. ``timeout_s`` bounds connecting and each answer."""
    return redis.Redis.from_url(url, **_times(timeout_s), retry=Retry(NoBackoff(), 0))


def async_redis_client(url: str, timeout_s: float) -> AsyncRedis:
    """The same for an event loop."""
    return AsyncRedis.from_url(url, **_times(timeout_s), retry=AsyncRetry(NoBackoff(), 0))


@contextmanager
def redis_errors(remedy: str = "") -> Iterator[None]:
    """Raise PenstockError for the client library's errors of an absent Redis. ``remedy``: end of the message."""
    try:
        yield
    except REDIS_AWAY as error:
        raise PenstockError(f"Redis does not answer ({error}){remedy}") from None


def _times(timeout_s: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
