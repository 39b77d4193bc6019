"""A worker's ear and voice towards the plan service: hears of new plans at once, and reports where the worker is.

Two threads, so that neither the work nor the group's I/O loop ever waits for the controller. A service that is away is
asked again until it is back; its successor is told the present state.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing

import msgspec

from consumers.assignor import PlanAssignor
from consumers.plan_client import PlanClient, PlanRefusedError, PlanServiceError
from penstock.plan import MemberPhase, MemberReport, PlanNotice

log = logging.getLogger(__name__)

LONG_POLL_S = 20.0
RETRY_S = 0.5


class Membership:
    """Membership of the ``assignor``'s replica in ``group``. ``rejoin`` asks for a rebalance; ``may_ask`` tells whether
    this member should: in a directed rebalance everybody for himself, else the leader and the rest follow by heartbeat.

    Without a ``url`` there is no plan service, nobody to hear and nobody to tell.
    """

    def __init__(
        self, url: str, group: str, assignor: PlanAssignor, *, rejoin: Callable[[], None], may_ask: Callable[[], bool]
    ) -> None:
        self._assignor = assignor
        self._rejoin = rejoin
        self._may_ask = may_ask
        self._known_epoch = -1
        self._heard_ns = 0
        self._closing = threading.Event()
        self._reports: queue.SimpleQueue[MemberReport | None] = queue.SimpleQueue()
        self._last: MemberReport | None = None
        self._watcher = threading.Thread(target=self._watch, name="plan-watcher", daemon=True)
        self._reporter = threading.Thread(target=self._tell, name="plan-reporter", daemon=True)
        if url:
            self._listening = PlanClient(url, group)
            self._speaking = PlanClient(url, group, timeout_s=1.0)
            self._reporter.start()

    # --- voice -------------------------------------------------------------------------------------------------------

    def report(self, phase: MemberPhase, partitions: Collection[int] = ()) -> None:
        """Tell the service, in order; returns at once. Once it knows that this member has joined, notices are heard:
        the member's own joining is then behind it.
        """
        self._last = MemberReport(
            phase=phase,
            at_ns=time.time_ns(),
            partitions=tuple(sorted(partitions)),
            generation=self._assignor.generation,
            epoch=self._assignor.epoch,
            fallback=self._assignor.fallback,
        )
        self._reports.put(self._last)

    def close(self, timeout_s: float) -> None:
        """Stop listening, and wait until what was reported is told, ``timeout_s`` at the most."""
        self._closing.set()
        self._reports.put(None)
        if self._reporter.is_alive():
            self._reporter.join(timeout_s)

    def _tell(self) -> None:
        with closing(self._speaking):
            self._tell_all()

    def _tell_all(self) -> None:
        while (report := self._reports.get()) is not None:
            while not self._told(report):
                if self._closing.wait(RETRY_S):
                    return
            if report.phase == "joined" and not self._watcher.is_alive() and not self._closing.is_set():
                self._watcher.start()

    def _told(self, report: MemberReport) -> bool:
        try:
            self._speaking.report(self._assignor.replica, report)
        except PlanRefusedError as error:
            log.warning("report %r: %s", report.phase, error)
        except PlanServiceError as error:
            log.warning("report %r not told yet: %s", report.phase, error)
            return False
        return True

    # --- ear ---------------------------------------------------------------------------------------------------------

    def assigned(self) -> None:
        """The member has a new assignment: ask again if a newer plan was heard of after it asked to join."""
        behind = self._assignor.epoch < self._known_epoch and self._assignor.asked_to_join_ns < self._heard_ns
        if behind and self._may_ask():
            self._rejoin()

    def _watch(self) -> None:
        with closing(self._listening):
            self._watch_on()

    def _watch_on(self) -> None:
        serial: int | None = None
        away = False
        while not self._closing.is_set():
            try:
                notice = self._listening.notice(after=None if away else serial, wait_s=LONG_POLL_S)
            except (PlanServiceError, msgspec.DecodeError) as error:
                if not away:
                    log.warning("%s; asking again every %g s", error, RETRY_S)
                away = True
                self._closing.wait(RETRY_S)
                continue
            if away and self._last is not None:
                self._reports.put(self._last)
            away = False
            if notice.serial != serial and not self._closing.is_set():
                self._heard(notice, first=serial is None)
                serial = notice.serial

    def _heard(self, notice: PlanNotice, *, first: bool) -> None:
        """A new plan: rejoin unless the assignment follows it already. The same plan again means that somebody joins or
        leaves: rejoin unless this member has asked to join since then.
        """
        epoch = notice.plan.epoch if notice.plan is not None else -1
        new_plan, self._known_epoch = first or epoch != self._known_epoch, epoch
        self._heard_ns = time.time_ns()
        self._assignor.learn(notice.plan)
        stale = self._assignor.epoch < epoch if new_plan else self._assignor.asked_to_join_ns < notice.at_ns
        if stale and self._may_ask():
            self._rejoin()
