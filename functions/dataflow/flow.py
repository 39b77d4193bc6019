"""Requests in the pipeline: branch, merge, retry, abandon, leave (AMESoS 2.2, 3.1), in one event loop.

Late requests are finished and counted as missed: dropping them would hide the load that a scaler has to serve.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from functions.dataflow.calls import Answer
from functions.dataflow.function_queue import FunctionQueue
from functions.dataflow.graph import Pipeline
from functions.dataflow.request import Delivery, Request, Visit
from penstock.clock import NANOS_PER_SECOND
from penstock.function_messages import EPOCH_S, RETRY_S, PipelineSnapshot
from penstock.records import Event, Outcome, Result, event_decoder, read_record, rejected
from penstock.signing import Signer

log = logging.getLogger(__name__)

MANAGER = "pipeline-manager"
"""``worker`` of a Result that no replica has made."""
MOST_REASONS = 100
"""Of refusals that are logged, each once."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Retries. A visit has ``attempts`` calls of ``timeout_s`` each, with a pause after a failed one that doubles from
    ``backoff_s`` to ``most_backoff_s``. A refusal is no failure: the connection rests for ``rest_s``.
    """

    attempts: int = 5
    timeout_s: float = 30.0
    backoff_s: float = 0.1
    most_backoff_s: float = 2.0
    rest_s: float = RETRY_S


Call = Callable[[str, bytes, int, int], Awaitable[Answer]]
"""Calls a function: name, body, event id, deadline in ns since the epoch; does not raise."""
Publish = Callable[[Result, Callable[[], None]], None]
"""Publishes a Result; calls the second argument in the event loop once it is stored."""


class Flow:
    """The running pipeline. ``settle`` records the outcome ``request.final`` and has ``settled`` called afterwards.
    ``before``: snapshot of a predecessor; ``finished`` and ``missed``: recorded counts of the requests that have left.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        signer: Signer,
        *,
        call: Call,
        settle: Callable[[Request], None],
        publish: Publish,
        label: str,
        patience: Patience,
        connections: int = 1,
        epoch_s: float = EPOCH_S,
        before: PipelineSnapshot | None = None,
        finished: int = 0,
        missed: int = 0,
    ) -> None:
        self.pipeline = pipeline
        self.graph = pipeline.graph
        self.patience = patience
        self.label = label
        before = before or PipelineSnapshot(epoch=0, at_ns=0, arrived=0, finished=0, missed=0)
        counted = {counts.name: counts for counts in before.functions}
        self.stations = [FunctionQueue(name, connections, counted.get(name)) for name in pipeline.names]
        self.arrived, self.unreadable = before.arrived, before.unreadable
        self.finished, self.missed = finished, missed
        self._call_function, self._settle, self._publish_result, self._signer = call, settle, publish, signer
        self._epoch_ns = round(epoch_s * NANOS_PER_SECOND)
        self._merges = {i: len(each) for i, each in enumerate(self.graph.before) if len(each) > 1}
        self._inside: dict[int, Request] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._refusals: set[tuple[str, str]] = set()
        self._pausing = False

    # --- in ----------------------------------------------------------------------------------------------------------

    @property
    def inside(self) -> int:
        """Requests that have not left, or whose Results are not published yet."""
        return len(self._inside)

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """Take requests in. A request that is delivered again while it is inside runs once."""
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
        """The event, and the reason if it is refused. Without a valid signature its id is not trusted."""
        try:
            event = read_record(event_decoder, value)
        except msgspec.DecodeError as error:
            return None, f"unreadable: {error}"
        if event.run != self._signer.run:
            return None, f"belongs to run {event.run!r}"
        if not self._signer.verify(event):
            return event, "bad signature"
        return event, ""

    def _begin(self, event: Event, delivery: Delivery) -> None:
        deadline_ns = event.deadline_ns
        if deadline_ns is None:
            deadline_ns = event.intended_ns + round(self.pipeline.deadline_s * NANOS_PER_SECOND)
        results = {-1: bytes(event.payload)}
        request = Request(event, [delivery], deadline_ns, results, dict(self._merges), len(self.graph.sinks))
        self._inside[event.id] = request
        for i in self.graph.sources:
            self._deliver(i, request, self.graph.total_s)

    def _turn_away(self, delivery: Delivery, event: Event | None, reason: str) -> None:
        """Fail and count a refused record, without recording an outcome under an id that may be forged."""
        self.unreadable += delivery.fresh
        refused = rejected(
            event,
            run=self._signer.run,
            pipeline=self.pipeline.name,
            queue=self.label,
            at_ns=time.time_ns(),
            worker=MANAGER,
            reason=reason,
        )
        stage = self.pipeline.names[self.graph.sources[0]]
        result = msgspec.structs.replace(
            refused, outcome="failed", stage=stage, broker_ns=delivery.broker_ns, deadline_ns=None
        )
        log.warning("a record was turned away: %s", reason)
        self._publish_result(result, partial(delivery.done, result))

    # --- through -----------------------------------------------------------------------------------------------------

    def _deliver(self, i: int, request: Request, estimate_s: float) -> None:
        request.visits += 1
        self.stations[i].deliver(Visit(request, i, estimate_s, time.time_ns()))

    def dispatch(self, i: int) -> None:
        """Start calls of function ``i`` while it has free connections and waiting requests."""
        station = self.stations[i]
        while not self._pausing and (visit := station.take(time.time_ns())) is not None:
            call = asyncio.get_running_loop().create_task(self._call(visit))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, visit: Visit) -> None:
        request, i = visit.request, visit.function
        try:
            body = self.pipeline.body(i, request.results)
            answer = await self._call_function(self.stations[i].name, body, request.event.id, request.deadline_ns)
        except Exception:
            # An internal error must not occupy the function's connection for ever.
            log.exception("request %d at %s", request.event.id, self.stations[i].name)
            answer = Answer("failed", reason="error of the pipeline manager, see its log")
        self._answered(visit, answer)
        self.dispatch(i)

    def _answered(self, visit: Visit, answer: Answer) -> None:
        request, station = visit.request, self.stations[visit.function]
        if request.failed and answer.verdict != "done":
            # Another branch has failed for good: this one is not retried.
            station.fail(visit, again=False)
            self._end(visit)
        elif answer.verdict == "done":
            self._done(visit, answer)
        elif answer.verdict == "refused":
            self._tell_refusal(station.name, answer.reason)
            station.refuse(visit, first=not answer.reason.startswith("status 503"))
            asyncio.get_running_loop().call_later(self.patience.rest_s, self._wake, visit.function)
        else:
            self._failed(visit, answer)

    def _tell_refusal(self, function: str, reason: str) -> None:
        """Log once why calls of a function wait, unless its replicas are busy: it may be for ever."""
        told = function, reason
        if reason.startswith("status 429") or told in self._refusals or len(self._refusals) >= MOST_REASONS:
            return
        self._refusals.add(told)
        log.warning("%s: calls are refused, and wait: %s", function, reason)

    def _wake(self, i: int) -> None:
        self.stations[i].resting -= 1
        self.dispatch(i)

    def _done(self, visit: Visit, answer: Answer) -> None:
        """Deliver to every successor; to a merge with the last branch, whose time and progress count (A17)."""
        request, i, finished_ns = visit.request, visit.function, time.time_ns()
        took_ns = finished_ns - visit.started_ns
        self.stations[i].complete(took_ns if answer.busy_ns is None else answer.busy_ns)
        result = self._result(visit, answer, "completed", finished_ns)
        if request.failed:
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
        """Retry a failed call after a pause, or abandon the request."""
        request, station = visit.request, self.stations[visit.function]
        if answer.verdict == "failed" and visit.attempt < self.patience.attempts:
            pause_s = min(self.patience.most_backoff_s, self.patience.backoff_s * 2.0 ** (visit.attempt - 1))
            station.fail(visit, again=True)
            asyncio.get_running_loop().call_later(pause_s, self._retry, visit)
            return
        station.fail(visit, again=False)
        outcome: Outcome = "failed" if answer.verdict == "impossible" else "dead-lettered"
        reason = f"{station.name}: {answer.reason}"
        if outcome == "dead-lettered":
            reason += f" (attempt {visit.attempt} of {self.patience.attempts})"
        log.warning("request %d %s: %s", request.event.id, outcome, reason)
        request.failed = True
        request.final = self._result(visit, answer, outcome, time.time_ns(), reason)
        for each in self.stations:
            request.visits -= each.drop(request)
        self._end(visit)

    def _retry(self, visit: Visit) -> None:
        self.stations[visit.function].retry(visit)
        self.dispatch(visit.function)

    # --- out ---------------------------------------------------------------------------------------------------------

    def _end(self, visit: Visit) -> None:
        """End a visit; after the last one the outcome of the request is recorded."""
        request = visit.request
        request.visits -= 1
        if request.visits == 0 and request.final is not None:
            request.results.clear()
            self._settle(request)

    def settled(self, request: Request, attempt: int, outcome: Outcome) -> None:
        """Publish the last Result of a recorded request. ``attempt``: how often it was recorded; only the first outcome
        counts.
        """
        final = request.outcome
        if attempt == 1:
            self.finished += 1
            self.missed += request.missed
        else:
            reason = final.reason if outcome == final.outcome else f"was {outcome} before"
            reason = "" if outcome == "completed" else reason
            final = msgspec.structs.replace(final, attempt=max(attempt, final.attempt), outcome=outcome, reason=reason)
            request.final = final
        request.settled = True
        self._publish(request, final)

    def _publish(self, request: Request, result: Result) -> None:
        request.unpublished += 1
        self._publish_result(result, partial(self._out, request))

    def _out(self, request: Request) -> None:
        request.unpublished -= 1
        if request.settled and request.unpublished == 0:
            del self._inside[request.event.id]
            for delivery in request.deliveries:
                delivery.done(request.outcome)

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
            worker=answer.replica or (name if answer.verdict == "done" else MANAGER),
            attempt=visit.attempt,
            reason=reason,
        )

    # --- around ------------------------------------------------------------------------------------------------------

    def connect(self, connections: dict[str, int]) -> None:
        """Set the connections by function: one per serving replica, at least one (AMESoS 3.1)."""
        for i, station in enumerate(self.stations):
            if (wanted := connections.get(station.name)) is not None:
                station.connections = max(1, wanted)
                self.dispatch(i)

    async def pause(self, timeout_s: float) -> None:
        """Start no more calls and wait for those in progress. Other requests are left to a successor."""
        self._pausing = True
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=timeout_s)
        for call in tuple(self._calls):
            call.cancel()

    def snapshot(self, epoch: int, at_ns: int, positions: Mapping[str, int]) -> PipelineSnapshot:
        """The pipeline now, at ``at_ns``."""
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
