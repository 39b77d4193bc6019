"""The pipeline manager of one run, put together: connector, flow, calls, outcomes, Results, snapshots."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from functions.dataflow.calls import Answer, call
from functions.dataflow.connectors.connector import Connector
from functions.dataflow.flow import Flow, Patience
from functions.dataflow.graph import Pipeline
from functions.dataflow.http import HttpPool
from functions.dataflow.outbox import ResultOutbox
from functions.dataflow.publisher import SnapshotPublisher, interval_at
from functions.dataflow.replicas import watch
from functions.dataflow.request import Request
from functions.dataflow.settlement import Counts, Settlement
from penstock.functions import EPOCH_S, PipelineSnapshot
from penstock.records import Outcome, Result
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.signing import Signer

log = logging.getLogger(__name__)

MOST_INSIDE: Final = 100_000
"""Requests in the pipeline at most; what comes then waits at its source."""
WATCH_S: Final = 0.2
"""How often the gateway is asked for replicas, at speed 1."""
GRACE_S: Final = 10.0
"""How long calls under way are waited for at the end."""

SETTLE_S: Final = 3.0
"""How long outcomes may take to be written down at the end; what is not will be delivered again."""

T = TypeVar("T")

MakeConnector = Callable[[Mapping[str, int]], Connector]
"""Given the positions that a predecessor has left."""


class PipelineManager:
    """``run`` ends after ``stop``, or with the first part that fails. ``ready`` is called when requests are taken."""

    def __init__(
        self,
        spec: RunSpec,
        pipeline: Pipeline,
        endpoints: Endpoints,
        make_connector: MakeConnector,
        patience: Patience | None = None,
    ) -> None:
        self.spec, self.pipeline = spec, pipeline
        self._make_connector = make_connector
        self._patience = patience or Patience()
        self._signer = Signer(endpoints.signing_key_bytes(), spec.run)
        gateway = endpoints.require("gateway")
        self._pools = {name: HttpPool(gateway) for name in pipeline.names}
        self._control = HttpPool(gateway)
        self._redis_url = endpoints.require("redis")
        self._outbox = ResultOutbox(endpoints.require("kafka"), spec.results_topic, f"{spec.run}-dataflow")
        self._settlement: Settlement | None = None
        self._flow: Flow | None = None
        self._stopping = asyncio.Event()

    @property
    def flow(self) -> Flow:
        """The pipeline at work; there once ``ready`` was called."""
        assert self._flow is not None
        return self._flow

    def stop(self) -> None:
        """Finish the calls under way, write down what has left, go. In the event loop."""
        self._stopping.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until told to stop."""
        # In the event loop that its connections belong to.
        settlement = self._settlement = Settlement(
            self._redis_url, self.spec.run, self.spec.ledger_key, self._settled, self._recount
        )
        publisher = SnapshotPublisher(
            settlement.redis,
            self.spec.run,
            self._snapshot,
            interval_s=interval_at(self.spec.speed),
            phase_s=self.spec.tick_phase_s,
        )
        try:
            counts = await self._unless_stopped(settlement.counts())
            if counts is None:
                return
            before = await publisher.predecessor()
            self._flow = flow = Flow(
                self.pipeline,
                self,
                self._signer,
                label=self.spec.fleet,
                patience=self._patience,
                connections=max(1, self.spec.initial_replicas),
                epoch_s=EPOCH_S / self.spec.speed,
                before=before,
                finished=counts.finished,
                missed=counts.missed,
            )
            self._connector = self._make_connector(before.positions if before is not None else {})
            if before is not None:
                log.info("going on after %d requests, %d of them finished", before.arrived, counts.finished)
            parts = [
                self._outbox.run(),
                settlement.run(),
                publisher.run(),
                watch(self._control, self.pipeline.names, flow.connect, WATCH_S / self.spec.speed),
            ]
            await self._work(parts, ready)
            await publisher.publish()
        finally:
            await settlement.close()
            for pool in (*self._pools.values(), self._control):
                pool.close()

    async def _work(self, parts: Sequence[Awaitable[None]], ready: Callable[[], None]) -> None:
        """Everything at once, until told to stop or until a part ends, which none does by itself."""
        running = [asyncio.ensure_future(part) for part in parts]
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stopping.wait())
        try:
            source = await self._connector.start(self.flow.receive, lambda: self.flow.inside >= MOST_INSIDE)
            ready()
            done, _ = await asyncio.wait((stopped, source, *running), return_when=asyncio.FIRST_COMPLETED)
            await self._connector.pause()
            if stopped in done:
                await self.flow.pause(GRACE_S)
                await self._settled_all()
                await self._outbox.flush()
            for part in done - {stopped}:
                part.result()
        finally:
            for task in (stopped, *running):
                task.cancel()
            await asyncio.gather(stopped, *running, return_exceptions=True)
            await self._connector.stop()

    # --- the flow's ports --------------------------------------------------------------------------------------------

    def call(self, function: str, body: bytes, event: int, deadline_ns: int) -> Awaitable[Answer]:
        """Through the gateway."""
        return call(
            self._pools[function],
            function,
            body,
            event=event,
            deadline_ns=deadline_ns,
            timeout_s=self._patience.timeout_s,
        )

    def settle(self, request: Request) -> None:
        """In Redis."""
        assert self._settlement is not None
        self._settlement.put(request)

    def publish(self, result: Result, out: Callable[[], None]) -> None:
        """To the run's results topic."""
        self._outbox.publish(result, out)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """What is waited for, or None once told to stop."""
        task, stopped = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not task.done():
            task.cancel()
            return None
        return task.result()

    async def _settled_all(self) -> None:
        assert self._settlement is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settlement.join(), SETTLE_S)

    def _settled(self, request: Request, attempt: int, outcome: Outcome) -> None:
        self.flow.settled(request, attempt, outcome)

    def _recount(self, counts: Counts) -> None:
        self.flow.finished, self.flow.missed = counts

    def _snapshot(self, epoch: int, at_ns: int) -> PipelineSnapshot:
        return self.flow.snapshot(epoch, at_ns, dict(self._connector.positions()))
