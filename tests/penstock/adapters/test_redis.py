"""Which errors of Redis are waited for."""

from typing import Any

import pytest
import redis.asyncio.connection
import redis.connection

from penstock.adapters.redis import REDIS_AWAY

PARSERS = (redis.connection.DefaultParser, redis.asyncio.connection.DefaultParser)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    "answer",
    [
        "MISCONF Errors writing to the AOF file: No space left on device",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "LOADING Redis is loading the dataset in memory",
    ],
)
def test_a_redis_that_is_full_or_starting_is_waited_for(parser: Any, answer: str) -> None:
    assert isinstance(parser.parse_error(answer), REDIS_AWAY)


@pytest.mark.parametrize("parser", PARSERS)
def test_a_command_that_is_wrong_is_not_tried_again(parser: Any) -> None:
    assert not isinstance(parser.parse_error("ERR unknown command"), REDIS_AWAY)
