"""Redis: strings and hashes of one server, its client, and the two scripts that Penstock runs there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis

from tests.faults.kernel import kernel
from tests.faults.network import Network, Trouble

Command = tuple[Any, ...]


class RedisServer:
    """Every command is done at once."""

    def __init__(self) -> None:
        self.strings: dict[str, bytes] = {}
        self.hashes: dict[str, dict[str, bytes]] = {}

    def do(self, command: Command) -> Any:
        """One command: its name in small letters and its arguments."""
        return getattr(self, command[0])(*command[1:])

    def set(self, key: str, value: Any) -> bool:
        self.strings[key] = _bytes(value)
        return True

    def get(self, key: str) -> bytes | None:
        return self.strings.get(key)

    def delete(self, *keys: str) -> int:
        return sum((self.strings.pop(key, None) or self.hashes.pop(key, None)) is not None for key in keys)

    def hset(self, key: str, field: Any, value: Any) -> int:
        fields = self.hashes.setdefault(key, {})
        new = str(field) not in fields
        fields[str(field)] = _bytes(value)
        return int(new)

    def hsetnx(self, key: str, field: Any, value: Any) -> int:
        return 0 if str(field) in self.hashes.get(key, {}) else self.hset(key, field, value)

    def hget(self, key: str, field: Any) -> bytes | None:
        return self.hashes.get(key, {}).get(str(field))

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return {field.encode(): value for field, value in self.hashes.get(key, {}).items()}

    def hkeys(self, key: str) -> list[bytes]:
        return [field.encode() for field in self.hashes.get(key, {})]

    def hvals(self, key: str) -> list[bytes]:
        return list(self.hashes.get(key, {}).values())

    def hdel(self, key: str, *fields: Any) -> int:
        found = self.hashes.get(key, {})
        return sum(found.pop(str(field), None) is not None for field in fields)

    def hincrby(self, key: str, field: Any, by: int) -> int:
        value = int(self.hashes.get(key, {}).get(str(field), b"0")) + by
        self.hset(key, field, value)
        return value

    def book(self, keys: Sequence[str], arguments: Sequence[Any]) -> list[int]:
        """``consumers.ledger``."""
        attempts = []
        for at in range(0, len(arguments), 4):
            event, booking, account, cents = arguments[at : at + 4]
            if self.hsetnx(keys[0], event, booking):
                self.hincrby(keys[1], account, -int(cents))
                attempts.append(1)
            else:
                attempts.append(1 + self.hincrby(keys[2], event, 1))
        return attempts

    def settle(self, keys: Sequence[str], arguments: Sequence[Any]) -> list[list[Any]]:
        """``functions.dataflow.settlement``."""
        outcomes: list[list[Any]] = []
        for at in range(0, len(arguments), 4):
            event, outcome, record, missed = arguments[at : at + 4]
            if self.hsetnx(keys[0], event, outcome):
                self.hset(keys[1] if outcome == "completed" else keys[2], event, record)
                self.hincrby(keys[3], "finished", 1)
                self.hincrby(keys[3], "missed", int(missed))
                outcomes.append([1, str(outcome).encode()])
            else:
                outcomes.append([1 + self.hincrby(keys[4], event, 1), self.hget(keys[0], event)])
        return outcomes


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _error(trouble: str) -> redis.RedisError:
    if trouble == "timeout":
        return redis.TimeoutError("Timeout reading from socket")
    if trouble == "wrong":
        return redis.exceptions.ReadOnlyError("You can't write against a read only replica.")
    return redis.ConnectionError(f"Error connecting: {trouble}")


def _script(text: str) -> str:
    return "settle" if "'finished'" in text else "book"


class _Commands:
    """Commands of both clients; ``_do`` sends them."""

    def _do(self, *commands: Command) -> Any:
        raise NotImplementedError

    def set(self, key: str, value: Any, ex: int | None = None) -> Any:
        return self._do(("set", key, value))

    def get(self, key: str) -> Any:
        return self._do(("get", key))

    def delete(self, *keys: str) -> Any:
        return self._do(("delete", *keys))

    def hset(self, key: str, field: Any, value: Any) -> Any:
        return self._do(("hset", key, field, value))

    def hget(self, key: str, field: Any) -> Any:
        return self._do(("hget", key, field))

    def hgetall(self, key: str) -> Any:
        return self._do(("hgetall", key))

    def hkeys(self, key: str) -> Any:
        return self._do(("hkeys", key))

    def hvals(self, key: str) -> Any:
        return self._do(("hvals", key))

    def hdel(self, key: str, *fields: Any) -> Any:
        return self._do(("hdel", key, *fields))

    def register_script(self, text: str) -> Callable[..., Any]:
        name = _script(text)
        return lambda keys, args: self._do((name, list(keys), list(args)))


class RedisClient(_Commands):
    """``redis.Redis`` in a simulated thread."""

    server: RedisServer
    network: Network

    def __init__(self, url: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def _do(self, *commands: Command) -> Any:
        try:
            answers = self.network.ask(
                "redis",
                " ".join([f"{command[0]} {command[1]}" for command in commands]),
                lambda: [self.server.do(command) for command in commands],
                self._timeout_s,
            )
        except Trouble as trouble:
            raise _error(str(trouble)) from None
        return answers[0] if len(commands) == 1 else answers

    def pipeline(self, transaction: bool = True) -> "_Pipeline":
        return _Pipeline(self)

    def close(self) -> None:
        return


class _Pipeline(_Commands):
    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._commands: list[Command] = []

    def _do(self, *commands: Command) -> Any:
        self._commands.extend(commands)
        return self

    def execute(self) -> list[Any]:
        commands, self._commands = self._commands, []
        found: list[Any] = self._client._do(*commands)
        return found


class AsyncRedisClient(_Commands):
    """``redis.asyncio.Redis`` in a simulated event loop."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def _do(self, *commands: Command) -> Awaitable[Any]:
        return self._send(commands)

    async def _send(self, commands: Sequence[Command]) -> Any:
        k, loop = kernel(), asyncio.get_running_loop()
        k.step("redis " + " ".join(f"{command[0]} {command[1]}" for command in commands))
        future: asyncio.Future[tuple[Any, str]] = loop.create_future()

        def done(value: Any, trouble: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result((value, trouble)))

        assert k.current is not None
        server = RedisClient.server
        RedisClient.network.request(
            k.current.process, "redis", lambda reply: reply([server.do(command) for command in commands]), done
        )
        try:
            answers, trouble = await asyncio.wait_for(future, self._timeout_s)
        except TimeoutError:
            answers, trouble = None, "timeout"
        k.step("redis answered")
        if trouble:
            raise _error(trouble)
        return answers[0] if len(commands) == 1 else answers

    async def aclose(self) -> None:
        return
