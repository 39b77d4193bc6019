"""What functions hand to each other: JSON whose large parts lie in Redis for a while, under the hash of what they are.

A parcel is ``{"inline": base64}`` or ``{"redis": key}``. The key comes from the content, so that a repeated attempt
writes the same parcel again. Environment: ``redis_url`` (or the OpenFaaS secret ``redis-url``; without either all is
inline), ``result_ttl_s``.
"""

import base64
import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import redis

INLINE_BYTES = 4096
"""What is not larger travels in the body itself: base64 of it is cheaper than a round trip to Redis."""
TTL_S = 600
SECRET = Path("/var/openfaas/secrets/redis-url")
TIMEOUT_S = 1.0

Parcel = dict[str, str]


class FunctionError(Exception):
    """A request that cannot be served, with the status to answer: 400 what was sent is wrong, 410 a parcel has expired,
    503 Redis is away (try again).
    """

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code


def read_json(event: Any) -> dict[str, Any]:
    """The JSON object that the request's body is. Raises FunctionError 400 if it is none."""
    try:
        value = json.loads(event.body)
    except ValueError as error:
        raise FunctionError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FunctionError(400, f"the body is a JSON {type(value).__name__}, expected an object")
    return value


def field(value: dict[str, Any], name: str) -> Any:
    """A field of a request. Raises FunctionError 400 that names it if it is missing."""
    if name not in value:
        raise FunctionError(400, f"the body has no {name!r}, only {sorted(value)}")
    return value[name]


def pack(content: bytes) -> Parcel:
    """A parcel of ``content``. Raises FunctionError 503 while Redis is away."""
    if len(content) <= INLINE_BYTES or not redis_url():
        return {"inline": base64.b64encode(content).decode()}
    key = f"penstock:parcel:{hashlib.sha256(content).hexdigest()}"
    keep(key, content)
    return {"redis": key}


def unpack(parcel: Any) -> bytes:
    """The content of a parcel. Raises FunctionError: 400 not a parcel, 410 expired, 503 Redis is away."""
    if isinstance(parcel, dict) and isinstance(text := parcel.get("inline"), str):
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:
            raise FunctionError(400, f"an inline parcel that is not base64: {error}") from None
    if isinstance(parcel, dict) and isinstance(key := parcel.get("redis"), str):
        return _fetch(key)
    raise FunctionError(400, "expected a parcel: {'inline': base64} or {'redis': key}")


def keep(key: str, content: bytes) -> None:
    """Put ``content`` into Redis for ``result_ttl_s`` seconds. Raises FunctionError 503 if that cannot be done."""
    try:
        _redis().set(key, content, ex=setting("result_ttl_s", TTL_S))
    except redis.RedisError as error:
        raise _away(error) from None


def redis_url() -> str:
    """From the environment or the secret; empty if there is neither."""
    return _variable("redis_url") or _secret()


def setting(name: str, default: int) -> int:
    """A whole number of the environment. Raises FunctionError 500 that names the variable if it is none above 0."""
    text = _variable(name) or str(default)
    if not text.isdecimal() or not int(text):
        raise FunctionError(500, f"{name}={text}: expected a whole number above 0")
    return int(text)


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def _fetch(key: str) -> bytes:
    try:
        content = _redis().get(key)
    except redis.RedisError as error:
        raise _away(error) from None
    if content is None:
        raise FunctionError(410, f"{key} is not in Redis any more: contents are kept for result_ttl_s seconds")
    return bytes(content)


def _away(error: Exception) -> FunctionError:
    return FunctionError(503, f"Redis is away ({type(error).__name__}): try again")


@cache
def _secret() -> str:
    return SECRET.read_text().strip() if SECRET.is_file() else ""


@cache
def _redis() -> Any:
    """One client a process, made at its first use: never before a replica was forked."""
    if not redis_url():
        raise FunctionError(503, "there is no Redis: set redis_url")
    return redis.Redis.from_url(redis_url(), socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
