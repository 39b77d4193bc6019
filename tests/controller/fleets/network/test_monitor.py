"""Estimates of a live network from what its apps report, against the samples themselves. Times are in seconds."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest

from controller.fleets.network.actuator import NetworkView, TopicView
from controller.fleets.network.monitor import NetworkMonitor
from penstock.adapters.amqp import Depths
from penstock.apps import AppReport, JobFlow
from penstock.contracts import FleetObservation, Monitor, ReplicaCounts
from penstock.errors import PenstockError
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import JobSpec, NetworkSystem, TopicSpec
from tests.conformance.ports import MonitorConformance
from tests.controller.timelines import VirtualClock

SYSTEM = NetworkSystem(
    topics=(TopicSpec(topic="A", service_rate_per_s=1), TopicSpec(topic="D", service_rate_per_s=1)),
    jobs=(
        JobSpec(job="1", route=("A", "D"), arrival_rate_per_s=1),
        JobSpec(job="2", route=("A", "D", "D"), arrival_rate_per_s=1),
    ),
    window_s=100.0,
)
SPEC = RunSpec(
    run="r",
    experiment="test",
    world="local",
    scaler=ScalerSpec(name="none"),
    fleet="network",
    duration_s=1,
    slo_s=3.5,
    system=SYSTEM,
)


class Scripted(Depths):
    """What waits, as a test says it."""

    def __init__(self) -> None:
        self.waiting = {"A": 0, "D": 0}
        self.away = ""

    def read(self, queues: Iterable[str]) -> dict[str, int]:
        if self.away:
            raise PenstockError(self.away)
        return {queue: self.waiting[queue.rpartition(".")[2]] for queue in queues}


class Apps:
    """Two apps that have served and seen what a test says, and the monitor that watches them."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.clock = VirtualClock(now_s)
        self.depths = Scripted()
        self.busy = {"A": 0, "D": 0}
        self.start_ups_s: tuple[float, ...] = ()
        self.services: dict[str, list[float]] = {"A": [], "D": []}
        self.arrivals: dict[str, list[float]] = {"1": [], "2": []}
        self.responses: dict[str, list[float]] = {"1": [], "2": []}
        self.away = ""
        self.blind = False
        self.monitor = NetworkMonitor(
            SPEC, clock=self.clock, origin_s=0.0, view=self.view, depths=self.depths, blind=lambda: self.blind
        )

    def view(self) -> NetworkView:
        return NetworkView(topics=tuple(self._topic(name) for name in ("A", "D")), away=self.away)

    def _topic(self, name: str) -> TopicView:
        times = np.asarray(self.services[name])
        jobs = {job: self._flow(job, name) for job in ("1", "2")}
        report = AppReport(
            name, 1, self.busy[name], len(times), float(times.sum()), float((times**2).sum()), 0, jobs=jobs
        )
        return TopicView(name, ReplicaCounts(joined=1), report, self.start_ups_s)

    def _flow(self, job: str, topic: str) -> JobFlow:
        """They arrive at A and leave at D."""
        if topic == "D":
            times = self.responses[job]
            return JobFlow(finished=len(times), response_s=sum(times), late=sum(each > SPEC.slo_s for each in times))
        between = np.diff(self.arrivals[job])
        return JobFlow(
            arrived=len(self.arrivals[job]), between_s=float(between.sum()), between_s2=float((between**2).sum())
        )


def scv(values: Sequence[float]) -> float:
    return float(np.var(values, ddof=1) / np.mean(values) ** 2)


def test_moments_are_those_of_the_samples() -> None:
    apps = Apps()
    draws = np.random.default_rng(5)
    apps.services["A"] = draws.gamma(2, 0.5, 40).tolist()
    apps.arrivals["1"] = np.cumsum(draws.gamma(2, 0.7, 50)).tolist()
    apps.responses = {"1": [3.0, 5.0], "2": [10.0]}
    apps.start_ups_s = (0.2, 0.3)
    apps.clock.pass_time(80)
    seen = apps.monitor.observe()
    topic, job = seen.topics[0], seen.jobs[0]
    assert topic.service_rate_per_s == pytest.approx(1 / np.mean(apps.services["A"]))
    assert topic.service_scv == pytest.approx(scv(apps.services["A"]))
    assert job.arrival_rate_per_s == pytest.approx(50 / 80)
    assert job.arrival_scv == pytest.approx(scv(np.diff(apps.arrivals["1"]).tolist()))
    assert seen.response_time_s == pytest.approx(6.0)
    assert (seen.completed, seen.jobs[1].route) == (3, ("A", "D", "D"))
    assert seen.late == 2
    assert topic.start_ups_s == (0.2, 0.3)


