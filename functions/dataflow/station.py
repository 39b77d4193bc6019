"""The queue of one function, and the connections over which it is emptied (a PNode of AMESoS, section 3.1).

Arithmetic only, no I/O: whoever takes a visit has to say what came of it.
"""

from collections import deque

from functions.dataflow.request import Request, Visit
from penstock.clock import NANOS_PER_SECOND
from penstock.functions import FunctionCounts


class Station:
    """``connections`` bounds the calls that are under way, together with the connections that rest after a refusal.

    ``before``: the counts of a predecessor, to go on from.
    """

    def __init__(self, name: str, connections: int, before: FunctionCounts | None = None) -> None:
        before = before or FunctionCounts(name=name)
        self.name = name
        self.connections = connections
        self.arrived, self.completed = before.arrived, before.completed
        self.refused, self.failed = before.refused, before.failed
        self.busy_ns = round(before.busy_s * NANOS_PER_SECOND)
        self.in_flight = 0
        self.resting = 0
        self.waiting: deque[Visit] = deque()
        self.aside: set[Visit] = set()
        self._taken: deque[tuple[int, float]] = deque()

    def deliver(self, visit: Visit) -> None:
        """A request comes to this function."""
        self.arrived += 1
        self.waiting.append(visit)

    def take(self, now_ns: int) -> Visit | None:
        """The visit whose call is to begin now, None if there is none or no connection for it."""
        if not self.waiting or self.in_flight + self.resting >= self.connections:
            return None
        visit = self.waiting.popleft()
        visit.started_ns = now_ns
        visit.sample = now_ns, visit.laxity_s(now_ns)
        self._taken.append(visit.sample)
        self.in_flight += 1
        return visit

    def complete(self, busy_ns: int) -> None:
        """A call is done; it took the replica this long."""
        self.in_flight -= 1
        self.completed += 1
        self.busy_ns += busy_ns

    def refuse(self, visit: Visit, *, first: bool) -> None:
        """A call was turned away: back to the head of the queue (``first``) or to its end. It has not been taken up,
        and its connection rests until ``wake``.
        """
        self.in_flight -= 1
        self.resting += 1
        self.refused += 1
        if visit.sample is not None and visit.sample in self._taken:
            self._taken.remove(visit.sample)
        if first:
            self.waiting.appendleft(visit)
        else:
            self.waiting.append(visit)

    def wake(self) -> None:
        """A connection has rested."""
        self.resting -= 1

    def fail(self, visit: Visit, *, again: bool) -> None:
        """A call came to nothing. ``again``: the visit is put aside until ``retry``."""
        self.in_flight -= 1
        self.failed += 1
        if again:
            visit.attempt += 1
            self.aside.add(visit)

    def retry(self, visit: Visit) -> None:
        """A visit that was put aside goes to the head of the queue; it has waited longest."""
        if visit in self.aside:
            self.aside.discard(visit)
            self.waiting.appendleft(visit)

    def drop(self, request: Request) -> int:
        """Forget all visits of a request that are not in a call; how many."""
        waiting = [visit for visit in self.waiting if visit.request is not request]
        aside = {visit for visit in self.aside if visit.request is not request}
        dropped = len(self.waiting) - len(waiting) + len(self.aside) - len(aside)
        if dropped:
            self.waiting, self.aside = deque(waiting), aside
        return dropped

    def counts(self, now_ns: int, epoch_ns: int) -> FunctionCounts:
        """The function now. Laxity: of requests when they were taken up in the last epoch, of those that wait now."""
        while self._taken and self._taken[0][0] <= now_ns - epoch_ns:
            self._taken.popleft()
        laxity_s = [sample for _, sample in self._taken]
        laxity_s += [visit.laxity_s(now_ns) for visit in self.waiting]
        laxity_s += [visit.laxity_s(now_ns) for visit in self.aside]
        return FunctionCounts(
            name=self.name,
            arrived=self.arrived,
            completed=self.completed,
            refused=self.refused,
            failed=self.failed,
            waiting=len(self.waiting) + len(self.aside),
            in_flight=self.in_flight,
            busy_s=self.busy_ns / NANOS_PER_SECOND,
            connections=self.connections,
            laxity_s=tuple(laxity_s),
        )
