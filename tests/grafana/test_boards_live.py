"""Every panel's query, asked of a real Prometheus that scrapes what really is exported.

Each kind of fleet is played in virtual time first, and its ticks then told once a second, as a live controller would;
then a consumer group is run live. Each claims that what a board shows is there, finite, and what the journal says.
"""

import dataclasses
import json
import math
import os
import re
import subprocess
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from rich.console import Console

from consumers.meters import Meters
from controller.exposition import PHASES, ControllerMetrics
from controller.journal import TickRecord, read_replica_events, read_ticks
from experiments.catalogue import find_experiment
from experiments.compare import begin, carry_out_all
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from grafana import generate, panels
from grafana.boards.stream import NOT_NEWSVENDOR
from grafana.promql import percentiles
from infra.local.collect import MachineSampler
from infra.local.ports import free_port
from infra.local.program_cpu import ProgramCpu
from infra.local.prometheus import RULES, Prometheus
from infra.local.services import LocalServices
from infra.local.state import StateFolder
from infra.runs.context import RunContext
from infra.runs.exposition import RunMetrics
from infra.runs.faults import Faults, Injected
from infra.runs.local_world import LocalWorld
from penstock import metrics
from penstock.adapters.exposition import expose
from penstock.adapters.process_manager import ProgramStatus
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import StreamObservation
from penstock.measures import bucket_of
from penstock.records import Result
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, RunSpec
from penstock.schedule import Schedule
from penstock.settings import Folders
from penstock.systems import FunctionSystem
from penstock.world import World
from pipelines.figures import ResultColumns
from pipelines.publication import Publication
from producers.delivery import DeliveryLog
from producers.exposition import SenderMetrics
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from simulator.world import SimWorld
from tests.experiments.steady import STEADY
from tests.grafana.as_grafana import Asked, Opened
from tests.support.changed import LIVE_RUN
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


ONE_OF = ("overview: p99 A", "overview: p99 B")
"""Within the SLO or above it."""
AT_THE_END = "overview: Verdict A"
BELIEFS = {
    f"streams: {panel['title']}"
    for panel in json.loads((generate.FOLDER / "streams.json").read_text())["panels"]
    if panel.get("fieldConfig", {}).get("defaults", {}).get("noValue") == NOT_NEWSVENDOR
}
"""Panels that only a run of newsvendor has values for."""


def of_newsvendor(name: str) -> bool:
    return name.rpartition(" ")[0] in BELIEFS


def queries_of(asked: Asked, board: str, run: str, at_s: float) -> dict[str, str]:
    """Title of the panel and letter of the query → the query as Grafana sends it at that time, without the one that has
    an answer when the run has been judged, and without those that only another scaler has an answer for.
    """
    queries = Opened(asked, board, at_s - RANGE_S, at_s, run=run).queries()
    beliefs = run.endswith("-newsvendor")
    return {
        name: query for name, query in queries.items() if name != AT_THE_END and (beliefs or not of_newsvendor(name))
    }


def wrong_answers(
    asked: Asked, queries: dict[str, str], from_s: float, to_s: float, unknown_s: Sequence[float] = ()
) -> list[str]:
    """A line for every query that has no answer, or one that is not finite. ``unknown_s``: ticks that could not read
    something, which is told as NaN.
    """
    wrong = []
    for name, query in queries.items():
        series = asked.over(query, from_s, to_s)
        if not series and not (name in ONE_OF and any(asked.over(queries[each], from_s, to_s) for each in ONE_OF)):
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
    "beliefs": ("binpack-workload-1", "newsvendor", "linear", 110.0),
}
"""Board → experiment, scaler that acts, shadow, seconds."""

