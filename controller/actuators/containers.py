"""The containers of one function app, of which its controller knows a number only: how many the app has.

An app is told how many containers it shall have and says how many there are; which one leaves is its own business
(the one that has finished its event). Here they get names and phases all the same, so that each has a life in the
journal. No clock, no I/O.
"""

import msgspec

from penstock.contracts import Phase, ReplicaCounts, ReplicaEvent


class Container(msgspec.Struct, kw_only=True):
    """One container. ``due_ns``: from when on the app is to have it."""

    name: str
    phase: Phase = "requested"
    due_ns: int = 0


class ContainerSet(msgspec.Struct, kw_only=True):
    """Containers of an app, oldest first. ``fleet`` is that of their ReplicaEvents, names are ``prefix`` and a number.

    Every change returns what happened to them, in order.
    """

    fleet: str
    prefix: str
    containers: list[Container] = msgspec.field(default_factory=list)
    next_number: int = 1

    def phases(self) -> dict[str, Phase]:
        """Each container's phase."""
        return {container.name: container.phase for container in self.containers}

    def counts(self) -> ReplicaCounts:
        """Containers by phase."""
        return ReplicaCounts.count(container.phase for container in self.containers)

    @property
    def size(self) -> int:
        """Containers that exist or were asked for, without those on the way out."""
        return len(self._current())

    def wanted(self, now_ns: int) -> int:
        """How many the app is to have now."""
        return sum(container.phase == "joined" or container.due_ns <= now_ns for container in self._current())

    def resize(self, size: int, now_ns: int, due_ns: int, reason: str = "") -> list[ReplicaEvent]:
        """Ask for what is missing, to be there at ``due_ns``; of what is too many those go first that have not come
        yet, then the youngest.
        """
        missing = size - self.size
        if missing >= 0:
            return [event for _ in range(missing) for event in self._request(now_ns, due_ns, reason)]
        first_to_go = sorted(enumerate(self._current()), key=lambda each: (each[1].phase == "joined", -each[0]))
        return [event for _, container in first_to_go[:-missing] for event in self._retire(container, now_ns)]

    def observe(self, running: int, now_ns: int) -> list[ReplicaEvent]:
        """The app says that it has so many. As long as it has more than it is to have, some are on their way out; as
        long as it has fewer, some are still to come.
        """
        events = []
        leaving = [container for container in self.containers if container.phase == "draining"]
        too_many = max(0, running - self.wanted(now_ns))
        for container in leaving[: max(0, len(leaving) - too_many)]:
            events += self._gone(container, now_ns)
        coming = [each for each in self._current() if each.phase == "requested" and each.due_ns <= now_ns]
        joined = sum(container.phase == "joined" for container in self.containers)
        for container in coming[: max(0, running - joined)]:
            container.phase = "joined"
            events += [ReplicaEvent(self.fleet, container.name, phase, now_ns) for phase in ("started", "joined")]
        return events

    def lost(self, now_ns: int, reason: str) -> list[ReplicaEvent]:
        """The app's process has ended by itself and comes back: what it had is gone, and asked for anew."""
        events = []
        for container in [container for container in self.containers if container.phase in ("joined", "draining")]:
            wanted = container.phase == "joined"
            if not wanted:
                events += self._gone(container, now_ns, reason)
                continue
            container.phase, container.due_ns = "requested", now_ns
            events += [
                ReplicaEvent(self.fleet, container.name, "gone", now_ns, reason),
                ReplicaEvent(self.fleet, container.name, "requested", now_ns, "respawned"),
            ]
        return events

    def end(self, now_ns: int, reason: str = "") -> list[ReplicaEvent]:
        """All of them are gone."""
        return [event for container in list(self.containers) for event in self._gone(container, now_ns, reason)]

    def _current(self) -> list[Container]:
        return [container for container in self.containers if container.phase != "draining"]

    def _request(self, now_ns: int, due_ns: int, reason: str) -> list[ReplicaEvent]:
        container = Container(name=f"{self.prefix}{self.next_number}", due_ns=due_ns)
        self.next_number += 1
        self.containers.append(container)
        return [ReplicaEvent(self.fleet, container.name, "requested", now_ns, reason)]

    def _retire(self, container: Container, now_ns: int) -> list[ReplicaEvent]:
        if container.phase == "requested":
            return self._gone(container, now_ns, "no longer wanted")
        container.phase = "draining"
        return [ReplicaEvent(self.fleet, container.name, "draining", now_ns)]

    def _gone(self, container: Container, now_ns: int, reason: str = "") -> list[ReplicaEvent]:
        self.containers.remove(container)
        return [ReplicaEvent(self.fleet, container.name, "gone", now_ns, reason)]
