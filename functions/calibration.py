"""Calibration of a pipeline: service rate μ of one replica (the target of RPS) and totalEstimate (AMESoS).

Tsenos, Peri, Kalogeraki, DEBS 2022: a load generator measures the target load of RPS on one replica (section 6.2);
totalEstimate is the time of a request that never waits (section 3.2). Each function is deployed with one replica, as in
runs, and once more without its service floor.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle, islice
from typing import Final

import msgspec
import numpy as np

from functions.dataflow.calls import Answer, call
from functions.dataflow.graph import Pipeline
from functions.dataflow.http import LOST, HttpPool, NotConnectedError, Reply
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.measures import percentiles_s
from penstock.openfaas import RUN, DeleteRequest, DeployedFunction, deployment
from penstock.systems import FunctionSpec, FunctionSystem

Progress = Callable[[str], None]

PREFIX: Final = "calibrate-"
BARE: Final = "-work"
"""Suffix of a function without its service floor."""
CALLERS: Final = 2
"""Concurrent callers: while one request is in the replica, the next one waits at the gateway."""
WARM_UP: Final = 3
"""Calls of each function, and requests of the pipeline, that are not counted."""
LEAST_REQUESTS: Final = 5
WORK_CALLS: Final = 50
READY_S: Final = 120.0
CALL_S: Final = 60.0
ANSWER_S: Final = 10.0
POLL_S: Final = 0.05


class Times(msgspec.Struct, frozen=True):
    """Mean and nearest-rank percentiles of durations."""

    count: int
    mean_s: float
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, values_s: Sequence[float]) -> "Times":
        """Times of at least one value."""
        p50, p99 = percentiles_s(np.asarray(values_s), (50.0, 99.0))
        return cls(len(values_s), float(np.mean(values_s)), float(p50), float(p99))


class FunctionCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """One function on one replica. ``work``: handler without the floor. ``service``: time in the replica, floor
    included. ``service_rate_per_s``: answers per second of a saturated replica, overhead between requests included.
    """

    name: str
    floor_s: float
    work: Times
    service: Times
    service_rate_per_s: float


class PipelineCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """``total_estimate_s``: sum of mean service times on the longest path. ``whole``: single requests from the first
    call to the last answer. ``call_s``: mean overhead of a call on the longest path (``FunctionSystem.call_s``).
    """

    pipeline: str
    deadline_s: float
    functions: tuple[FunctionCalibration, ...]
    total_estimate_s: float
    whole: Times
    call_s: float


def calibrate_pipeline(
    gateway: str,
    name: str,
    system: FunctionSystem,
    payloads: Sequence[bytes],
    *,
    seconds: float,
    seed: int = 1,
    tell: Progress = lambda _: None,
) -> PipelineCalibration:
    """Measure a pipeline behind ``gateway`` (http://user:password@host:port), ``seconds`` per function and for the
    whole. PenstockError without a gateway, for a function that does not start, and for a failed call.
    """
    calibration = _Calibration(gateway, Pipeline.of_system(name, system), system, seed, tell)
    return asyncio.run(calibration.run(payloads, seconds))


class _Calibration:
    """One calibration."""

    def __init__(self, gateway: str, pipeline: Pipeline, system: FunctionSystem, seed: int, tell: Progress) -> None:
        self._pool = HttpPool(gateway)
        self._pipeline, self._seed, self._tell = pipeline, seed, tell
        self._system = msgspec.structs.replace(system, when_busy="queue", cold_start_s=0.0)

    async def run(self, payloads: Sequence[bytes], seconds: float) -> PipelineCalibration:
        functions = self._pipeline.graph.functions
        async with AsyncExitStack() as stack:
            stack.callback(self._pool.close)
            self._tell(f"deploying {', '.join(self._pipeline.names)}")
            for function in functions:
                await stack.enter_async_context(self._deployed(function, PREFIX + function.name))
            for function in functions:
                await self._ready(PREFIX + function.name)
            self._tell(f"requests through {self._pipeline.name}, one at a time, for {seconds:g} s")
            whole, inputs = await self._whole(payloads, seconds)
            found = []
            for i, function in enumerate(functions):
                self._tell(f"{function.name}, one replica that is never idle, for {seconds:g} s")
                found.append(await self._function(function, [bodies[i] for bodies in inputs], seconds))
        calls_on_longest_path = Graph([msgspec.structs.replace(each, service_time_s=1.0) for each in functions]).total_s
        measured = [
            msgspec.structs.replace(function, service_time_s=each.service.mean_s)
            for function, each in zip(functions, found, strict=True)
        ]
        return PipelineCalibration(
            pipeline=self._pipeline.name,
            deadline_s=self._pipeline.deadline_s,
            functions=tuple(found),
            total_estimate_s=Graph(measured).total_s,
            whole=whole,
            call_s=max(0.0, (whole.mean_s - self._pipeline.graph.total_s) / calls_on_longest_path),
        )

    # --- measurements ------------------------------------------------------------------------------------------------

    async def _whole(self, payloads: Sequence[bytes], seconds: float) -> tuple[Times, list[dict[int, bytes]]]:
        """Response times of sequential requests, and the input of each function."""
        took_s: list[float] = []
        inputs: list[dict[int, bytes]] = []
        source = cycle(payloads)
        for payload in islice(source, WARM_UP):
            await self._request(payload)
        until_s = time.monotonic() + seconds
        while len(took_s) < LEAST_REQUESTS or time.monotonic() < until_s:
            began_s = time.monotonic()
            bodies = await self._request(next(source))
            took_s.append(time.monotonic() - began_s)
            if len(inputs) < len(payloads):
                inputs.append(bodies)
        return Times.of(took_s), inputs

    async def _request(self, payload: bytes) -> dict[int, bytes]:
        """Send one request through all functions, branches concurrently; return the input of each function."""
        results, bodies = {-1: payload}, {}
        tasks: list[asyncio.Task[None]] = []

        async def function(i: int) -> None:
            for j in self._pipeline.graph.before[i]:
                await tasks[j]
            bodies[i] = self._pipeline.body(i, results)
            results[i] = (await self._call(PREFIX + self._pipeline.names[i], bodies[i])).body

        tasks += [asyncio.create_task(function(i)) for i in range(len(self._pipeline.names))]
        await asyncio.gather(*tasks)
        return bodies

    async def _function(self, function: FunctionSpec, bodies: Sequence[bytes], seconds: float) -> FunctionCalibration:
        """Measure one function: saturated, then without its floor, one call at a time."""
        service_s, rate_per_s = await self._saturated(PREFIX + function.name, bodies, seconds)
        bare, name = msgspec.structs.replace(function, service_time_s=0.0), PREFIX + function.name + BARE
        async with self._deployed(bare, name):
            await self._ready(name)
            work_s = [_service_s(await self._call(name, body)) for body in islice(cycle(bodies), WARM_UP + WORK_CALLS)]
        return FunctionCalibration(
            name=function.name,
            floor_s=function.service_time_s,
            work=Times.of(work_s[WARM_UP:]),
            service=Times.of(service_s),
            service_rate_per_s=rate_per_s,
        )

    async def _saturated(self, name: str, bodies: Iterable[bytes], seconds: float) -> tuple[list[float], float]:
        """Service times, and answers per second between the first counted answer and the last."""
        source = cycle(bodies)
        service_s: list[float] = []
        answered_s: list[float] = []
        until_s = time.monotonic() + seconds

        async def caller() -> None:
            while len(answered_s) < WARM_UP + LEAST_REQUESTS or time.monotonic() < until_s:
                answer = await self._call(name, next(source))
                answered_s.append(time.monotonic())
                service_s.append(_service_s(answer))

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        counted_s = answered_s[WARM_UP:]
        return service_s[WARM_UP:], (len(counted_s) - 1) / (counted_s[-1] - counted_s[0])

    async def _call(self, name: str, body: bytes) -> Answer:
        answer = await call(self._pool, name, body, event=0, deadline_ns=0, timeout_s=CALL_S)
        if answer.verdict != "done":
            raise PenstockError(f"{name.removeprefix(PREFIX)}: a call failed: {answer.reason}")
        return answer

    # --- functions ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _deployed(self, function: FunctionSpec, name: str) -> AsyncIterator[None]:
        """Deploy the function under that name, in place of one left by a killed calibration."""
        made = deployment(
            function, self._system, replicas=1, max_replicas=1, seed=self._seed, run="calibration", environment={}
        )
        wanted = msgspec.structs.replace(made, service=name)
        await self._remove(name)
        try:
            await self._ask("POST", "/system/functions", wanted, accepted=(200, 202))
            yield
        finally:
            await self._remove(name)

    async def _ready(self, name: str) -> None:
        late = f"{name}: no replica after {READY_S:g} s; see the gateway's log"
        await self._until(name, lambda found: found is not None and found.available_replicas > 0, late)

    async def _remove(self, name: str) -> None:
        """Delete a function of a calibration and await its end, which OpenFaaS reports late. PenstockError for one that
        Penstock has not deployed, which stays as it is.
        """
        found = await self._found(name)
        if found is None:
            return
        if RUN not in (found.annotations or {}):
            raise PenstockError(f"{name}: a function of that name, not deployed by Penstock, is on the gateway")
        await self._ask("DELETE", "/system/functions", DeleteRequest(function_name=name), accepted=(200, 202, 404))
        await self._until(name, lambda found: found is None, f"{name}: not removed after {READY_S:g} s")

    async def _until(self, name: str, condition: Callable[[DeployedFunction | None], bool], late: str) -> None:
        until_s = time.monotonic() + READY_S
        while not condition(await self._found(name)):
            if time.monotonic() > until_s:
                raise PenstockError(late)
            await asyncio.sleep(POLL_S)

    async def _found(self, name: str) -> DeployedFunction | None:
        """The function, None if the gateway does not have it."""
        reply = await self._ask("GET", f"/system/function/{name}", accepted=(200, 404))
        return msgspec.json.decode(reply.body, type=DeployedFunction) if reply.status == 200 else None

    async def _ask(
        self, method: str, path: str, body: msgspec.Struct | None = None, *, accepted: tuple[int, ...]
    ) -> Reply:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        try:
            reply = await self._pool.call(method, path, content, headers, timeout_s=ANSWER_S, authorised=True)
        except NotConnectedError as error:
            raise PenstockError(
                f"there is no gateway at {error}; start it with `penstock up`, or check PENSTOCK_GATEWAY"
            ) from None
        except (TimeoutError, *LOST) as error:
            raise PenstockError(f"the gateway does not answer {method} {path}: {type(error).__name__}") from None
        if reply.status not in accepted:
            said = " ".join(reply.body.decode(errors="replace").split())
            raise PenstockError(f"the gateway answers {reply.status} to {method} {path}: {said}")
        return reply


def _service_s(answer: Answer) -> float:
    if answer.busy_ns is None:
        raise PenstockError("the gateway does not report the processing time of a call")
    return answer.busy_ns / NANOS_PER_SECOND
