"""A worker's link to the plan service: receives new plans at once, and reports the worker's phases.

Two threads, so that neither the work nor the group's I/O loop ever waits for the controller. Both retry while the
service is away; after an outage the last report is sent again, since the service may be a new process.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing
from typing import NamedTuple

import msgspec

from consumers.assignor import PlanAssignor
from consumers.plan_client import PlanClient, PlanRefusedError, PlanServiceError
from penstock.log_once import LogOnce
from penstock.plan import MemberPhase, MemberReport, Plan, PlanNotice

log = logging.getLogger(__name__)

LONG_POLL_S = 20.0
RETRY_S = 0.5
COUNTING: frozenset[MemberPhase] = frozenset({"joined", "first-event"})


class Counts(NamedTuple):
    """As in ``MemberReport``."""

    finished: int
    late: int
    busy_ns: int
    delivery_ns: int | None = None


class Membership:
    """Membership of the ``assignor``'s replica in ``group``. ``rejoin`` asks for a rebalance; ``may_ask``: whether this
    member should ask. In a directed rebalance each member does, else the leader, and the others follow by heartbeat.

    ``counts``: finished and late events so far and the time spent on them, which every report carries; None if
    they are not counted.

    Without a ``url`` there is no plan service: nothing is received or reported.
    """

    def __init__(
        self,
        url: str,
        group: str,
        assignor: PlanAssignor,
        *,
        rejoin: Callable[[], None],
        may_ask: Callable[[], bool],
        counts: Callable[[], Counts | None] = lambda: None,
    ) -> None:
        self._assignor = assignor
        self._rejoin = rejoin
        self._may_ask = may_ask
        self._counts = counts
        self._reporting = threading.Lock()
        self._known_epoch = -1
        self._known_plan: Plan | None = None
        self._notice_ns = 0
        self._closing = threading.Event()
        self._reports: queue.SimpleQueue[MemberReport | None] = queue.SimpleQueue()
        self._last: MemberReport | None = None
        self._watcher = threading.Thread(target=self._watch, name="plan-watcher", daemon=True)
        self._reporter = threading.Thread(target=self._send_reports, name="plan-reporter", daemon=True)
        if url:
            self._notices = PlanClient(url, group)
            self._service = PlanClient(url, group, timeout_s=1.0)
            self._reporter.start()

    # --- reports -----------------------------------------------------------------------------------------------------

    def report(self, phase: MemberPhase, partitions: Collection[int] = ()) -> None:
        """Queue a report; returns at once. Notices are received once the service knows that this member has joined:
        its own joining then causes none.
        """
        with self._reporting:
            self._put(
                MemberReport(
                    phase=phase,
                    at_ns=time.time_ns(),
                    partitions=tuple(sorted(partitions)),
                    generation=self._assignor.generation,
                    epoch=self._assignor.epoch,
                    fallback=self._assignor.fallback,
                )
            )

    def report_again(self, stopped_ns: int | None = None) -> None:
        """Queue the last report again, as of now: a successor of the service may take what is older for that of another
        process. ``stopped_ns``: how long this member stood still in its last rebalance.
        """
        with self._reporting:
            if self._last is not None:
                self._put(msgspec.structs.replace(self._last, at_ns=time.time_ns(), stopped_ns=stopped_ns))

    def report_counts(self) -> None:
        """Queue the last report again with the counts of now, once this member has joined and if none waits."""
        with self._reporting:
            last = self._last
            if last is not None and last.phase in COUNTING and self._counts() is not None and self._reports.empty():
                self._put(msgspec.structs.replace(last, at_ns=time.time_ns()))

    def _put(self, report: MemberReport) -> None:
        if (counts := self._counts()) is not None:
            report = msgspec.structs.replace(report, **counts._asdict())
        self._last = msgspec.structs.replace(report, stopped_ns=None)
        self._reports.put(report)

    def close(self, timeout_s: float) -> None:
        """Stop receiving notices; wait up to ``timeout_s`` until the queued reports are sent."""
        self._closing.set()
        self._reports.put(None)
        if self._reporter.is_alive():
            self._reporter.join(timeout_s)

    def _send_reports(self) -> None:
        with closing(self._service):
            while (report := self._reports.get()) is not None:
                while not self._sent(report):
                    if self._closing.wait(RETRY_S):
                        return
                if report.phase == "joined" and not self._watcher.is_alive() and not self._closing.is_set():
                    self._watcher.start()

    def _sent(self, report: MemberReport) -> bool:
        try:
            self._service.report(self._assignor.replica, report)
        except PlanRefusedError as error:
            log.warning("report %r: %s", report.phase, error)
        except PlanServiceError as error:
            log.warning("report %r not sent yet: %s", report.phase, error)
            return False
        return True

    # --- notices -----------------------------------------------------------------------------------------------------

    def assigned(self) -> None:
        """The member has a new assignment: rejoin if a newer plan was received after it asked to join."""
        behind = self._assignor.epoch < self._known_epoch and self._assignor.asked_to_join_ns < self._notice_ns
        if behind and self._may_ask():
            self._rejoin()

    def _watch(self) -> None:
        serial: int | None = None
        away = LogOnce(log, f"%s; asking again every {RETRY_S:g} s")
        with closing(self._notices):
            while not self._closing.is_set():
                try:
                    notice = self._notices.notice(after=serial, wait_s=LONG_POLL_S)
                except (PlanServiceError, msgspec.DecodeError) as error:
                    away.note(error)
                    serial = None  # of a predecessor, perhaps: its successor may give the same number to another plan
                    self._closing.wait(RETRY_S)
                    continue
                if away.trouble:
                    self.report_again()
                away.clear()
                if notice.serial != serial and not self._closing.is_set():
                    self._receive(notice, first=serial is None)
                    serial = notice.serial

    def _receive(self, notice: PlanNotice, *, first: bool) -> None:
        """A new plan: rejoin unless the assignment follows it already. The same plan again means that a member joins or
        leaves: rejoin unless this member has asked to join since then.
        """
        epoch = notice.plan.epoch if notice.plan is not None else -1
        new_plan = first or epoch != self._known_epoch
        # A restarted service that has forgotten an epoch gives it to another plan.
        replaced = epoch == self._known_epoch and notice.plan != self._known_plan
        self._known_epoch, self._known_plan = epoch, notice.plan
        self._notice_ns = time.time_ns()
        self._assignor.learn(notice.plan)
        stale = replaced or (
            self._assignor.epoch < epoch if new_plan else self._assignor.asked_to_join_ns < notice.at_ns
        )
        if stale and self._may_ask():
            self._rejoin()
