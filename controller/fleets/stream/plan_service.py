"""The plan service: members of a consumer group fetch plans and report their phases over HTTP.

A small starlette application on uvicorn in a thread of the controller. The HTTP interface is described in
``penstock.plan`` (``PlanNotice``, ``MemberReport``, ``ReplicaName``); monitor and actuator use ``PlanService`` as the
thread-safe access to the planner.
"""

import asyncio
import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from controller.fleets.stream.assignment import AssignmentPlanner
from penstock.adapters.http_server import MOST_CONNECTIONS, configuration, read_body
from penstock.contracts import Groups
from penstock.errors import PenstockError
from penstock.event_wait import set_within
from penstock.plan import MemberReport, PlanNotice, ReplicaName
from penstock.records import read_record
from penstock.sockets import listen

LONGEST_WAIT_S = 60.0
START_TIMEOUT_S = 10.0
MOST_MEMBERS = 10_000
"""Names that may report; a fleet is far smaller."""
MOST_EPOCHS_AHEAD = 1_000_000
"""A member may know plans of a predecessor, but no epoch at which the next one would not fit into 64 bits."""
LARGEST_REPORT_BYTES = 1_048_576
REPORT = msgspec.json.Decoder(MemberReport)

FoundT = TypeVar("FoundT")


class PlanService:
    """Serves one group's plans over HTTP, from ``start`` to ``stop``; its methods may be called from any thread. Port 0
    in ``url`` takes a free one, which ``url`` then has.
    """

    def __init__(self, planner: AssignmentPlanner, *, group: str, fleet: str, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise PenstockError(f"controller URL {url!r}: expected http://host:port (PENSTOCK_CONTROLLER)")
        self.group, self.fleet = group, fleet
        self._host, self._port = parts.hostname, parts.port or 0
        self._planner = planner
        self._lock = threading.RLock()
        self._changed_ns = time.time_ns()
        self._replicas: dict[str, str] = {}
        self._answered: set[str] = set()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._polling = 0

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Base URL that members are given as ``Endpoints.controller``."""
        return f"http://{self._host}:{self._port}"

    def start(self) -> None:
        """Bind and serve in a thread; returns when requests are answered. PenstockError if the address can't be had."""
        listener, self._port = listen(self._host, self._port, "set PENSTOCK_CONTROLLER to a free address")
        self._server = uvicorn.Server(configuration(self._application(), timeout_graceful_shutdown=2))
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="plan-service", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise PenstockError(f"the plan service did not start at {self.url}: see the controller's log")
            time.sleep(0.005)

    def stop(self) -> None:
        """Answer waiting requests, close, and end the thread; without effect if it does not run."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._notify()
        self._thread.join()
        self._server = self._thread = None

    # --- for loop and actuator ---------------------------------------------------------------------------------

    def propose(self, groups: Groups, members: Collection[str], now_s: float) -> None:
        """See ``AssignmentPlanner.propose``. ``now_s`` on the same clock as ``tick``."""
        with self._changing() as planner:
            planner.propose(groups, members, now_s)

    def tick(self, now_s: float) -> None:
        """See ``AssignmentPlanner.tick``."""
        with self._changing() as planner:
            planner.tick(now_s)

    def forget(self, replica: str, before_ns: float = math.inf) -> None:
        """See ``AssignmentPlanner.forget``."""
        with self._changing() as planner:
            planner.forget(replica, before_ns)

    def report(self, replica: str, report: MemberReport) -> None:
        """See ``AssignmentPlanner.report``."""
        with self._changing() as planner:
            planner.report(replica, report)

    def assign_identity(self, process: str, replica: str) -> None:
        """Assign a replica to ``process`` (a pod, by its name), which asks for it."""
        with self._lock:
            if self._replicas.get(process) == replica:
                return
            self._replicas[process] = replica
        self._notify()

    def identity(self, process: str) -> str | None:
        """The replica of a process that asks; None before it has one."""
        with self._lock:
            replica = self._replicas.get(process)
            if replica is not None:
                self._answered.add(process)
        return replica

    def knows_replica(self, process: str) -> bool:
        """Whether this process has received its replica name: it runs, or has run."""
        with self._lock:
            return process in self._answered

    def snapshot(self) -> AssignmentPlanner:
        """A copy of the planner."""
        with self._lock:
            return self._planner.copy()

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
        return _json({"group": self.group, "serial": self._notice().serial})

    async def _get_plan(self, request: Request) -> Response:
        self._check_group(request)
        try:
            after = int(request.query_params.get("after", "-1"))
        except ValueError:
            raise _refusal(400, f"{request.url.query}: after is a serial (integer)") from None

        def newer() -> PlanNotice | None:
            # A predecessor of this controller issued a greater serial: its holder must look again, too.
            notice = self._notice()
            return notice if notice.serial != after else None

        return _json(await self._poll(request, newer) or self._notice())

    async def _get_replica(self, request: Request) -> Response:
        self._check_group(request)
        process = str(request.path_params["process"])
        replica = await self._poll(request, lambda: self.identity(process))
        if replica is None:
            raise _refusal(404, f"{process} is no replica of {self.fleet} so far")
        return _json(ReplicaName(replica))

    async def _post_member(self, request: Request) -> Response:
        self._check_group(request)
        replica = str(request.path_params["replica"])
        try:
            report = read_record(REPORT, await read_body(request, LARGEST_REPORT_BYTES))
        except msgspec.DecodeError as error:
            raise _refusal(400, f"{replica}: not a member report: {error}") from None
        with self._lock:
            known, newest = self._planner.steps, self._planner.highest_epoch
        if replica not in known and len(known) >= MOST_MEMBERS:
            raise _refusal(429, f"{replica}: {MOST_MEMBERS} members have reported; no more are taken")
        if report.epoch > newest + MOST_EPOCHS_AHEAD:
            raise _refusal(400, f"{replica}: no controller of this group has issued epoch {report.epoch}")
        self.report(replica, report)
        return Response(status_code=204)

    def _check_group(self, request: Request) -> None:
        group = request.path_params["group"]
        if group != self.group:
            raise _refusal(404, f"unknown group {group!r}: this controller serves {self.group!r}")

    async def _poll(self, request: Request, find: Callable[[], FoundT | None]) -> FoundT | None:
        """The first result of ``find``, which is called at each change for ``wait_s`` at most; None without one. While
        too many wait already, the answer is of now.
        """
        try:
            wait_s = min(LONGEST_WAIT_S, max(0.0, float(request.query_params.get("wait_s", "0"))))
        except ValueError:
            raise _refusal(400, f"{request.url.query}: wait_s is a number of seconds") from None
        deadline = time.monotonic() + wait_s
        while True:
            wake = self._wake
            found = find()
            remaining_s = deadline - time.monotonic()
            stopping = self._server is None or self._server.should_exit
            if found is not None or remaining_s <= 0 or wake is None or stopping or self._polling >= MOST_CONNECTIONS:
                return found
            self._polling += 1  # also of clients that have gone: their requests end with the wait
            try:
                await set_within(wake, remaining_s)
            finally:
                self._polling -= 1

    def _notice(self) -> PlanNotice:
        with self._lock:
            return PlanNotice(serial=self._planner.serial, plan=self._planner.current, at_ns=self._changed_ns)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[AssignmentPlanner]:
        """The planner under lock; a new serial wakes the requests that wait for one."""
        with self._lock:
            before = self._planner.serial
            yield self._planner
            grown = self._planner.serial != before
            if grown:
                self._changed_ns = time.time_ns()
        if grown:
            self._notify()

    def _notify(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        """Wake all requests that wait now; later ones wait for the next change."""
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


def _json(record: object) -> Response:
    return Response(msgspec.json.encode(record), media_type="application/json")


def _refusal(status: int, message: str) -> HTTPException:
    return HTTPException(status, message + "\n")
