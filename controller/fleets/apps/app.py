"""A function app: its process, its containers, and the reports of its present and former processes. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from controller.fleets.counted_replicas import CountedReplicas
from controller.fleets.programs import ProcessWatch, ProgramWork
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport, JobFlow


class AppView(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet of apps as its actuator knows it. ``away``: why Redis, through which apps report, could not be read."""

    away: str


class App(ProcessWatch, kw_only=True):
    """The app ``name``. ``report``: the last one of its present process, None before one. ``before``: sum of the
    reports of former processes. ``ending``: the app is to end, its containers do not come back.
    """

    name: str
    containers: CountedReplicas
    report: AppReport | None = None
    before: AppReport | None = None
    ending: bool = False

    @property
    def total(self) -> AppReport:
        """The sum over all its processes, with the present number of containers."""
        return total(self.name, [each for each in (self.before, self.report) if each is not None])

    def observe(self, program: ProgramStatus | None, report: AppReport | None, now_ns: int) -> None:
        """Take in its program and its last report, which may be a former process's."""
        if lost := self.look(program, now_ns):
            self._start_over()
            if self.ending:
                self.containers.remove(list(self.containers.replicas), now_ns)
            else:
                self.containers.lose(list(self.containers.replicas), now_ns, now_ns, lost)
        if report is None or self.pid is None or report.at_ns < self.born_ns:
            return
        if self.report is not None and report.started_ns != self.report.started_ns:
            self._start_over()
        self.report = report
        self.containers.observe(report.containers, now_ns)

    def _start_over(self) -> None:
        if self.report is not None:
            self.before, self.report = msgspec.structs.replace(self.total, containers=0, busy=0), None


def work(apps: Iterable[App], programs: Mapping[str, ProgramStatus], now_ns: int) -> ProgramWork:
    """Work that brings the programs closer to what the apps are to be; repeated until it is observed."""
    start: list[str] = []
    end: list[str] = []
    delete: list[str] = []
    for app in apps:
        program = programs.get(app.name)
        if program is None:
            (delete if app.ending else start).append(app.name)
        elif program.state != "stopping" if app.ending else app.is_given_up(program, now_ns):
            end.append(app.name)
    return ProgramWork(tuple(start), tuple(end), tuple(delete))


def total(name: str, reports: Sequence[AppReport]) -> AppReport:
    """The sum of reports, with the latest time and the earliest first event."""
    flows: dict[str, list[JobFlow]] = {}
    for report in reports:
        for job, flow in report.jobs.items():
            flows.setdefault(job, []).append(flow)
    return AppReport(
        replica=name,
        at_ns=max((report.at_ns for report in reports), default=0),
        first_ns=min((report.first_ns for report in reports if report.first_ns), default=0),
        jobs={
            job: JobFlow(
                last_arrival_ns=max(flow.last_arrival_ns for flow in each),
                **_sums(each, "arrived", "between_s", "between_s2", "finished", "response_s", "late"),
            )
            for job, each in flows.items()
        },
        **_sums(reports, "containers", "busy", "completed", "busy_s", "busy_s2"),
    )


def _sums(parts: Sequence[msgspec.Struct], *fields: str) -> dict[str, Any]:
    return {field: sum(getattr(part, field) for part in parts) for field in fields}