BOARDS_OF = {"streams": ("streams", "why", "overview", "health"), "beliefs": ("streams", "why")}
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
        self._meters = Meters(spec.fleet, f"{spec.fleet}-1", spec.slo_s)
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
        here = ProgramStatus(f"{spec.run}:sender", os.getpid(), "active")
        self._run = RunMetrics(self._machine, faults, ProgramCpu(lambda: {here.name: here}))
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
        exposition = ControllerMetrics(spec.run, spec.fleet, registry, spec)
        ticks = [tick for tick in read_ticks(directory) if tick.time_s <= seconds]
        exposition.replicas(read_replica_events(directory))
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
        name: query
        for board in BOARDS_OF.get(kind, (kind, "why"))
        for name, query in queries_of(prometheus[0], board, run, to_s).items()
    }
    if kind == "beliefs":  # neither senders nor consumers of this run are played
        queries = {name: query for name, query in queries.items() if of_newsvendor(name) or name.startswith("why")}
        assert {name.rpartition(" ")[0] for name in queries} > BELIEFS
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
    query = queries_of(prometheus[0], "queues", run, to_s)["queues: Arrivals, completions and capacity C"]
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
    queries = queries_of(prometheus[0], "why", run, to_s)
    for series in prometheus[0].over(queries["why: Decisions that change something A"], from_s, to_s):
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
        asked = Asked(endpoints.require("prometheus"))
        queries = queries_of(asked, "rabbitmq", "r", began_s + 11)
        wrong = wrong_answers(asked, queries, began_s + 8, began_s + 11)
    finally:
        services.down()
    assert [line for line in wrong if not line.startswith("rabbitmq: Scale actions")] == []


# --- each kind of fleet, live ---------------------------------------------------------------------------------------

GROWING = dataclasses.replace(
    STEADY,
    name="growing",
    title="More than one replica can do, for tests",
    workload="constant:rate_per_s=250,duration_s=60",
    seconds=30,
    shadows=("binpack", "overprovision"),
)
DOCUMENTS = find_experiment("amesos-document")
assert isinstance(DOCUMENTS.system, FunctionSystem)
SLOW = msgspec.structs.replace(
    DOCUMENTS.system,
    functions=tuple(msgspec.structs.replace(each, service_time_s=0.1) for each in DOCUMENTS.system.functions),
)
"""At ten requests a second a function needs two replicas at AMESoS' utilisation of 0.7: it scales."""
LIVE = {
    "streams": (GROWING, "linear", Options()),
    "queues": (
        # Its ten containers carry half the load, so that P_K stays above maxPk: it scales out.
        find_experiment("multiqueue"),
        "multiqueue-damped",
        Options(seconds=30, shadows=("single-queue",)),
    ),
    "functions": (
        dataclasses.replace(DOCUMENTS, workload="poisson:rate_per_s=10,duration_s=480", system=SLOW),
        "amesos",
        Options(seconds=30, shadows=("rps",), max_replicas=5),
    ),
    "networks": (find_experiment("pubsub-mincost"), "min-cost", Options(seconds=1800, speed=60, shadows=("random",))),
}
"""Board → experiment, scaler that acts, options: half a minute each."""
AFTER_S = 600
PERCENTS = {"p50": "p50_s", "p95": "p95_s", "p99": "p99_s"}


class Lived(NamedTuple):
    """A finished run."""

    asked: Asked
    directory: RunDirectory

    @property
    def run(self) -> str:
        return self.directory.name

    @property
    def start_s(self) -> float:
        return self.directory.spec().start_ns / NANOS_PER_SECOND

    @property
    def end_s(self) -> float:
        """Of its schedule."""
        return self.start_s + self.directory.spec().duration_s

    def under_way_s(self) -> float:
        """Near the end of the schedule; later where a busy machine lets Spark read its first results after that."""
        read = self.asked.raw(f'{metrics.STAGE_RESULTS}{{run="{self.run}"}}', self.start_s, self.end_s + AFTER_S)
        at_s = [at_s for series in read for at_s, _ in series.samples]
        return max(self.end_s - 2, min(min(at_s) + 8, max(at_s)))

    def opened(self, board: str, at_s: float, **chosen: str) -> Opened:
        return Opened(self.asked, board, at_s - RANGE_S, at_s, run=self.run, **chosen)


