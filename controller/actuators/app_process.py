"""One function app as its controller knows it: the process, what it says, and what its former processes have done."""

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.apps import AppReport, JobFlow
from penstock.clock import NANOS_PER_SECOND
from penstock.supervision import ProgramStatus

SILENCE_NS: Final = 5 * NANOS_PER_SECOND
"""A program that its supervisor gave up is tried anew after this long."""


class AppProcess(msgspec.Struct, kw_only=True):
    """The app ``name``. ``heard``: the last report of its process, which has run since ``born_ns``; None before one.
    ``before``: what former processes have done. ``silent_ns``: since when there is no process.
    """

    name: str
    pid: int | None = None
    born_ns: int = 0
    silent_ns: int | None = None
    heard: AppReport | None = None
    before: AppReport | None = None

    @property
    def total(self) -> AppReport:
        """What all its processes have done, and what it is like now."""
        nothing = AppReport(self.name, 0, 0, 0, 0.0, 0.0, 0)
        return added(self.name, (self.before or nothing, self.heard or nothing))

    def watch(self, program: ProgramStatus | None, now_ns: int) -> str:
        """Compare its process with the one seen before: how that one was lost, or nothing."""
        pid = program.pid if program is not None else None
        lost = f"process {self.pid} ended by itself" if self.pid is not None and pid != self.pid else ""
        if lost:
            self._start_over()
        if pid is not None and pid != self.pid:
            self.born_ns = now_ns
        self.pid = pid
        self.silent_ns = (self.silent_ns or now_ns) if pid is None else None
        return lost

    def listen(self, report: AppReport | None) -> bool:
        """Take in what it says; False if there is no word from its present process."""
        if report is None or self.pid is None or report.at_ns < self.born_ns:
            return False
        if self.heard is not None and report.started_ns != self.heard.started_ns:
            self._start_over()
        self.heard = report
        return True

    def to_be_ended(self, program: ProgramStatus, now_ns: int) -> bool:
        """Whether its supervisor has given it up, long enough ago to try again."""
        given_up = program.state in ("stopped", "failed")
        return given_up and self.silent_ns is not None and now_ns - self.silent_ns >= SILENCE_NS

    def _start_over(self) -> None:
        if self.heard is not None:
            self.before, self.heard = msgspec.structs.replace(self.total, containers=0, busy=0), None


def added(name: str, reports: Iterable[AppReport]) -> AppReport:
    """What they have done together. Sums, but of times the latest, and of the first event the earliest."""
    parts = list(reports)
    return AppReport(
        replica=name,
        containers=sum(part.containers for part in parts),
        busy=sum(part.busy for part in parts),
        completed=sum(part.completed for part in parts),
        busy_s=sum(part.busy_s for part in parts),
        busy_s2=sum(part.busy_s2 for part in parts),
        at_ns=max(part.at_ns for part in parts),
        first_ns=min((part.first_ns for part in parts if part.first_ns), default=0),
        jobs={
            job: _flow([part.jobs[job] for part in parts if job in part.jobs]) for part in parts for job in part.jobs
        },
    )


def _flow(parts: list[JobFlow]) -> JobFlow:
    return JobFlow(
        arrived=sum(part.arrived for part in parts),
        last_arrival_ns=max(part.last_arrival_ns for part in parts),
        between_s=sum(part.between_s for part in parts),
        between_s2=sum(part.between_s2 for part in parts),
        finished=sum(part.finished for part in parts),
        response_s=sum(part.response_s for part in parts),
    )
