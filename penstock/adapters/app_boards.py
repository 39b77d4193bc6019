"""Where apps and controller leave their records for each other (``penstock.apps``): hashes and keys in Redis, as JSON.

``penstock:<run>:containers``: wanted containers by replica; ``penstock:<run>:apps``: ``AppReport`` by replica;
``penstock:pod:<pod>``: ``PodIdentity``. A call raises one of ``REDIS_AWAY`` while Redis is away. Clients hold one
connection at a time: threads that share a board wait for each other for ``timeout_s`` at most.
"""

from typing import Final

import msgspec

from penstock.adapters.redis import redis_client
from penstock.apps import AppReport, PodIdentity

IDENTITY_TTL_S: Final = 86_400
"""How long a pod may ask; its container may be started again meanwhile."""

_reports = msgspec.json.Decoder(AppReport)


class Board:
    """Keys in Redis. ``url`` as redis://:secret@host:port/0."""

    def __init__(self, url: str, timeout_s: float = 1.0) -> None:
        self._redis = redis_client(url, timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class AppBoard(Board):
    """Wanted containers and reports of one run's apps."""

    def __init__(self, url: str, run: str, timeout_s: float = 1.0) -> None:
        super().__init__(url, timeout_s)
        self._containers, self._apps = f"penstock:{run}:containers", f"penstock:{run}:apps"

    def want(self, replica: str, containers: int) -> None:
        """Controller: set the containers that an app is to have."""
        self._redis.hset(self._containers, replica, containers)

    def wanted(self, replica: str) -> int | None:
        """App: the containers that it is to have, None before the first ``want``."""
        text = self._redis.hget(self._containers, replica)
        return None if text is None else int(text)

    def report(self, report: AppReport) -> None:
        """App: publish its state."""
        self._redis.hset(self._apps, report.replica, msgspec.json.encode(report))

    def reports(self) -> dict[str, AppReport]:
        """Controller: the last report of each app, ended ones included."""
        return {report.replica: report for report in map(_reports.decode, self._redis.hvals(self._apps))}

    def forget(self, replica: str) -> None:
        """Controller: remove a replica that is gone for good."""
        self._redis.hdel(self._containers, replica)
        self._redis.hdel(self._apps, replica)

    def erase(self) -> None:
        """Remove both hashes: the run is over."""
        self._redis.delete(self._containers, self._apps)


class PodBoard(Board):
    """The identities of pods that become apps."""

    def assign_identity(self, pod: str, app: PodIdentity) -> None:
        """Controller: this pod is that app."""
        self._redis.set(f"penstock:pod:{pod}", msgspec.json.encode(app), ex=IDENTITY_TTL_S)

    def identity(self, pod: str) -> PodIdentity | None:
        """Pod: the app that it is, None before the controller has assigned one."""
        found = self._redis.get(f"penstock:pod:{pod}")
        return None if found is None else msgspec.json.decode(found, type=PodIdentity)
