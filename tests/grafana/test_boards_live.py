"""Every panel's query, asked of a real Prometheus that scrapes what really is exported.

Each kind of fleet is played in virtual time first, and its ticks then told once a second, as a live controller would;
then a consumer group is run live. Each claims that what a board shows is there, finite, and what the journal says.
"""

import dataclasses
import json
import math
import re
import subprocess
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import httpx
import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from rich.console import Console

from consumers.meters import Meters
from controller.exposition import PHASES, ControllerMetrics
from controller.journal import TickRecord, read_ticks
from experiments.catalogue import find_experiment
from experiments.compare import begin, carry_out_all
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from grafana import generate, panels
from grafana.promql import percentiles
from infra.local.collect import MachineSampler
from infra.local.ports import free_port
from infra.local.prometheus import RULES, Prometheus
from infra.local.services import LocalServices
from infra.local.state import StateFolder
from infra.runs.context import RunContext
from infra.runs.exposition import RunMetrics
from infra.runs.faults import Faults, Injected
from infra.runs.local_world import LocalWorld
from penstock import metrics
from penstock.adapters.exposition import expose
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import StreamObservation
from penstock.measures import bucket_of
from penstock.records import Result
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, RunSpec
from penstock.schedule import Schedule
from penstock.settings import Folders
from penstock.world import World
from pipelines.figures import ResultColumns
from pipelines.publication import Publication
from producers.delivery import DeliveryLog
from producers.exposition import SenderMetrics
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from simulator.world import SimWorld
from tests.experiments.steady import STEADY
from tests.support.eventually import eventually
from tests.support.services import on_free_ports

pytestmark = pytest.mark.live

TOLD_S = 16
"""How long ticks are told, and what the windows of four scrapes leave of it."""
WINDOW = "4s"
RANGE_S = 900
"""Of a board: ten minutes after a run it is still in it."""
ALERTS = {name for file in RULES.glob("*.yml") for name in re.findall(r"alert: (\w+)", file.read_text())}
TICK_TAKES_S, SCRAPE_TAKES_S = 0.5, 0.05
"""A scrape that begins this soon before a tick, or this soon after its beginning, may show it or the one before."""
SLOW_TICK_TAKES_S, SLOW_SCRAPE_TAKES_S = 1.5, 1.0
"""The same of the few that a busy machine holds up: ticks that read slowly are told late, and Prometheus waits as long
for an answer.
"""
UNKNOWN_S = 6.0
"""So long after a tick that could not read something a query over a window may know no value."""


class Series(NamedTuple):
    """One series of an answer; ``samples``: (seconds since the epoch, value)."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]


class Asked:
    """Prometheus' HTTP API."""

    def __init__(self, url: str) -> None:
        self._url = url

    def over(self, query: str, from_s: float, to_s: float) -> list[Series]:
        """Second by second."""
        return self._series("query_range", query=query, start=from_s, end=to_s, step=1)

    def at(self, query: str, at_s: float) -> list[float]:
        """The values of all series at a time."""
        parameters: dict[str, str | float] = {"query": query, "time": at_s}
        answer = httpx.get(f"{self._url}/api/v1/query", params=parameters, trust_env=False, timeout=30).json()
        return [float(found["value"][1]) for found in answer["data"]["result"]]

    def raw(self, selector: str, from_s: float, to_s: float) -> list[Series]:
        """As scraped, with the times of the scrapes."""
        return self._series("query", query=f"{selector}[{math.ceil(to_s - from_s)}s]", time=to_s)

    def rules(self) -> dict[str, str]:
        """Alert → how its last evaluation went."""
        answer = httpx.get(f"{self._url}/api/v1/rules", trust_env=False, timeout=30).json()
        return {rule["name"]: rule["health"] for group in answer["data"]["groups"] for rule in group["rules"]}

    def _series(self, what: str, **parameters: Any) -> list[Series]:
        answer = httpx.get(f"{self._url}/api/v1/{what}", params=parameters, trust_env=False, timeout=30).json()
        assert answer["status"] == "success", f"{parameters['query']}: {answer.get('error')}"
        return [
            Series(found["metric"], [(float(at_s), float(value)) for at_s, value in found["values"]])
            for found in answer["data"]["result"]
        ]


