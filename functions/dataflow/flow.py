"""The way of requests through the pipeline: branch, merge, try again, give up, leave (AMESoS 2.2, 3.1; spec 3.12).

Everything happens in one event loop. Calls, settling and publishing are ports, so that a test can hold them still.
A late request is finished and counted as a miss; nothing is dropped for being late (spec 3.12).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from functions.dataflow.calls import Answer
from functions.dataflow.graph import Pipeline
from functions.dataflow.request import Delivery, Failure, Request, Visit
from functions.dataflow.station import Station
from penstock.clock import NANOS_PER_SECOND
from penstock.functions import EPOCH_S, RETRY_S, PipelineSnapshot
from penstock.records import Event, Outcome, Result, event_decoder
from penstock.signing import Signer

log = logging.getLogger(__name__)

NOBODY = "pipeline-manager"
"""``worker`` of a Result that no replica is the author of."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """When to try again and when to give up. A call has ``timeout_s``; a visit has ``attempts`` calls, with a pause
    after each failed one that doubles from ``backoff_s`` to ``most_backoff_s``. After a refusal the connection rests
    for ``rest_s``, and the request stays for as long as it takes.
    """

    attempts: int = 5
    timeout_s: float = 30.0
    backoff_s: float = 0.1
    most_backoff_s: float = 2.0
    rest_s: float = RETRY_S

    def pause_s(self, attempt: int) -> float:
        """After that failed attempt, counted from 1."""
        return float(min(self.most_backoff_s, self.backoff_s * 2 ** (attempt - 1)))


class Ports(Protocol):
    """What the flow needs of the world."""

    def call(self, function: str, body: bytes, event: int, deadline_ns: int) -> Awaitable[Answer]:
        """Call a function; does not raise."""
        ...

    def settle(self, request: Request) -> None:
        """Write down what became of a request, ``request.final``; ``Flow.settled`` is to be called once that is so."""
        ...

    def publish(self, result: Result, out: Callable[[], None]) -> None:
        """Publish a Result; ``out`` is to be called in the event loop once it cannot be lost any more."""
        ...


class Flow:
    """The pipeline at work. ``before``: the snapshot of a predecessor; ``finished`` and ``missed`` are of all requests
    that have left, as they were written down.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        ports: Ports,
        signer: Signer,
        *,
        label: str,
        patience: Patience | None = None,
        connections: int = 1,
        epoch_s: float = EPOCH_S,
        before: PipelineSnapshot | None = None,
        finished: int = 0,
        missed: int = 0,
    ) -> None:
        self.pipeline = pipeline
        self.graph = pipeline.graph
        self.patience = patience or Patience()
        self.label = label
        counted = {counts.name: counts for counts in before.functions} if before is not None else {}
        self.stations = [Station(name, connections, counted.get(name)) for name in pipeline.names]
        self.arrived = before.arrived if before is not None else 0
        self.unreadable = before.unreadable if before is not None else 0
        self.finished, self.missed = finished, missed
        self._ports, self._signer = ports, signer
        self._epoch_ns = round(epoch_s * NANOS_PER_SECOND)
        self._merges = {i: len(each) for i, each in enumerate(self.graph.before) if len(each) > 1}
        self._inside: dict[int, Request] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._pausing = False

    # --- in ----------------------------------------------------------------------------------------------------------

    @property
    def inside(self) -> int:
        """Requests that have not left with all their Results."""
        return len(self._inside)

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """Requests come in. What is delivered again while it is still inside goes its way once."""
        for delivery in deliveries:
            self.arrived += delivery.fresh
            event, reason = self._read(delivery.value)
            if event is None or reason:
                self._turn_away(delivery, event, reason)
            elif (known := self._inside.get(event.id)) is not None:
                known.deliveries.append(delivery)
            else:
                self._begin(event, delivery)
        for i in self.graph.sources:
            self.dispatch(i)

    def _read(self, value: bytes) -> tuple[Event | None, str]:
        """The event, or why it is none that this pipeline takes. Who is not known to have signed cannot say which
        event it is.
        """
        try:
            event = event_decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return None, f"unreadable: {error}"
        if event.run != self._signer.run:
            return None, f"belongs to run {event.run!r}"
        if not self._signer.verify(event):
            return event, "bad signature"
        return event, ""

    def _begin(self, event: Event, delivery: Delivery) -> None:
        request = Request(event, delivery, self.pipeline.deadline_s, self._merges, len(self.graph.sinks))
        self._inside[event.id] = request
        for i in self.graph.sources:
            self._deliver(i, request, self.graph.total_s)

    def _turn_away(self, delivery: Delivery, event: Event | None, reason: str) -> None:
        """A record that cannot be taken: failed, and counted, but not written down under an id that anybody could
        have put there.
        """
        now_ns = time.time_ns()
        self.unreadable += delivery.fresh
        result = Result(
            id=event.id if event is not None else None,
            run=self._signer.run,
            pipeline=self.pipeline.name,
            stage=self.pipeline.names[self.graph.sources[0]],
            outcome="failed",
            queue=self.label,
            intended_ns=event.intended_ns if event is not None else None,
            sent_ns=event.sent_ns if event is not None else None,
            broker_ns=delivery.broker_ns,
            received_ns=now_ns,
            started_ns=now_ns,
            finished_ns=now_ns,
            worker=NOBODY,
            reason=reason,
        )
        log.warning("a record was turned away: %s", reason)
        self._ports.publish(result, partial(delivery.done, result))

    # --- through -----------------------------------------------------------------------------------------------------

    def _deliver(self, i: int, request: Request, estimate_s: float) -> None:
        request.visits += 1
        self.stations[i].deliver(Visit(request, i, estimate_s, time.time_ns()))

    def dispatch(self, i: int) -> None:
        """Begin as many calls of function ``i`` as there are connections and requests for."""
        station = self.stations[i]
        while not self._pausing and (visit := station.take(time.time_ns())) is not None:
            call = asyncio.get_running_loop().create_task(self._call(visit))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, visit: Visit) -> None:
        request, i = visit.request, visit.function
        try:
            body = self.pipeline.body(i, request.results)
            answer = await self._ports.call(self.stations[i].name, body, request.event.id, request.deadline_ns)
        except Exception:
            # An error of ours must not take the station's connection with it.
            log.exception("request %d at %s", request.event.id, self.stations[i].name)
            answer = Answer("failed", reason="error of the pipeline manager, see its log")
        self._answered(visit, answer)
        self.dispatch(i)

    def _answered(self, visit: Visit, answer: Answer) -> None:
        request, station = visit.request, self.stations[visit.function]
        if request.failure is not None and answer.verdict != "done":
            # Another branch has given up: this one is not tried again.
            station.fail(visit, again=False)
            self._end(visit)
        elif answer.verdict == "done":
            self._done(visit, answer)
        elif answer.verdict == "refused":
            station.refuse(visit, first=not answer.reason.startswith("status 503"))
            asyncio.get_running_loop().call_later(self.patience.rest_s, self._wake, visit.function)
        else:
            self._failed(visit, answer)

    def _wake(self, i: int) -> None:
        self.stations[i].wake()
        self.dispatch(i)

    def _done(self, visit: Visit, answer: Answer) -> None:
        """On to every successor; into a merge with the last branch, whose time and progress count (A17)."""
        request, i, finished_ns = visit.request, visit.function, time.time_ns()
        took_ns = finished_ns - visit.started_ns
        self.stations[i].complete(took_ns if answer.busy_ns is None else answer.busy_ns)
        result = self._result(visit, answer, "completed", finished_ns)
        if request.failure is not None:
            self._publish(request, msgspec.structs.replace(result, terminal=False))
            self._end(visit)
            return
        request.results[i] = answer.body
        for j in self.graph.after[i]:
            if j in request.missing:
                request.missing[j] -= 1
                if request.missing[j]:
                    continue
            self._deliver(j, request, self.graph.remaining_s[i])
        if not self.graph.after[i]:
            request.sinks -= 1
        if request.sinks == 0:
            request.final = result
        else:
            self._publish(request, msgspec.structs.replace(result, terminal=False))
        self._end(visit)
        for j in self.graph.after[i]:
            self.dispatch(j)

    def _failed(self, visit: Visit, answer: Answer) -> None:
        """A call came to nothing: again after a pause, or the request is given up."""
        request, station = visit.request, self.stations[visit.function]
        last = answer.verdict == "impossible" or visit.attempt >= self.patience.attempts
        if not last:
            pause_s = self.patience.pause_s(visit.attempt)
            station.fail(visit, again=True)
            asyncio.get_running_loop().call_later(pause_s, self._retry, visit)
            return
        station.fail(visit, again=False)
        outcome: Outcome = "failed" if answer.verdict == "impossible" else "dead-lettered"
        reason = f"{station.name}: {answer.reason}"
        if outcome == "dead-lettered":
            reason += f" (attempt {visit.attempt} of {self.patience.attempts})"
        log.warning("request %d %s: %s", request.event.id, outcome, reason)
        request.failure = Failure(outcome, reason)
        request.final = self._result(visit, answer, outcome, time.time_ns(), reason)
        for each in self.stations:
            request.visits -= each.drop(request)
        self._end(visit)

    def _retry(self, visit: Visit) -> None:
        self.stations[visit.function].retry(visit)
        self.dispatch(visit.function)

    # --- out ---------------------------------------------------------------------------------------------------------

    def _end(self, visit: Visit) -> None:
        """One visit is over; with the last one the request has left the pipeline, once that is written down."""
        request = visit.request
        request.visits -= 1
        if request.visits == 0 and request.final is not None:
            request.results.clear()
            self._ports.settle(request)

    def settled(self, request: Request, attempt: int, outcome: Outcome) -> None:
        """The request is written down, for the ``attempt``-th time with what became of it first. Its last Result goes
        out; it is counted once.
        """
        final = request.final
        assert final is not None
        if attempt == 1:
            self.finished += 1
            self.missed += is_missed(final, request.deadline_ns)
        else:
            reason = final.reason if outcome == final.outcome else f"was {outcome} before"
            reason = "" if outcome == "completed" else reason
            final = msgspec.structs.replace(final, attempt=max(attempt, final.attempt), outcome=outcome, reason=reason)
            request.final = final
        request.settled = True
        self._publish(request, final)

    def _publish(self, request: Request, result: Result) -> None:
        request.unpublished += 1
        self._ports.publish(result, partial(self._out, request))

    def _out(self, request: Request) -> None:
        request.unpublished -= 1
        if request.settled and request.unpublished == 0:
            assert request.final is not None
            del self._inside[request.event.id]
            for delivery in request.deliveries:
                delivery.done(request.final)

    def _result(self, visit: Visit, answer: Answer, outcome: Outcome, finished_ns: int, reason: str = "") -> Result:
        event, name = visit.request.event, self.stations[visit.function].name
        return Result(
            id=event.id,
            run=event.run,
            pipeline=self.pipeline.name,
            stage=name,
            outcome=outcome,
            queue=name,
            intended_ns=event.intended_ns,
            sent_ns=event.sent_ns,
            broker_ns=visit.request.deliveries[0].broker_ns,
            deadline_ns=visit.request.deadline_ns,
            received_ns=visit.received_ns,
            started_ns=visit.started_ns,
            finished_ns=finished_ns,
            worker=answer.replica or (name if answer.verdict == "done" else NOBODY),
            attempt=visit.attempt,
            reason=reason,
        )

    # --- around ------------------------------------------------------------------------------------------------------

    def connect(self, connections: dict[str, int]) -> None:
        """Functions have so many replicas that take requests: one connection each, and one at least (AMESoS 3.1)."""
        for i, station in enumerate(self.stations):
            if (wanted := connections.get(station.name)) is not None:
                station.connections = max(1, wanted)
                self.dispatch(i)

    async def pause(self, timeout_s: float) -> None:
        """Begin no more calls, wait for those that are under way. What then is inside is somebody else's."""
        self._pausing = True
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=timeout_s)
        for call in tuple(self._calls):
            call.cancel()

    def snapshot(self, epoch: int, at_ns: int, positions: dict[str, int]) -> PipelineSnapshot:
        """The pipeline at ``at_ns``, which is now."""
        return PipelineSnapshot(
            epoch=epoch,
            at_ns=at_ns,
            arrived=self.arrived,
            finished=self.finished + self.unreadable,
            missed=self.missed,
            unreadable=self.unreadable,
            functions=tuple(station.counts(at_ns, self._epoch_ns) for station in self.stations),
            positions=positions,
        )


def is_missed(final: Result, deadline_ns: int) -> bool:
    """Whether a request that left so has missed its deadline; what was given up will never be there in time."""
    return final.outcome == "dead-lettered" or final.finished_ns > deadline_ns
