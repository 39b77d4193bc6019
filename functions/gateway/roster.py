"""What the control plane keeps of a function and writes down, and the reckoning on it: who comes, who goes first."""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.contracts import Phase
from penstock.openfaas import MAX_REPLICAS, MIN_REPLICAS, QUEUE_LIMIT, FunctionDeployment

MOST_REPLICAS = 200
"""Of one function, where its label says nothing else."""
STARTING: tuple[Phase, ...] = ("requested", "started")
SERVING: tuple[Phase, ...] = ("joined", "first-event")


class ReplicaRecord(msgspec.Struct, kw_only=True):
    """One replica. ``placed``: HAProxy has it as a server. ``closed``: told to give it no more requests. ``why`` it
    drains, if not because fewer are wanted. ``entered_ns``: when it entered its phase.
    """

    number: int
    generation: int
    requested_ns: int
    phase: Phase = "requested"
    placed: bool = False
    closed: bool = False
    asked_to_end: bool = False
    joined_ns: int = 0
    entered_ns: int = 0
    why: str = ""


class FunctionRecord(msgspec.Struct, kw_only=True):
    """One function. ``generation`` grows with every update: replicas of an older one make way for the new ones.
    ``past``: what warm parents had counted that are no more.
    """

    deployment: FunctionDeployment
    slot: str
    target: int
    created_ns: int
    generation: int = 1
    next_number: int = 1
    deleted: bool = False
    replicas: dict[str, ReplicaRecord] = msgspec.field(default_factory=dict)
    past: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the function."""
        return self.deployment.service

    def wanted(self) -> list[str]:
        """Replicas that are there or on their way, of the present generation, in the order in which they came."""
        return [
            name
            for name, replica in list(self.replicas.items())
            if replica.phase != "draining" and replica.generation == self.generation
        ]

    def outdated(self) -> list[str]:
        """Replicas of an earlier generation that still serve."""
        return [
            name
            for name, replica in list(self.replicas.items())
            if replica.phase != "draining" and replica.generation < self.generation
        ]

    def serving(self) -> list[str]:
        """Replicas that take requests, of any generation."""
        return [name for name, replica in list(self.replicas.items()) if replica.phase in SERVING]

    def surplus(self) -> list[str]:
        """Who goes: those that do not serve yet before those that do, the newest first."""
        wanted = self.wanted()
        order = sorted(wanted, key=lambda name: (self.replicas[name].phase in SERVING, -self.replicas[name].number))
        return order[: max(0, len(wanted) - self.target)]

    def add(self, now_ns: int) -> str:
        """A new replica, requested now; its name was never used before."""
        name = f"{self.name}-{self.next_number}"
        self.replicas[name] = ReplicaRecord(number=self.next_number, generation=self.generation, requested_ns=now_ns)
        self.next_number += 1
        return name

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
    """``gateway.json``: all that a control plane needs to go on where another one stopped."""

    port: int
    functions: dict[str, FunctionRecord] = msgspec.field(default_factory=dict)


def free_slot(slots: Iterable[str], functions: Iterable[FunctionRecord]) -> str | None:
    """A slot that no function has, None if there is none."""
    taken = {function.slot for function in functions}
    return next((slot for slot in slots if slot not in taken), None)


def _number(texts: Mapping[str, str] | None, name: str, default: int) -> int:
    text = (texts or {}).get(name, "")
    return int(text) if text.isdecimal() else default