def queries_of(board: str, run: str) -> dict[str, str]:
    """Title of the panel and letter of the query → the query as Grafana would send it, all fleets chosen."""
    found = json.loads((generate.FOLDER / f"{board}.json").read_text())
    asked = {
        f"{board}: {panel['title']} {target['refId']}": target["expr"]
        for panel in found["panels"]
        for target in panel.get("targets", [])
    }
    asked[f"{board}: Scale actions"] = " or ".join(each["expr"] for each in found["annotations"]["list"])
    values = {
        "$run": run,
        "$fleet": ".+",
        "$term": ".+",
        "$__rate_interval": WINDOW,
        "$__interval": "1s",
        "$__range": f"{RANGE_S}s",
    }
    for variable, value in values.items():
        asked = {name: query.replace(variable, value) for name, query in asked.items()}
    return asked


def wrong_answers(
    asked: Asked, queries: dict[str, str], from_s: float, to_s: float, unknown_s: Sequence[float] = ()
) -> list[str]:
    """A line for every query that has no answer, or one that is not finite. ``unknown_s``: ticks that could not read
    something, which is told as NaN.
    """
    wrong = []
    for name, query in queries.items():
        series = asked.over(query, from_s, to_s)
        if not series:
            wrong.append(f"{name}: nothing for {query}")
        wrong += [
            f"{name}: {each.labels} has {[value for _, value in each.samples]}"
            for each in series
            if not any(math.isfinite(value) for _, value in each.samples)
            or any(
                not math.isfinite(value) and not any(0 <= at_s - since_s < UNKNOWN_S for since_s in unknown_s)
                for at_s, value in each.samples
            )
        ]
    return wrong


def play(world: World, experiment: Experiment, scaler: str, options: Options, runs: Path) -> RunDirectory:
    directory = begin(experiment, [scaler], options, 1, runs, resume=False)
    with RunProgress(Console(quiet=True), runs=1) as progress:
        carry_out_all(world, experiment, options, directory, progress)
    (finished,) = directory.runs()
    return finished


# --- kinds of fleets, played and told --------------------------------------------------------------------------------


class Played(NamedTuple):
    """A run in virtual time and the stretch of wall-clock time in which its last ticks were told."""

    run: str
    ticks: Sequence[TickRecord]
    from_s: float
    to_s: float
    exposed_s: float
    """When Prometheus could first see the run."""


KINDS = {
    "streams": ("binpack-workload-1", "overprovision", "linear", 110.0),
    "queues": ("multiqueue", "multiqueue-damped", "single-queue", 60.0),
    "functions": ("amesos-document", "amesos", "rps", 120.0),
    "networks": ("pubsub-mincost", "min-cost", "random", 3600.0),
}
"""Board → experiment, scaler that acts, shadow, seconds."""

BOARDS_OF = {"streams": ("streams", "why", "overview", "health")}
"""Which boards a kind is looked at on, where it is not its own and "why" alone."""


