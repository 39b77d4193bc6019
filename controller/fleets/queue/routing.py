"""Who gets which share of a bank's events: the rules, which the simulator has as well, and what actuator and
forwarder of a live bank say to each other (``controller.fleets.queue.routing_store``).
"""

from collections.abc import Iterable, Mapping
from math import isfinite

import msgspec

from penstock.contracts import Decision


def fed_shares(routing: Mapping[str, float] | None, fed: Iterable[str]) -> dict[str, float]:
    """The share of each queue that is fed, adding up to 1; empty if there is none.

    A queue that ``routing`` does not name gets nothing. Where that leaves nothing for anybody, or without a routing
    (None), all get the same.
    """
    shares = {queue: 1.0 if routing is None else routing.get(queue, 0.0) for queue in fed}
    total = sum(shares.values())
    if total == 0:
        return {queue: 1 / len(shares) for queue in shares}
    return {queue: share / total for queue, share in shares.items()}


def check_decision(decision: Decision, fleet: str) -> None:
    """Raise ValueError for what a bank of queues cannot do: other fleets, shares and sizes of a pool that are none."""
    for name in decision.targets:
        if name != fleet:
            raise ValueError(f"no fleet {name}: this run has {fleet} only")
    for name, share in (decision.routing or {}).items():
        if not (isfinite(share) and share >= 0):
            raise ValueError(f"routing {name}={share:g}: expected a share of at least 0")
    if decision.pool is not None and decision.pool < 0:
        raise ValueError(f"pool={decision.pool}: expected at least 0")


class Routing(msgspec.Struct, frozen=True):
    """Shares by replica, adding up to 1, empty if no replica is fed. ``version`` grows with each change."""

    version: int
    shares: Mapping[str, float]


class QueueFlow(msgspec.Struct, omit_defaults=True):
    """What the forwarder did with one queue, cumulative. ``entered``: events that the queue took. ``offered``: events
    for which it was the first choice, ``refused`` those of them that it had no room for; their ratio is P_K as
    observed. ``rejected``: events that were given up for it (``when_full`` drop), counted when their Result is out.
    """

    entered: int = 0
    offered: int = 0
    refused: int = 0
    rejected: int = 0


class ForwarderReport(msgspec.Struct, frozen=True):
    """The forwarder at ``at_ns`` (wall clock, ns). ``unacked``: events taken from the main queue that are not settled.

    ``version`` of the routing in force; ``settled_version``: nothing is on its way by the shares of an older one.
    ``nowhere``: events given up because no queue was fed. A restarted forwarder continues the counts.
    """

    at_ns: int
    version: int = 0
    settled_version: int = 0
    unacked: int = 0
    nowhere: int = 0
    queues: Mapping[str, QueueFlow] = msgspec.field(default_factory=dict)

    @property
    def settled(self) -> int:
        """Events that are through: with a queue, or given up."""
        return self.nowhere + sum(flow.entered + flow.rejected for flow in self.queues.values())
