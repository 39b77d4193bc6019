"""The plan service: how the members of a consumer group learn of plans and tell where they are.

A small starlette application on uvicorn in a thread of the controller. The HTTP interface is described in
``penstock.plan`` (``PlanNotice``, ``MemberReport``, ``ReplicaName``); ``PlanService`` is also the thread-safe door to
the board for loop and actuator.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from controller.plans import BoardState, PendingPlan, PlanBoard
from penstock.contracts import Groups, Phase, ReplicaEvent
from penstock.errors import PenstockError
from penstock.listening import listen, port_of
from penstock.plan import MemberPhase, MemberReport, Plan, PlanNotice, ReplicaName

LONGEST_WAIT_S = 60.0
START_TIMEOUT_S = 10.0

REPLICA_PHASES: Mapping[MemberPhase, Phase] = {
    "started": "started",
    "joined": "joined",
    "first-event": "first-event",
    "leaving": "draining",
}
"""What a member's report means for its replica. ``joining`` and ``left`` add nothing: the actuator sees the end."""


class PlanService:
    """Serves one group's plan board over HTTP; every method may be called from any thread.

    >>> service = PlanService(PlanBoard(join_timeout_s=5), group=spec.group, fleet=spec.fleet, url=endpoints.controller)
    >>> service.start()                                          # PenstockError if the port is taken
    >>> service.propose(((0, 1, 2), (3, 4)), ["payments-0", "payments-1"], now_s=12.1)
    >>> service.tick(13.1)                                       # each tick: time-outs of proposals
    >>> service.events()                                         # ReplicaEvents since the last call, in order
    >>> service.stop()

    Port 0 in ``url`` takes a free one; ``url`` then tells which.
    """

    def __init__(self, board: PlanBoard, *, group: str, fleet: str, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise PenstockError(f"controller URL {url!r}: expected http://host:port (PENSTOCK_CONTROLLER)")
        self.group = group
        self.fleet = fleet
        self._host = parts.hostname
        self._port = parts.port or 0
        self._board = board
        self._lock = threading.RLock()
        self._changed_ns = time.time_ns()
        self._events: deque[ReplicaEvent] = deque()
        self._told = {replica: _phases_until(phase) for replica, phase in board.phases.items()}
        self._replicas: dict[str, str] = {}
        self._answered: set[str] = set()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None

    # --- life ------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Base URL that members are given as ``Endpoints.controller``."""
        return f"http://{self._host}:{self._port}"

    def start(self) -> None:
        """Bind and serve in a thread; returns when requests are answered. PenstockError if the address can't be had."""
        listener = listen(self._host, self._port, "set PENSTOCK_CONTROLLER to a free address")
        self._port = port_of(listener)
        config = uvicorn.Config(
            self._application(), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="plan-service", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise PenstockError(f"the plan service did not start at {self.url}: see the controller's log")
            time.sleep(0.005)

    def stop(self) -> None:
        """Answer those who wait, close, and end the thread. Nothing to do if it does not run."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._notify()
        self._thread.join()
        self._server = self._thread = None

    # --- what loop and actuator use ---------------------------------------------------------------------------------

    def propose(self, groups: Groups, members: Collection[str], now_s: float) -> None:
        """See ``PlanBoard.propose``. ``now_s`` on the same clock as ``tick``."""
        with self._changing() as board:
            board.propose(groups, members, now_s)

    def tick(self, now_s: float) -> None:
        """See ``PlanBoard.tick``."""
        with self._changing() as board:
            board.tick(now_s)

    def forget(self, replica: str) -> None:
        """A replica's process is gone: nobody waits for it any longer. A successor of that name starts afresh."""
        with self._changing() as board:
            board.forget(replica)
            self._told.pop(replica, None)

    def introduce(self, process: str, replica: str) -> None:
        """The process that knows itself as ``process`` (a pod, by its name) is this replica: it may ask for that."""
        with self._lock:
            if self._replicas.get(process) == replica:
                return
            self._replicas[process] = replica
        self._notify()

    def answer(self, process: str) -> str | None:
        """The replica that a process is which asks; None while it is none."""
        with self._lock:
            replica = self._replicas.get(process)
            if replica is not None:
                self._answered.add(process)
        return replica

    def heard(self, process: str) -> bool:
        """Whether this process has asked who it is and knows it: so it runs, or has run."""
        with self._lock:
            return process in self._answered

    def events(self) -> list[ReplicaEvent]:
        """What members reported since the last call as steps in the life of replicas (started, joined, first-event,
        draining), each step of a replica once, in order of arrival.
        """
        with self._lock:
            drained = list(self._events)
            self._events.clear()
        return drained

    def snapshot(self) -> BoardState:
        """The board's state for the journal."""
        with self._lock:
            return self._board.snapshot()

    @property
    def current(self) -> Plan | None:
        """The plan in force."""
        with self._lock:
            return self._board.current

    @property
    def pending(self) -> PendingPlan | None:
        """The proposal that waits for members."""
        with self._lock:
            return self._board.pending

    @property
    def groups(self) -> Groups:
        """The grouping that was last asked for."""
        with self._lock:
            return self._board.groups

    @property
    def serial(self) -> int:
        """Grows whenever the members should rejoin."""
        with self._lock:
            return self._board.serial

    @property
    def phases(self) -> dict[str, MemberPhase]:
        """Each member's phase as it last reported it."""
        with self._lock:
            return self._board.phases

    @property
    def last_rebalance_ns(self) -> int | None:
        """When the group last reached a new generation, nanoseconds since the epoch."""
        with self._lock:
            return self._board.last_rebalance_ns

    def assigned(self) -> dict[str, tuple[int, ...]]:
        """The partitions that each present member reported to hold."""
        with self._lock:
            return self._board.assigned()

    # --- HTTP ------------------------------------------------------------------------------------------------------

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz", self._get_health),
                Route("/groups/{group}/plan", self._get_plan),
                Route("/groups/{group}/members/{replica}", self._post_member, methods=["POST"]),
                Route("/groups/{group}/replicas/{process}", self._get_replica),
            ]
        )

    async def _get_health(self, request: Request) -> Response:
        del request
        return _json({"group": self.group, "serial": self.serial})

    async def _get_plan(self, request: Request) -> Response:
        if (refusal := self._refuse(request)) is not None:
            return refusal
        try:
            after = int(request.query_params.get("after", "-1"))
            deadline = time.monotonic() + _wait_s(request)
        except ValueError:
            return _text(400, f"{request.url.query}: after is a serial (integer), wait_s a number of seconds")
        while True:
            wake = self._wake
            notice = self._notice()
            # A serial beyond ours was given out by a predecessor of this controller: its holder must look again too.
            remaining_s = deadline - time.monotonic()
            if notice.serial != after or remaining_s <= 0 or wake is None or self._stopping:
                return _json(notice)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), remaining_s)

    async def _get_replica(self, request: Request) -> Response:
        if (refusal := self._refuse(request)) is not None:
            return refusal
        process = str(request.path_params["process"])
        try:
            deadline = time.monotonic() + _wait_s(request)
        except ValueError:
            return _text(400, f"{request.url.query}: wait_s is a number of seconds")
        while True:
            wake = self._wake
            replica = self.answer(process)
            remaining_s = deadline - time.monotonic()
            if replica is not None:
                return _json(ReplicaName(replica))
            if remaining_s <= 0 or wake is None or self._stopping:
                return _text(404, f"{process} is no replica of {self.fleet} so far")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), remaining_s)

    async def _post_member(self, request: Request) -> Response:
        if (refusal := self._refuse(request)) is not None:
            return refusal
        replica = str(request.path_params["replica"])
        try:
            report = msgspec.json.decode(await request.body(), type=MemberReport)
        except msgspec.DecodeError as error:
            return _text(400, f"{replica}: not a member report: {error}")
        self.report(replica, report)
        return Response(status_code=204)

    def report(self, replica: str, report: MemberReport) -> None:
        """What ``POST /groups/{group}/members/{replica}`` does."""
        with self._changing() as board:
            board.report(replica, report)
            phase = REPLICA_PHASES.get(report.phase)
            told = self._told.setdefault(replica, set())
            if report.phase == "started":
                told.clear()
            if phase is not None and phase not in told:
                told.add(phase)
                self._events.append(ReplicaEvent(self.fleet, replica, phase, report.at_ns, report.fallback))

    def _refuse(self, request: Request) -> Response | None:
        group = request.path_params["group"]
        if group == self.group:
            return None
        return _text(404, f"unknown group {group!r}: this controller serves {self.group!r}")

    # --- inside ----------------------------------------------------------------------------------------------------

    def _notice(self) -> PlanNotice:
        with self._lock:
            return PlanNotice(serial=self._board.serial, plan=self._board.current, at_ns=self._changed_ns)

    @property
    def _stopping(self) -> bool:
        return self._server is None or self._server.should_exit

    @contextlib.contextmanager
    def _changing(self) -> Iterator[PlanBoard]:
        """The board under lock; whoever waits for a new serial is woken if there is one."""
        with self._lock:
            before = self._board.serial
            yield self._board
            grown = self._board.serial != before
            if grown:
                self._changed_ns = time.time_ns()
        if grown:
            self._notify()

    def _notify(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop closed between the look and the call
                loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        """Wake everybody who waits now; those who come later wait for the next change."""
        if self._wake is not None:
            self._wake.set()
        self._wake = asyncio.Event()

    def _serve(self, listener: socket.socket) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._wake = asyncio.Event()
            if self._server is not None:
                await self._server.serve(sockets=[listener])

        try:
            asyncio.run(main())
        finally:
            self._loop = self._wake = None
            listener.close()


def _phases_until(phase: MemberPhase) -> set[Phase]:
    """The steps that a member known from before (a restored board) has already told of."""
    order = list(REPLICA_PHASES)
    return {REPLICA_PHASES[step] for step in order[: order.index(phase) + 1]} if phase in order else {"started"}


def _wait_s(request: Request) -> float:
    """How long the answer may wait. ValueError if that is no number."""
    return min(LONGEST_WAIT_S, max(0.0, float(request.query_params.get("wait_s", "0"))))


def _json(record: object) -> Response:
    return Response(msgspec.json.encode(record), media_type="application/json")


def _text(status: int, message: str) -> Response:
    return Response(message + "\n", status_code=status, media_type="text/plain")
