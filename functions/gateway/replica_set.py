"""The replicas of a function as the control plane keeps them and writes them down (``penstock.replica_set``)."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from penstock.openfaas import MAX_REPLICAS, MIN_REPLICAS, QUEUE_LIMIT, FunctionDeployment
from penstock.replica_set import Replica, ReplicaSet

MOST_REPLICAS = 200
"""Limit of one function without a label of its own."""
MOST_DIGITS = 18
"""Of a number that is read; Python refuses to read thousands."""
LARGEST_LIMIT = 10_000
"""Highest limit of replicas or of waiting requests that a label can set."""


class ReplicaRecord(Replica, kw_only=True):
    """One replica. ``placed``: HAProxy has it as a server. ``closed``: HAProxy gives it no more requests. ``why`` it
    drains, if not because fewer are wanted.
    """

    generation: int
    placed: bool = False
    closed: bool = False
    asked_to_end: bool = False
    joined_ns: int = 0
    why: str = ""


class FunctionRecord(ReplicaSet[ReplicaRecord], kw_only=True):
    """The replicas of the function ``fleet``. ``generation`` grows with every update: replicas of an older one make way
    for the new ones. ``past``: counters of fork servers that ended.
    """

    Kind: ClassVar[type[ReplicaRecord]] = ReplicaRecord

    deployment: FunctionDeployment
    slot: str
    target: int
    created_ns: int
    generation: int = 1
    deleted: bool = False
    past: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the function."""
        return self.fleet

    def current(self) -> list[ReplicaRecord]:
        """Replicas of the present generation that exist or are requested, oldest first."""
        return [replica for replica in super().current() if replica.generation == self.generation]

    def outdated(self) -> list[ReplicaRecord]:
        """Replicas of an earlier generation that do not drain yet."""
        return [replica for replica in super().current() if replica.generation < self.generation]

    def add(self, now_ns: int) -> str:
        """Request one more replica of the present generation."""
        return self.request(1, now_ns, generation=self.generation)[0]

    @property
    def most(self) -> int:
        """Replicas that are granted at the most."""
        return _number(self.deployment.labels, MAX_REPLICAS, MOST_REPLICAS)

    @property
    def least(self) -> int:
        """Replicas at the beginning."""
        return min(_number(self.deployment.labels, MIN_REPLICAS, 1), self.most)

    @property
    def queue_limit(self) -> int:
        """Requests that may wait; 0: none."""
        return _number(self.deployment.annotations, QUEUE_LIMIT, 0)


class GatewayRecord(msgspec.Struct, kw_only=True):
    """``gateway.json``: where a restarted control plane continues."""

    port: int
    functions: dict[str, FunctionRecord] = msgspec.field(default_factory=dict)


def free_slot(slots: Iterable[str], functions: Iterable[FunctionRecord]) -> str | None:
    """A slot that no function has, None if there is none."""
    taken = {function.slot for function in functions}
    return next((slot for slot in slots if slot not in taken), None)


def _number(texts: Mapping[str, str] | None, name: str, default: int) -> int:
    text = (texts or {}).get(name, "")
    return min(int(text[:MOST_DIGITS]), LARGEST_LIMIT) if text.isdecimal() else default
