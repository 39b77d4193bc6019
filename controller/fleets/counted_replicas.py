"""Replicas that report their number only: containers of a function app, replicas behind an OpenFaaS gateway.

The app or gateway receives a target and reports how many there are; it chooses which one leaves. The replicas here get
names and phases by the difference: the oldest joins first, the youngest leaves first. No clock, no I/O.
"""

from collections.abc import Iterable
from typing import ClassVar

from penstock.replica_set import SERVING, Replica, ReplicaSet


class CountedReplica(Replica, kw_only=True):
    """One replica. ``due_ns``: time from which its app is asked for it (start-up time of the plant)."""

    due_ns: int = 0


class CountedReplicas(ReplicaSet[CountedReplica], kw_only=True):
    """Replicas of one app or function, by count. ``up_ns``: when the first one joined. Replicas that were requested
    before that waited for the app itself, which says nothing of a start-up.
    """

    Kind: ClassVar[type[CountedReplica]] = CountedReplica

    up_ns: int = 0

    def wanted(self, now_ns: int) -> int:
        """Replicas that the app is to have now."""
        return sum(replica.phase in SERVING or replica.due_ns <= now_ns for replica in self.current())

    def resize(self, size: int, now_ns: int, due_ns: int = 0, reason: str = "") -> None:
        """Request missing ones, due at ``due_ns``; withdraw those too many that do not serve, then drain youngest."""
        self.request(size - self.size, now_ns, reason, due_ns=due_ns)
        for replica in self.surplus(size):
            if replica.phase in SERVING:
                self.drain([replica.name], now_ns, reason)
            else:
                self.withdraw(replica.name, now_ns, reason)

    def withdraw(self, name: str, now_ns: int, reason: str) -> None:
        """Remove a replica that does not serve yet."""
        self.remove([name], now_ns, reason or "no longer wanted")

    def observe(self, running: int, now_ns: int) -> None:
        """The app has ``running`` replicas. Those beyond the wanted number are still draining; while it has fewer, the
        requested ones have not joined.
        """
        serving = len(self.serving())
        if serving == len(self.replicas):
            return
        draining = [name for name, each in self.replicas.items() if each.phase == "draining"]
        coming = [each.name for each in self.current() if each.phase not in SERVING and each.due_ns <= now_ns]
        too_many = max(0, running - serving - len(coming))
        self.remove(draining[: max(0, len(draining) - too_many)], now_ns)
        for name in coming[: max(0, running - serving)]:
            self.reach(name, "joined", now_ns)

    def joined(self, replica: CountedReplica, at_ns: int) -> None:
        """Note how long it took to join, unless it waited for the app."""
        self.up_ns = self.up_ns or at_ns
        if replica.requested_ns >= self.up_ns:
            super().joined(replica, at_ns)

    def lose(self, names: Iterable[str], now_ns: int, due_ns: int, reason: str) -> None:
        """These ended by themselves: serving ones are requested anew, due at ``due_ns``; draining ones are gone."""
        for name in names:
            replica = self.replicas[name]
            if replica.phase == "draining":
                self.remove([name], now_ns, reason)
            elif replica.phase in SERVING:
                self.respawn(name, now_ns, reason)
                replica.due_ns = due_ns