@pytest.fixture(scope="module")
def worlds(local_services: LocalServices) -> Iterator[LocalWorld]:
    with LocalWorld(services=local_services) as world:
        yield world


def lived_on(world: LocalWorld, local_services: LocalServices, kind: str, scaler: str, runs: Path) -> Lived:
    experiment, _, options = LIVE[kind]
    directory = play(world, experiment, scaler, options, runs)
    return Lived(Asked(local_services.endpoints().require("prometheus")), directory)


@pytest.fixture(
    scope="module",
    params=[
        kind if kind == "streams" else pytest.param(kind, marks=pytest.mark.when_changed("grafana", *LIVE_RUN))
        for kind in LIVE
    ],
)
def lived(
    request: pytest.FixtureRequest,
    worlds: LocalWorld,
    local_services: LocalServices,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Lived]:
    """A finished run of each kind."""
    kind: str = request.param
    return kind, lived_on(worlds, local_services, kind, LIVE[kind][1], tmp_path_factory.mktemp("runs"))


def boards_of(kind: str) -> tuple[str, ...]:
    return kind, "overview", "why", "health"


def test_every_panel_of_a_live_run_has_finite_values(lived: tuple[str, Lived]) -> None:
    kind, run = lived
    unknown_s = [tick.at_ns / NANOS_PER_SECOND for tick in read_ticks(run.directory) if tick.observation.unknown]
    queries = {
        name: query
        for board in boards_of(kind)
        for name, query in queries_of(run.asked, board, run.run, run.end_s).items()
    }
    assert wrong_answers(run.asked, queries, run.end_s - 12, run.under_way_s(), unknown_s) == []


def test_no_panel_is_empty_ten_minutes_after_the_run(lived: tuple[str, Lived]) -> None:
    kind, run = lived
    shown = {
        name: answer
        for board in boards_of(kind)
        for name, answer in run.opened(board, run.end_s + AFTER_S).answers().items()
    }
    assert [n for n, answer in shown.items() if not answer and n not in ONE_OF and not of_newsvendor(n)] == []
    assert any(shown[name] for name in ONE_OF)


def test_the_overview_of_a_live_run_is_its_report_when_it_is_over(lived: tuple[str, Lived]) -> None:
    _, run = lived
    summary, manifest = summary_of(RunData(run.directory)), run.directory.manifest()
    shown = run.opened("overview", run.end_s + AFTER_S).answers()
    (share,) = shown["overview: Within the SLO, whole run A"]
    assert share.samples[-1][1] == pytest.approx(summary.slo_share, abs=0.001)
    (ago,) = shown["overview: Newest tick A"]
    assert AFTER_S - 60 < ago.samples[-1][1] < AFTER_S + 2  # ticks end with the drain, which may take no time
    (verdict,) = shown["overview: Verdict A"]
    assert verdict.labels == {"verdict": manifest.verdict, "reasons": "; ".join(manifest.reasons)} or (
        verdict.labels == {"verdict": manifest.verdict} and not manifest.reasons
    )
    (of,) = shown["overview: What runs A"]
    assert of.labels == {"experiment": summary.experiment, "scaler": summary.scaler, "world": "local"}
    assert [shown[f"overview: {title} A"][0].samples[-1][1] for title in ("Progress", "Time left")] == [1, 0]


def test_half_way_the_overview_says_how_far_the_run_is(lived: tuple[str, Lived]) -> None:
    _, run = lived
    half_s = (run.end_s - run.start_s) / 2
    shown = run.opened("overview", run.start_s + half_s).answers()
    (done,), (left,) = shown["overview: Progress A"], shown["overview: Time left A"]
    assert done.samples[-1][1] == pytest.approx(0.5, abs=0.01)
    assert left.samples[-1][1] == pytest.approx(half_s, abs=0.2)


def test_what_a_live_run_costs_is_its_reports_when_the_schedule_ends(lived: tuple[str, Lived]) -> None:
    _, run = lived
    wanted = summary_of(RunData(run.directory)).replica_minutes
    (minutes,) = run.opened("overview", run.end_s).answers()["overview: Replica-minutes A"]
    most_replicas = run.directory.spec().max_replicas
    assert minutes.samples[-1][1] == pytest.approx(wanted, rel=0.1, abs=3 * most_replicas / 60)


