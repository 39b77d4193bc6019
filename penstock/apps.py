"""Records that a function app and the controller exchange; ``penstock.adapters.app_boards`` keeps them in Redis.

An app is one process (``consumers.app``) with a number of containers on one queue. The controller sets the number of
containers; the app reports its state and its cumulative counts. Neither waits for the other.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

EXCHANGE_S: Final = 0.2
"""Between two exchanges of an app with the controller, at speed 1."""
SHORTEST_EXCHANGE_S: Final = 0.04
"""More would take time from the services."""


def exchange_s(speed: float) -> float:
    """Between two exchanges: in a faster run decisions are closer together, and reports have to be, too."""
    return min(EXCHANGE_S, max(SHORTEST_EXCHANGE_S, EXCHANGE_S / speed))


def scv(n: int, total: float, squares: float) -> float | None:
    """Squared coefficient of variation of ``n`` values (variance with n − 1) by their sums; None for fewer than two."""
    if n < 2 or total <= 0:
        return None
    return max(0.0, (squares - total * total / n) / (n - 1)) / (total / n) ** 2


class JobFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job type as one app saw it, cumulative: rates and moments over a window are differences of two reports.

    ``arrived``: events whose route begins at this app, with the times at which they were sent: the last one, and the
    sum and the sum of squares of the times between two of them (one fewer than ``arrived``; a redelivery is none).
    ``finished``: events whose route ended here, with the sum of their response times from intended send time to end;
    ``late`` of them took longer than the SLO.
    """

    arrived: int = 0
    last_arrival_ns: int = 0
    between_s: float = 0.0
    between_s2: float = 0.0
    finished: int = 0
    response_s: float = 0.0
    late: int = 0


class AppReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """An app at ``at_ns`` (wall clock, ns). ``containers`` work or wait for work, ``busy`` of them on an event
    that is not ``completed``.

    Cumulative since the process ``started_ns`` (a restarted app counts from 0 again): ``completed`` services, failed
    payments included, ``busy_s`` and ``busy_s2``, the sums of their service times and of their squares. ``first_ns``:
    when it began its first event, 0 before. ``jobs`` by name, in a pub/sub network only.
    """

    replica: str
    containers: int = 0
    busy: int = 0
    completed: int = 0
    busy_s: float = 0.0
    busy_s2: float = 0.0
    at_ns: int = 0
    started_ns: int = 0
    first_ns: int = 0
    jobs: Mapping[str, JobFlow] = msgspec.field(default_factory=dict)

    @property
    def service_rate_per_s(self) -> float | None:
        """μ of one container; None before the first completion."""
        return self.completed / self.busy_s if self.busy_s > 0 else None

    @property
    def service_scv(self) -> float | None:
        """Squared coefficient of variation of the service time; None before two completions."""
        return scv(self.completed, self.busy_s, self.busy_s2)


class PodIdentity(msgspec.Struct, frozen=True):
    """The app that a pod becomes. ``arguments``: of ``consumers.app`` after ``--run``; ``files`` of the directory."""

    replica: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes]


def ready_limit(capacity: int, servers: int) -> int:
    """``max-length`` of a queue with capacity K and s ``servers`` with prefetch 1: K − s, since RabbitMQ bounds only
    waiting messages. At least 1, since 0 would reject every event: K = s behaves as K = s + 1.
    """
    return max(1, capacity - servers)
