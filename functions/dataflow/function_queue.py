"""The queue of one function and its connections (a PNode of AMESoS, section 3.1). No I/O."""

from collections import deque

from functions.dataflow.request import Request, Visit
from penstock.clock import NANOS_PER_SECOND
from penstock.function_messages import FunctionCounts


class FunctionQueue:
    """``connections`` bounds the calls in progress plus the connections that rest after a refusal. ``before``: counts
    of a predecessor.
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
        """Append a request."""
        self.arrived += 1
        self.waiting.append(visit)

    def take(self, now_ns: int) -> Visit | None:
        """Take the next visit to call; None without one, or without a free connection."""
        if not self.waiting or self.in_flight + self.resting >= self.connections:
            return None
        visit = self.waiting.popleft()
        visit.started_ns = now_ns
        visit.sample = now_ns, visit.laxity_s(now_ns)
        self._taken.append(visit.sample)
        self.in_flight += 1
        return visit

    def complete(self, busy_ns: int) -> None:
        """Count a completed call with its processing time."""
        self.in_flight -= 1
        self.completed += 1
        self.busy_ns += busy_ns

    def refuse(self, visit: Visit, *, first: bool) -> None:
        """Return a refused call to the head (``first``) or end of the queue; its connection rests."""
        self.in_flight -= 1
        self.resting += 1
        self.refused += 1
        if visit.sample is not None and visit.sample in self._taken:
            self._taken.remove(visit.sample)
        if first:
            self.waiting.appendleft(visit)
        else:
            self.waiting.append(visit)

    def fail(self, visit: Visit, *, again: bool) -> None:
        """Count a failed call. ``again``: the visit is set aside until ``retry``."""
        self.in_flight -= 1
        self.failed += 1
        if again:
            visit.attempt += 1
            self.aside.add(visit)

    def retry(self, visit: Visit) -> None:
        """Put a visit that was set aside at the head of the queue; it has waited longest."""
        if visit in self.aside:
            self.aside.discard(visit)
            self.waiting.appendleft(visit)

    def drop(self, request: Request) -> int:
        """Remove all visits of a request that are not in a call; return their number."""
        before = len(self.waiting) + len(self.aside)
        self.waiting = deque(visit for visit in self.waiting if visit.request is not request)
        self.aside = {visit for visit in self.aside if visit.request is not request}
        return before - len(self.waiting) - len(self.aside)

    def counts(self, now_ns: int, epoch_ns: int) -> FunctionCounts:
        """Present counts. Laxity samples: at the start of each call of the last epoch, and of waiting requests now."""
        while self._taken and self._taken[0][0] <= now_ns - epoch_ns:
            self._taken.popleft()
        laxity_s = [sample for _, sample in self._taken]
        laxity_s += [visit.laxity_s(now_ns) for visit in (*self.waiting, *self.aside)]
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