def test_percentiles_of_a_live_run_are_its_reports_to_a_bucket(lived: tuple[str, Lived]) -> None:
    """The panel's query over the whole run in place of its window."""
    _, run = lived
    summary = summary_of(RunData(run.directory))
    board = run.opened("overview", run.end_s + 60)
    edges_s = sorted({float(value) for value in run.asked.label("le", bucket_of_run(run), run.start_s, run.end_s)})
    for letter, (name, field) in zip("ABC", PERCENTS.items(), strict=True):
        query = board.queries()[f"overview: Latency {letter}"].replace(f"[{board.values['__rate_interval']}]", "[600s]")
        (shown,) = run.asked.at(query, run.end_s + 60)
        wanted = getattr(summary.latency, field)
        assert abs(bisect_right(edges_s, shown) - bisect_right(edges_s, wanted)) <= 1, (name, shown, wanted)


def bucket_of_run(run: Lived) -> str:
    return f'{metrics.STAGE_LATENCY}_bucket{{run="{run.run}"}}'


@pytest.fixture(scope="module")
def two_lived(
    worlds: LocalWorld, local_services: LocalServices, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lived, Lived]:
    """Two scalers on one experiment, one after the other."""
    runs = tmp_path_factory.mktemp("two")
    first, second = (
        lived_on(worlds, local_services, "streams", scaler, runs) for scaler in ("linear", "overprovision")
    )
    return first, second


@pytest.mark.when_changed("grafana", *LIVE_RUN)
def test_two_runs_are_in_one_picture_from_the_start_of_the_second(two_lived: tuple[Lived, Lived]) -> None:
    first, second = two_lived
    board = Opened(second.asked, "two-runs", second.end_s + 60 - RANGE_S, second.end_s + 60)
    assert (board.values["run"], board.values["beside"]) == (second.run, first.run), "the newest, and the one before"
    shown = board.answers()
    assert [name for name, answer in shown.items() if not answer] == []
    for letter, run in (("A", second), ("B", first)):
        summary = summary_of(RunData(run.directory))
        (of,) = shown[f"two-runs: What runs {letter}"]
        assert of.labels["scaler"] == summary.scaler
        (kept,) = shown[f"two-runs: Within the SLO, so far {letter}"]
        assert kept.samples[-1][1] == pytest.approx(summary.slo_share, abs=0.001)
        (lag,) = shown[f"two-runs: Lag {letter}"]
        assert -1 <= lag.samples[0][0] - second.start_s < 5, letter


@pytest.mark.when_changed("grafana", *LIVE_RUN)
def test_the_other_way_round_the_later_run_is_moved_back(two_lived: tuple[Lived, Lived]) -> None:
    first, second = two_lived
    at_s = second.end_s + 60
    board = Opened(first.asked, "two-runs", at_s - RANGE_S, at_s, run=first.run, beside=second.run)
    (lag,) = board.answers()["two-runs: Lag B"]
    assert int(board.values["shift"]) < 0
    assert -1 <= lag.samples[0][0] - first.start_s < 5


@pytest.mark.when_changed("grafana", *LIVE_RUN)
def test_a_run_beside_itself_is_drawn_twice(two_lived: tuple[Lived, Lived]) -> None:
    """As without another run: Prometheus refuses an offset of 0."""
    first, _ = two_lived
    board = first.opened("two-runs", first.end_s + 60, beside=first.run)
    assert [name for name, answer in board.answers().items() if not answer] == []


@pytest.mark.when_changed("grafana", *LIVE_RUN)
def test_replicas_and_lag_of_a_live_run_are_the_journals(two_lived: tuple[Lived, Lived]) -> None:
    asked, directory = two_lived[0]
    run, start_s, to_s = directory.name, two_lived[0].start_s, two_lived[0].end_s - 2
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