class Companions:
    """What runs beside a controller: a sender, a worker and Spark's figures, by their own exporters, with fifty events
    a second that are made up.
    """

    RATE_PER_S = 50

    def __init__(self, spec: RunSpec, directory: RunDirectory, targets: Path) -> None:
        self._began_ns = time.time_ns()
        events = 10 * TOLD_S * self.RATE_PER_S
        offsets_ns = np.arange(events) * (NANOS_PER_SECOND // self.RATE_PER_S)
        schedule = Schedule(offsets_ns, np.zeros(events, dtype=np.int16), 10.0 * TOLD_S)
        self._log = DeliveryLog(msgspec.structs.replace(spec, start_ns=self._began_ns), schedule)
        self._meters = Meters(spec.fleet, f"{spec.fleet}-1")
        self._meters.rebalanced(spec.partitions)
        registries = {name: CollectorRegistry() for name in ("sender", "worker", "pipelines")}
        registries["sender"].register(SenderMetrics(self._log))
        registries["worker"].register(self._meters)
        self._publication = Publication(directory, registries["pipelines"])
        self._machine = MachineSampler()
        self._machine.start()
        faults = Faults(
            cast(RunContext, SimpleNamespace(directory=directory)), {"kill-worker": lambda: Injected("w-1")}
        )
        faults.inject(Fault("kill-worker", 1.0))
        faults.close()
        self._run = RunMetrics(self._machine, faults)
        self._run.serve(spec.run, targets)
        for name, registry in registries.items():
            expose(f"{spec.run}-{name}", targets, {"run": spec.run}, registry)

    def close(self) -> None:
        """Only this end of the run's own metrics: a closed exporter has no newest value."""
        self._machine.stop()
        self._run.close()

    def second(self) -> None:
        """Another second's events: sent, acknowledged, served and read by Spark."""
        now_ns = time.time_ns()
        ids = range(self._log.reached, self._log.reached + self.RATE_PER_S)
        for number in ids:
            self._log.sent_ns[number] = int(self._log.intended_ns[number]) + 1_000_000
            self._log.acked_ns[number] = self._log.sent_ns[number] + 1_000_000
        self._log.reached = ids.stop
        self._meters.served([served(number, now_ns) for number in ids])
        read = ResultColumns(
            stage=np.full(len(ids), "payments", dtype=object),
            event_id=np.asarray(ids),
            finished_ns=np.full(len(ids), now_ns - NANOS_PER_SECOND),
            bucket=bucket_of(np.full(len(ids), 0.02)),
            met=np.full(len(ids), True),
        )
        self._publication.take(ids.start // self.RATE_PER_S, read, complete_until_ns=now_ns)


def served(number: int, now_ns: int) -> Result:
    """Within 5 ms."""
    began_ns = now_ns - 5_000_000
    return Result(
        number, "r", "payments", "payments", "completed", "q", began_ns, began_ns, began_ns, began_ns, now_ns, "w"
    )


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Path]]:
    """The local world's, by its own configuration, and the folder in which to announce a target."""
    state = StateFolder(tmp_path_factory.mktemp("p"))
    state.create()
    service = Prometheus(state, free_port())
    with subprocess.Popen(service.prepare().command, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(service.answers, within_s=60)
            yield Asked(service.url), state.scrape_targets
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def played(prometheus: tuple[Asked, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """All kinds at once: what happened before the last seconds is told at one go."""
    told: dict[str, tuple[str, ControllerMetrics, list[TickRecord], float]] = {}
    companions = []
    for board, (experiment, scaler, shadow, seconds) in KINDS.items():
        options = Options(world="sim", seconds=seconds, shadows=(shadow,))
        with SimWorld() as world:
            directory = play(world, find_experiment(experiment), scaler, options, tmp_path_factory.mktemp(board))
        spec = directory.spec()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        exposition = ControllerMetrics(spec.run, spec.fleet, registry, max_replicas=spec.max_replicas, slo_s=spec.slo_s)
        ticks = [tick for tick in read_ticks(directory) if tick.time_s <= seconds]
        for tick in ticks[:-TOLD_S]:
            exposition.tick(tick)
        exposed_s = time.time()
        expose(f"{spec.run}-controller", prometheus[1], {"run": spec.run, "fleet": spec.fleet}, registry)
        told[board] = (spec.run, exposition, ticks, exposed_s)
        if board == "streams":
            companions.append(Companions(spec, directory, prometheus[1]))
    began_s = time.time()
    for number in range(-TOLD_S, 0):
        for _, exposition, ticks, _ in told.values():
            exposition.tick(ticks[number])
        for companion in companions:
            companion.second()
        time.sleep(1.0)
    time.sleep(1.5)
    ended_s = time.time()
    for companion in companions:
        companion.close()
    return {
        board: Played(run, ticks, began_s + 8, ended_s, exposed_s) for board, (run, _, ticks, exposed_s) in told.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_panel_of_a_kind_of_fleet_has_finite_values(
    prometheus: tuple[Asked, Path], played: dict[str, Played], kind: str
) -> None:
    run, _, from_s, to_s, _ = played[kind]
    queries = {
        name: query for board in BOARDS_OF.get(kind, (kind, "why")) for name, query in queries_of(board, run).items()
    }
    assert wrong_answers(prometheus[0], queries, from_s, to_s) == []


def test_a_query_without_an_answer_or_with_a_nan_is_told(
    prometheus: tuple[Asked, Path], played: dict[str, Played]
) -> None:
    run, _, from_s, to_s, _ = played["queues"]
    queries = {
        "of no run": f'{metrics.FLEET_BACKLOG}{{run="another"}}',
        "not a number": f'0 * {metrics.FLEET_BACKLOG}{{run="{run}"}} / 0',
        "right": f'{metrics.FLEET_BACKLOG}{{run="{run}"}}',
    }
    wrong = wrong_answers(prometheus[0], queries, from_s, to_s)
    assert [line.partition(":")[0] for line in wrong] == ["of no run", "not a number"]


def test_prometheus_evaluates_every_alert_rule_without_an_error(
    prometheus: tuple[Asked, Path], played: dict[str, Played]
) -> None:
    assert played
    assert prometheus[0].rules() == dict.fromkeys(ALERTS, "ok")


@pytest.mark.parametrize("kind", KINDS)
def test_the_replicas_of_each_of_its_fleets_are_the_journals(
    prometheus: tuple[Asked, Path], played: dict[str, Played], kind: str
) -> None:
    run, ticks, _, to_s, _ = played[kind]
    newest = ticks[-1].observation
    shown = {
        (each.labels["fleet"], each.labels["phase"]): each.samples[-1][1]
        for each in prometheus[0].over(f'{metrics.REPLICAS}{{run="{run}"}}', to_s - 1, to_s)
    }
    assert shown == {
        (part.fleet, phase): getattr(part.replicas, phase) for part in (newest, *newest.parts()) for phase in PHASES
    }


def test_capacity_of_a_bank_is_that_of_all_its_queues(
    prometheus: tuple[Asked, Path], played: dict[str, Played]
) -> None:
    run, ticks, _, to_s, _ = played["queues"]
    query = queries_of("queues", run)["queues: Arrivals, completions and capacity C"]
    seen = ticks[-1].observation
    assert seen.service_rate_per_s is not None and seen.replicas.joined is not None and seen.replicas.joined > 1
    (series,) = prometheus[0].over(query, to_s - 1, to_s)
    assert series.samples[-1][1] == pytest.approx(seen.replicas.joined * seen.service_rate_per_s)


def test_a_percentile_without_an_event_is_a_gap(prometheus: tuple[Asked, Path], played: dict[str, Played]) -> None:
    run, _, from_s, to_s, _ = played["streams"]
    for query in percentiles(metrics.TICK_DURATION, "fleet", where=f'run="{run}"'):
        idle = query.expr.replace("rate(", "0 * rate(").replace("$__rate_interval", WINDOW)
        assert prometheus[0].over(idle, from_s, to_s) == []


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_counted_in_whole_numbers_as_the_journal_has_them(
    prometheus: tuple[Asked, Path], played: dict[str, Played], kind: str
) -> None:
    run, ticks, from_s, to_s, _ = played[kind]
    shown: Counter[tuple[str, str]] = Counter()
    for series in prometheus[0].over(queries_of("why", run)["why: Decisions that change something A"], from_s, to_s):
        values = [value for _, value in series.samples]
        assert all(value.is_integer() for value in values)
        shown[series.labels["scaler"], series.labels["action"]] += int(sum(values))
    assert acted(ticks[-6:]) <= shown <= acted(ticks[-TOLD_S:])


def acted(ticks: Sequence[TickRecord]) -> Counter[tuple[str, str]]:
    """How often each scaler decided to change something, by action."""
    return Counter(
        (scaler, decision.action)
        for tick in ticks
        for scaler, decision in tick.decisions.items()
        if decision.action in {"up", "down", "reassign"}
    )


def test_a_fault_is_a_mark_at_its_time(prometheus: tuple[Asked, Path], played: dict[str, Played]) -> None:
    asked, _ = prometheus
    found = played["streams"]
    board = json.loads((generate.FOLDER / "overview.json").read_text())
    (mark,) = [each for each in board["annotations"]["list"] if each["name"] == "fault"]
    (series,) = asked.over(mark["expr"].replace("$run", found.run), found.from_s, found.to_s)
    (at_ms,) = {value for _, value in series.samples}
    assert series.labels == {"fault": "kill-worker", "detail": "w-1"}
    assert found.exposed_s - 60 < at_ms / 1000 < found.from_s


def test_the_newest_run_is_the_one_that_began_last(prometheus: tuple[Asked, Path], played: dict[str, Played]) -> None:
    to_s = played["queues"].to_s
    query = panels.NEWEST_RUN.replace("$__range", "300s")
    began = {each.labels["run"]: each.samples[-1][1] for each in prometheus[0].over(query, to_s - 1, to_s)}
    assert set(began) == {each.run for each in played.values()}
    for each in played.values():
        assert each.exposed_s < began[each.run] < to_s - 5  # a step of the query is 5 s


# --- RabbitMQ, live --------------------------------------------------------------------------------------------------


def test_every_panel_of_rabbitmq_has_finite_values(state_folder: Path) -> None:
    services = LocalServices(Folders(state=state_folder), on_free_ports())
    try:
        endpoints = services.up(("rabbitmq", "prometheus"))
        began_s = time.time()
        time.sleep(12)
        wrong = wrong_answers(
            Asked(endpoints.require("prometheus")), queries_of("rabbitmq", "r"), began_s + 8, began_s + 11
        )
    finally:
        services.down()
    assert [line for line in wrong if not line.startswith("rabbitmq: Scale actions")] == []


# --- a consumer group, live ------------------------------------------------------------------------------------------

GROWING = dataclasses.replace(
    STEADY,
    name="growing",
    title="More than one replica can do, for tests",
    workload="constant:rate_per_s=250,duration_s=60",
    seconds=30,
    shadows=("binpack", "overprovision"),
)


@pytest.fixture(scope="module")
def lived(
    local_services: LocalServices, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Asked, RunDirectory, float, float]:
    """A finished run and the seconds of it in which everything is under way."""
    with LocalWorld(services=local_services) as world:
        directory = play(world, GROWING, "linear", Options(), tmp_path_factory.mktemp("runs"))
    start_s = directory.spec().start_ns / NANOS_PER_SECOND
    return Asked(local_services.endpoints().require("prometheus")), directory, start_s + 18, start_s + 28


@pytest.mark.parametrize("board", ["overview", "why", "streams", "health"])
def test_every_panel_of_a_live_run_has_finite_values(
    lived: tuple[Asked, RunDirectory, float, float], board: str
) -> None:
    asked, directory, from_s, to_s = lived
    unknown_s = [tick.at_ns / NANOS_PER_SECOND for tick in read_ticks(directory) if tick.observation.unknown]
    assert wrong_answers(asked, queries_of(board, directory.spec().run), from_s, to_s, unknown_s) == []


@pytest.mark.parametrize("board", ["overview", "why", "streams", "health"])
def test_no_panel_is_empty_ten_minutes_after_the_run(
    lived: tuple[Asked, RunDirectory, float, float], board: str
) -> None:
    asked, directory, _, to_s = lived
    queries, opened_s = queries_of(board, directory.spec().run), to_s + 600
    empty = [
        f"{panel['title']} {target['refId']}"
        for panel in json.loads((generate.FOLDER / f"{board}.json").read_text())["panels"]
        for target in panel.get("targets", [])
        for query in [queries[f"{board}: {panel['title']} {target['refId']}"]]
        if not (asked.at(query, opened_s) if target.get("instant") else asked.over(query, opened_s - RANGE_S, opened_s))
    ]
    assert empty == []


def test_the_overview_of_a_live_run_is_its_report_when_it_is_over(
    lived: tuple[Asked, RunDirectory, float, float],
) -> None:
    asked, directory, _, to_s = lived
    queries, opened_s = queries_of("overview", directory.spec().run), to_s + 600
    summary = summary_of(RunData(directory))
    (share,) = asked.over(queries["overview: Within the SLO, whole run A"], opened_s - RANGE_S, opened_s)
    assert share.samples[-1][1] == pytest.approx(summary.slo_share, abs=0.001)
    (minutes,) = asked.at(queries["overview: Replica-minutes A"], opened_s)
    assert minutes == pytest.approx(summary.replica_minutes, rel=0.4) and minutes >= 0.9 * summary.replica_minutes
    (ago_s,) = asked.at(queries["overview: Newest tick A"], opened_s)
    assert 580 < ago_s < 600


def test_replicas_and_lag_of_a_live_run_are_the_journals(lived: tuple[Asked, RunDirectory, float, float]) -> None:
    asked, directory, _, to_s = lived
    run, start_s = directory.spec().run, directory.spec().start_ns / NANOS_PER_SECOND
    ticks = list(read_ticks(directory))
    compared = in_time = 0
    for metric, label in ((metrics.REPLICAS, "phase"), (metrics.LAG, "partition"), (metrics.FLEET_BACKLOG, "fleet")):
        for series in asked.raw(f'{metric}{{run="{run}"}}', start_s, to_s):
            for at_s, shown in series.samples:
                late = ticks_shown_at(ticks, at_s, SLOW_TICK_TAKES_S, SLOW_SCRAPE_TAKES_S)
                assert is_of(late, shown, metric, series.labels[label]), (metric, series.labels, at_s)
                soon = ticks_shown_at(ticks, at_s, TICK_TAKES_S, SCRAPE_TAKES_S)
                in_time += is_of(soon, shown, metric, series.labels[label])
                compared += 1
    assert compared > 100 and in_time > 0.8 * compared, f"{in_time} of {compared} in time"


def is_of(ticks: Sequence[TickRecord], shown: float, metric: str, which: str) -> bool:
    """Whether one of these ticks saw the value; NaN is that of a tick that could not read it."""
    wanted = [seen(tick, metric, which) for tick in ticks]
    return shown in wanted or (None in wanted and math.isnan(shown))


def ticks_shown_at(
    ticks: Sequence[TickRecord], at_s: float, tick_takes_s: float, scrape_takes_s: float
) -> Sequence[TickRecord]:
    """The one that was newest at that time, or those that may have been."""
    done = bisect_right(ticks, at_s - tick_takes_s, key=lambda tick: tick.at_ns / NANOS_PER_SECOND)
    begun = bisect_right(ticks, at_s + scrape_takes_s, key=lambda tick: tick.at_ns / NANOS_PER_SECOND)
    return ticks[max(0, done - 1) : begun]


def seen(tick: TickRecord, metric: str, which: str) -> float | None:
    """What the journal says."""
    observation = tick.observation
    assert isinstance(observation, StreamObservation)
    if metric == metrics.REPLICAS:
        return float(getattr(observation.replicas, which))
    if metric == metrics.LAG:
        return observation.partitions[int(which)].lag
    return observation.backlog
