"""What a function app and the controller tell each other through Redis.

An app is one process (``consumers.app``) with a number of containers on one queue. The controller says how many it
wants (hash ``penstock:<run>:containers``, replica → number); the app says what it has and has done (hash
``penstock:<run>:apps``, replica → ``AppReport`` as JSON). Neither waits for the other.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

AWAY = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ReadOnlyError)
"""What an ``AppBoard`` raises while Redis is away or starting: try again later."""


class JobFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job type as one app saw it, cumulative: rates and moments over a window are differences of two reports.

    ``arrived``: events whose route begins at this app, with the times at which they were sent: the last one, and the
    sum and the sum of squares of the times between two of them (one fewer than ``arrived``; a redelivery is none).
    ``finished``: events whose route ended here, with the sum of their response times from intended send time to end.
    """

    arrived: int = 0
    last_arrival_ns: int = 0
    between_s: float = 0.0
    between_s2: float = 0.0
    finished: int = 0
    response_s: float = 0.0


class AppReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """An app at ``at_ns`` (wall clock, ns). ``containers`` work or wait for work, ``busy`` of them on an event
    that is not ``completed``.

    Cumulative since the process ``started_ns`` (a restarted app counts from 0 again): ``completed`` services, failed
    payments included, ``busy_s`` and ``busy_s2``, the sums of their service times and of their squares. ``first_ns``:
    when it began its first event, 0 before. ``jobs`` by name, in a pub/sub network only.
    """

    replica: str
    containers: int
    busy: int
    completed: int
    busy_s: float
    busy_s2: float
    at_ns: int
    started_ns: int = 0
    first_ns: int = 0
    jobs: Mapping[str, JobFlow] = msgspec.field(default_factory=dict)

    @property
    def service_rate_per_s(self) -> float | None:
        """μ of one container; None before the first completion."""
        return self.completed / self.busy_s if self.busy_s > 0 else None

    @property
    def service_scv(self) -> float | None:
        """Squared coefficient of variation of the service time (variance with n − 1); None before two completions."""
        n, sum_s = self.completed, self.busy_s
        if n < 2 or sum_s <= 0:
            return None
        return max(0.0, (self.busy_s2 - sum_s * sum_s / n) / (n - 1)) / (sum_s / n) ** 2


class AppIntroduction(msgspec.Struct, frozen=True):
    """What a pod becomes: the app ``replica``, by the ``arguments`` of ``consumers.app`` that follow ``--run``.
    ``files`` of its run directory by name.
    """

    replica: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes]


_decoder = msgspec.json.Decoder(AppReport)
_introduction_decoder = msgspec.json.Decoder(AppIntroduction)
INTRODUCED_S: Final = 86_400
"""How long a pod may ask; its container may be started again meanwhile."""


def containers_key(run: str) -> str:
    """Redis hash of wanted containers: replica → number."""
    return f"penstock:{run}:containers"


def apps_key(run: str) -> str:
    """Redis hash of what apps report: replica → AppReport."""
    return f"penstock:{run}:apps"


class AppBoard:
    """Both hashes of one run. ``url`` as redis://:secret@host:port/0. An absent Redis raises one of ``AWAY``.

    One connection at a time: threads that share a board wait for each other at most ``timeout_s`` seconds.
    """

    def __init__(self, url: str, run: str, timeout_s: float = 1.0) -> None:
        self._redis = _client(url, timeout_s)
        self._containers, self._apps = containers_key(run), apps_key(run)

    def want(self, replica: str, containers: int) -> None:
        """The controller: that many containers from now on."""
        self._redis.hset(self._containers, replica, containers)

    def wanted(self, replica: str) -> int | None:
        """The app: how many containers it shall have, None if nobody has said."""
        text = self._redis.hget(self._containers, replica)
        return None if text is None else int(text)

    def all_wanted(self) -> dict[str, int]:
        """Wanted containers by replica."""
        return {_text(replica): int(number) for replica, number in self._redis.hgetall(self._containers).items()}

    def report(self, report: AppReport) -> None:
        """The app: what it is like now."""
        self._redis.hset(self._apps, report.replica, msgspec.json.encode(report))

    def reports(self) -> dict[str, AppReport]:
        """The controller: the last report of each app, also of those that have ended since."""
        return {_text(replica): _decoder.decode(report) for replica, report in self._redis.hgetall(self._apps).items()}

    def forget(self, replica: str) -> None:
        """The controller: a replica is gone for good."""
        self._redis.hdel(self._containers, replica)
        self._redis.hdel(self._apps, replica)

    def erase(self) -> None:
        """Remove both hashes: the run is over."""
        self._redis.delete(self._containers, self._apps)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class PodBoard:
    """Where pods that are to be apps learn which (key ``penstock:pod:<pod>``). Raises one of ``AWAY``."""

    def __init__(self, url: str, timeout_s: float = 1.0) -> None:
        self._redis = _client(url, timeout_s)

    def introduce(self, pod: str, app: AppIntroduction) -> None:
        """The controller: this pod is that app."""
        self._redis.set(f"penstock:pod:{pod}", msgspec.json.encode(app), ex=INTRODUCED_S)

    def introduction(self, pod: str) -> AppIntroduction | None:
        """The pod: which app it is, None while nobody has said."""
        found = self._redis.get(f"penstock:pod:{pod}")
        return None if found is None else _introduction_decoder.decode(found)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


def _client(url: str, timeout_s: float) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


def _text(field: bytes | str) -> str:
    return field if isinstance(field, str) else field.decode()
