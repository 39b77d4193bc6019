"""The pipeline manager of one run: connector, flow, calls, outcomes, Results, snapshots."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from functions.dataflow.calls import Answer, call
from functions.dataflow.connectors.connector import Connector
from functions.dataflow.flow import Flow, Patience
from functions.dataflow.graph import Pipeline
from functions.dataflow.http import HttpPool
from functions.dataflow.publisher import SnapshotPublisher
from functions.dataflow.replicas import watch
from functions.dataflow.settlement import Settlement
from penstock.adapters.result_topic import ResultTopic
from penstock.function_messages import EPOCH_S, PipelineSnapshot
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.signing import Signer

log = logging.getLogger(__name__)

MOST_INSIDE: Final = 100_000
"""Limit of requests in the pipeline; further ones wait at their source."""
MOST_UNPUBLISHED: Final = 2_000_000
"""Results; more than all requests inside can have: publishing would wait, and the event loop with it."""
LINGER_MS: Final = 5
"""How long a Result may wait for others to share a request with."""
REPORTS_S: Final = 0.01
"""Interval of taking in delivery reports of Results."""
WATCH_S: Final = 0.2
"""Interval of polling the gateway for replicas, at speed 1."""
GRACE_S: Final = 10.0
"""Longest wait for calls in progress at the end."""
SETTLE_S: Final = 3.0
"""Longest wait for recording outcomes at the end; unrecorded requests are delivered again."""
PUBLISH_S: Final = 5.0
"""Longest wait for publishing Results at the end."""

MakeConnector = Callable[[Mapping[str, int]], Connector]
"""Called with the positions of a predecessor."""


class PipelineManager:
    """``run`` returns after ``stop`` or when a part fails. It calls ``ready`` when it takes requests; ``flow`` and
    ``connector`` exist from then on.
    """

    flow: Flow
    connector: Connector

    def __init__(
        self, spec: RunSpec, pipeline: Pipeline, endpoints: Endpoints, make_connector: MakeConnector, patience: Patience
    ) -> None:
        self.spec, self.pipeline = spec, pipeline
        self._make_connector, self._patience = make_connector, patience
        self._signer = Signer(endpoints.signing_key_bytes(), spec.run)
        gateway = endpoints.require("gateway")
        self._pools = {name: HttpPool(gateway) for name in pipeline.names}
        self._control = HttpPool(gateway)
        self._redis_url = endpoints.require("redis")
        self._results = ResultTopic(
            *(endpoints.require("kafka"), spec.results_topic, f"{spec.run}-dataflow", LINGER_MS),
            most_waiting=MOST_UNPUBLISHED,
        )
        self._stopping = asyncio.Event()
        self.stop = self._stopping.set
        """Finish the calls in progress, record outcomes, return from ``run``. Called in the event loop."""

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until ``stop``."""
        spec = self.spec
        settlement = Settlement(self._redis_url, spec.run, spec.ledger_key)  # its connections are of this event loop
        publisher = SnapshotPublisher(settlement.redis, spec, self._snapshot)
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stopping.wait())
        past = asyncio.gather(settlement.counts(), settlement.retried(publisher.predecessor))
        try:
            await asyncio.wait((past, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not past.done():
                return
            (finished, missed), (before, _) = past.result()
            self.flow = Flow(
                self.pipeline,
                self._signer,
                call=self._call,
                settle=settlement.put,
                publish=self._results.publish,
                label=spec.fleet,
                patience=self._patience,
                connections=max(1, spec.initial_replicas),
                epoch_s=EPOCH_S / spec.speed,
                before=before,
                finished=finished,
                missed=missed,
            )
            self.connector = self._make_connector(before.positions if before is not None else {})
            if before is not None:
                log.info("continuing after %d requests, %d of them finished", before.arrived, finished)
            parts = (
                self._take_reports(),
                settlement.run(self.flow),
                publisher.run(),
                watch(self._control, self.pipeline.names, self.flow.connect, WATCH_S / spec.speed),
            )
            await self._work(parts, stopped, settlement, ready)
            await publisher.publish()
        finally:
            past.cancel()
            stopped.cancel()
            await settlement.close()
            for pool in (*self._pools.values(), self._control):
                pool.close()

    async def _work(
        self,
        parts: Sequence[Awaitable[None]],
        stopped: "asyncio.Future[Any]",
        settlement: Settlement,
        ready: Callable[[], None],
    ) -> None:
        """Run all parts until ``stop`` or until one fails."""
        running = [asyncio.ensure_future(part) for part in parts]
        try:
            source = await self.connector.start(self.flow.receive, lambda: self.flow.inside >= MOST_INSIDE)
            ready()
            done, _ = await asyncio.wait((stopped, source, *running), return_when=asyncio.FIRST_COMPLETED)
            await self.connector.pause()
            if stopped in done:
                await self.flow.pause(GRACE_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(settlement.join(), SETTLE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PUBLISH_S):
                        while self._results.outstanding:
                            await asyncio.sleep(REPORTS_S)
            for part in done:
                part.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self.connector.stop()

    def _call(self, function: str, body: bytes, event: int, deadline_ns: int) -> Awaitable[Answer]:
        """Call through the gateway."""
        timeout_s = self._patience.timeout_s
        return call(self._pools[function], function, body, event=event, deadline_ns=deadline_ns, timeout_s=timeout_s)

    async def _take_reports(self) -> None:
        """Take in delivery reports until cancelled: nothing here waits for the broker."""
        while True:
            self._results.poll(0)
            await asyncio.sleep(REPORTS_S)

    def _snapshot(self, epoch: int, at_ns: int) -> PipelineSnapshot:
        return self.flow.snapshot(epoch, at_ns, self.connector.positions())