def test_only_what_happened_within_the_window_counts() -> None:
    apps = Apps()
    apps.services["A"] = [1.0] * 10
    apps.responses["1"] = [100.0] * 10
    apps.clock.pass_time(50)
    apps.monitor.observe()
    apps.services["A"] += [3.0, 5.0]
    apps.responses["1"] += [1.0]
    apps.clock.pass_time(100)
    seen = apps.monitor.observe()
    assert seen.topics[0].service_rate_per_s == pytest.approx(1 / 4)
    assert seen.topics[0].completed == 12
    assert seen.response_time_s == pytest.approx(1.0)


def test_arrivals_that_still_wait_make_the_rate_late_but_not_wrong() -> None:
    """Two a second arrive; the app has taken up those of the first 30 s, 60 s ago."""
    apps = Apps()
    apps.arrivals["1"] = (np.arange(60) / 2).tolist()
    apps.depths.waiting["A"] = 60
    apps.clock.pass_time(60)
    assert apps.monitor.observe().jobs[0].arrival_rate_per_s == pytest.approx(2.0)
    apps.depths.waiting["A"] = 0
    assert apps.monitor.observe().jobs[0].arrival_rate_per_s == pytest.approx(1.0), "nothing waits: nothing came"


def test_two_jobs_that_come_together_tell_no_rate() -> None:
    """At the start of a run, 2.5 ms apart: not 400 a second."""
    apps = Apps()
    apps.arrivals["1"] = [1.0, 1.0025]
    apps.depths.waiting["A"] = 1
    apps.clock.pass_time(4)
    assert apps.monitor.observe().jobs[0].arrival_rate_per_s == pytest.approx(0.5)


def test_what_waits_and_what_is_in_service_is_in_the_network() -> None:
    apps = Apps()
    apps.depths.waiting = {"A": 4, "D": 2}
    apps.busy = {"A": 1, "D": 1}
    apps.responses["1"] = [1.0] * 5
    apps.services["D"] = [1.0] * 5
    seen = apps.monitor.observe()
    assert (seen.arrived, seen.completed, seen.backlog, seen.in_flight) == (13, 5, 8, 2)
    topic = seen.topics[1]
    assert (topic.fleet, topic.arrived, topic.completed, topic.backlog, topic.in_flight) == ("D", 8, 5, 2, 1)
    assert seen.replicas.joined == 2


def test_too_little_to_estimate_from_is_unknown_with_its_reason() -> None:
    apps = Apps()
    apps.services["A"] = [1.0]
    apps.clock.pass_time(10)
    seen = apps.monitor.observe()
    assert seen.response_time_s is None and "no job has finished" in seen.unknown["response_time_s"]
    assert seen.topics[0].service_rate_per_s == 1.0
    assert seen.topics[0].service_scv is None and seen.topics[0].unknown["service_scv"].startswith("1 task")
    assert seen.topics[1].service_rate_per_s is None and "service_rate_per_s" in seen.topics[1].unknown
    assert seen.jobs[0].arrival_scv is None


def test_a_monitor_that_comes_late_does_not_stretch_its_window_to_the_start() -> None:
    apps = Apps(now_s=1000.0)
    apps.services["A"] = [1.0] * 500
    assert apps.monitor.observe().topics[0].service_rate_per_s is None
    apps.services["A"] += [4.0, 4.0]
    apps.clock.pass_time(10)
    assert apps.monitor.observe().topics[0].service_rate_per_s == pytest.approx(0.25)


@pytest.mark.parametrize("source", ["Redis", "RabbitMQ"])
def test_a_source_that_is_away_leaves_nothing_but_its_reason(source: str) -> None:
    apps = Apps()
    if source == "Redis":
        apps.away = "refused"
    else:
        apps.depths.away = "RabbitMQ is away: refused"
    seen = apps.monitor.observe()
    assert seen.arrived is None and f"{source} is away" in seen.unknown["arrived"]
    assert all("refused" in topic.unknown["backlog"] for topic in seen.topics)
    assert [job.arrival_rate_per_s for job in seen.jobs] == [None, None]
    assert seen.replicas.joined == 2


class TestNetworkMonitor(MonitorConformance):
    def make_monitor(self) -> Monitor[FleetObservation]:
        self.apps = Apps()
        self.apps.responses["1"] = [1.0]
        self.apps.clock.pass_time(10)
        return self.apps.monitor

    def outage(self) -> AbstractContextManager[None]:
        @contextmanager
        def blind() -> Iterator[None]:
            self.apps.blind = True
            yield
            self.apps.blind = False

        return blind()
