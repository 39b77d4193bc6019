"""Live runs of the bin-pack experiments, each beside its simulation.

``live.csv`` has a row for each run whose figures the README tells. ``penstock paper binpack recorded RUN…`` makes such
rows of run directories; with ``--out`` as CSV. The simulation of a live run, its twin, has the same slice, settings and
events, the delays of the live world (``penstock/measured.py``; rebalances as long as they then were) and the mean
service time of the live run; the scaler expects 200 events/s, as it did live. Twenty seeds show by how much runs
differ.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from experiments.binpack.experiments import EXPERIMENTS
from experiments.experiment import Options, run_spec
from experiments.paper import UNKNOWN, Cells, PaperTable, Request, printed_values, spread
from experiments.processes import Remembered
from experiments.run_result import recorded, simulate
from penstock.measures import percentiles_s, slo_share
from report.analysis.decisions import carried_out, steps
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData

BY_NAME: Final = {experiment.name: experiment for experiment in EXPERIMENTS}
PLACES: Final = {"binpack-workload-1": "workload 1", "binpack-nyc": "NYC"}
NOT_MEASURED: Final = "not measured yet"
SERVICE_RATE_PER_S: Final = 200.0
"""What every scaler expects of a replica: the floor of 5 ms."""
REBALANCE_S: Final = 0.09
"""Seconds of a rebalance in all these live runs, which are older than decision 0029."""


def place(experiment: str) -> str:
    """The workload as a title."""
    name = PLACES[experiment.removesuffix("-skewed")]
    return f"{name}, half on two of 9 partitions" if experiment.endswith("-skewed") else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What distinguishes runs. ``seconds`` from ``from_s`` on; None: to the end. ``told_s``: the t_r that the scaler
    expects, None where it expects none; ``rebalance_time_s`` and ``heartbeat_s`` as in ``tables.Case``.
    """

    experiment: str
    scaler: str
    world: str = "local"
    from_s: float = 0.0
    seconds: float | None = None
    phase_s: float = 0.10
    rebalance_time_s: float | None = None
    heartbeat_s: float | None = None
    session_timeout_s: float | None = None
    told_s: float | None = None

    @property
    def slice(self) -> str:
        """The seconds of the workload; "" for all of them."""
        return "" if self.seconds is None else f"seconds {self.from_s:g}–{self.from_s + self.seconds:g}"

    @property
    def label(self) -> str:
        """Everything but the scaler."""
        changes = (
            (self.slice, self.seconds is not None),
            (f"phase {self.phase_s:.2f} s", self.phase_s != BY_NAME[self.experiment].tick_phase_s),
            (f"heartbeat {self.heartbeat_s or 0:g} s", self.heartbeat_s is not None),
            (f"t_r {self.rebalance_time_s or 0:g} s", self.rebalance_time_s is not None),
            ("on pods", self.world == "kubernetes"),
        )
        return ", ".join((place(self.experiment), *(text for text, changed in changes if changed)))


class Measures(NamedTuple):
    """Of one run, live or simulated. The live ones that were not kept are None."""

    slo_share: float
    replica_minutes: float | None = None
    added: int | None = None
    removed: int | None = None
    up_actions: int | None = None
    down_actions: int | None = None
    reassignments: int | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    longest_s: float | None = None


class LiveRun(NamedTuple):
    """A row of ``live.csv``. ``cpu_stolen``: share of the cores' time that the machine's host gave to others."""

    conditions: Conditions
    seed: int
    verdict: str
    cpu_stolen: float | None
    service_ms: float | None
    measures: Measures

    def row(self) -> dict[str, Any]:
        """As ``live.csv`` has it; unknown values are empty."""
        head = {"seed": self.seed, "verdict": self.verdict, "cpu_stolen": self.cpu_stolen}
        values = dataclasses.asdict(self.conditions) | head
        values |= {"service_ms": self.service_ms} | self.measures._asdict()
        return {name: "" if value is None else _short(value) for name, value in values.items()}


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read(row: Mapping[str, Any]) -> LiveRun:
    """From a row of ``live.csv``; empty cells are left out of it."""
    conditions = {field.name: row[field.name] for field in dataclasses.fields(Conditions) if field.name in row}
    measures = {name: row[name] for name in Measures._fields if name in row}
    return LiveRun(
        Conditions(**conditions),
        seed=row["seed"],
        verdict=row["verdict"],
        cpu_stolen=row.get("cpu_stolen"),
        service_ms=row.get("service_ms"),
        measures=Measures(**measures),
    )


LIVE: Final = [read(row) for row in printed_values(__file__, "live.csv")]


def live_run(run: RunData) -> LiveRun:
    """Of a finished run directory."""
    spec, summary = run.spec, summary_of(run)
    experiment = BY_NAME[spec.experiment]
    from_s, seconds = (float(spec.workload[name]) for name in ("from_s", "seconds"))
    directed, latency, service_s = spec.worker.directed_rebalance, summary.latency, summary.service.mean_s
    counts = summary.scale
    return LiveRun(
        Conditions(
            experiment=spec.experiment,
            scaler=spec.scaler.name,
            world=spec.world,
            from_s=from_s,
            seconds=None if seconds == experiment.seconds else seconds,
            phase_s=spec.tick_phase_s,
            rebalance_time_s=spec.worker.rebalance_pause_s or None,
            heartbeat_s=None if directed else spec.worker.heartbeat_s,
            session_timeout_s=None if directed else spec.worker.session_timeout_s,
            told_s=spec.scaler.parameters.get("rebalance_time_s"),
        ),
        seed=spec.seed,
        verdict=summary.verdict,
        cpu_stolen=summary.cpu_stolen,
        service_ms=None if service_s is None else 1000 * service_s,
        measures=Measures(
            slo_share=summary.slo_share or 0.0,
            replica_minutes=summary.replica_minutes,
            added=counts.replicas_added,
            removed=counts.replicas_removed,
            up_actions=counts.up_actions,
            down_actions=counts.down_actions,
            reassignments=counts.reassignments,
            p50_s=latency.p50_s,
            p95_s=latency.p95_s,
            p99_s=latency.p99_s,
            longest_s=latency.max_s,
        ),
    )


# --- twins -----------------------------------------------------------------------------------------------------------


def options_of(conditions: Conditions, service_ms: float, seed: int) -> Options:
    """The options of ``penstock run --world sim`` for a run under these conditions with this mean service time."""
    worker = {"service_time_s": str(service_ms / 1000)}
    if conditions.rebalance_time_s is not None:
        worker["rebalance_pause_s"] = str(conditions.rebalance_time_s)
    if conditions.heartbeat_s is not None:
        worker |= {"directed_rebalance": "false", "heartbeat_s": str(conditions.heartbeat_s)}
        worker |= {"session_timeout_s": str(conditions.session_timeout_s)}
    slice_ = Options(world="sim", from_s=conditions.from_s, seconds=conditions.seconds)
    told = {} if conditions.told_s is None else {"rebalance_time_s": str(conditions.told_s)}
    experiment = BY_NAME[conditions.experiment]
    return dataclasses.replace(
        slice_,
        seed=seed,
        tick_phase_s=conditions.phase_s,
        worker=worker,
        system={"rebalance_s": str(REBALANCE_S)},
        settings={conditions.scaler: {"service_rate_per_s": str(SERVICE_RATE_PER_S), **told}},
        # As many at first as live, where the service time was that of the experiment.
        initial_replicas=run_spec(experiment, conditions.scaler, slice_, run="live").initial_replicas,
    )


@Remembered
def twin(conditions: Conditions, service_ms: float, seed: int) -> Measures:
    """One simulation of a live run."""
    experiment = BY_NAME[conditions.experiment]
    played = simulate(experiment, conditions.scaler, options_of(conditions, service_ms, seed))
    table = played.results
    latency_s = (np.rint(table.finished_s * 1e9) - np.rint(table.intended_s * 1e9)) / 1e9
    counts = carried_out(steps(played.ticks))
    return Measures(
        slo_share(latency_s, experiment.slo_s),
        played.replica_minutes(),
        counts.replicas_added,
        counts.replicas_removed,
        counts.up_actions,
        counts.down_actions,
        counts.reassignments,
        *percentiles_s(latency_s, (50.0, 95.0, 99.0, 100.0)).tolist(),
    )


class Pair(NamedTuple):
    """A live run, the simulation of its seed, and the simulations of all seeds, that one included."""

    live: LiveRun
    twin: Measures
    seeds: Sequence[Measures]


def pairs(request: Request) -> Iterator[Pair]:
    """Of each live run whose service time is known."""
    for run in request.each(LIVE, lambda run: f"{run.conditions.label}, {run.conditions.scaler}"):
        if run.service_ms is not None:
            own, *all_seeds = twin.each(
                (run.conditions, run.service_ms, seed) for seed in (run.seed, *request.settings.seeds)
            )
            yield Pair(run, own, all_seeds)


# --- cells -----------------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """A measure in a table: its title, scale and digits."""

    title: str
    name: str
    scale: float = 1.0
    digits: int = 2

    def of(self, measures: Measures) -> float | None:
        """Its value."""
        value = getattr(measures, self.name)
        return None if value is None else self.scale * value

    def text(self, runs: Iterable[Measures]) -> str:
        """Mean and range."""
        return spread([self.of(run) for run in runs], self.digits)


SHARE: Final = Shown("share within the SLO, %", "slo_share", 100)
COST: Final = Shown("replica-minutes", "replica_minutes")
COMPARED: Final = (
    SHARE,
    COST,
    Shown("p50, ms", "p50_s", 1000, 0),
    Shown("p95, ms", "p95_s", 1000, 0),
    Shown("p99, ms", "p99_s", 1000, 0),
    Shown("longest, s", "longest_s"),
    Shown("reassignments", "reassignments", digits=0),
)
"""The columns of live runs beside their twins."""


def counts(runs: Iterable[Measures], ups: str = "added", downs: str = "removed") -> str:
    """Two counts as ups / downs."""
    known = list(runs)
    return " / ".join(Shown("", name, digits=0).text(known) for name in (ups, downs))


def runs_of(
    experiment: str, scaler: str, phase_s: float = 0.10, rebalance_time_s: float | None = None,
    heartbeat_s: float | None = None,
) -> list[LiveRun]:  # fmt: skip
    """Live runs on processes under these conditions: of the whole workload if there are any, else of one slice."""
    wanted = (experiment, scaler, "local", phase_s, rebalance_time_s, heartbeat_s)
    found = [
        run
        for run in LIVE
        if wanted
        == (
            (c := run.conditions).experiment, c.scaler, c.world, c.phase_s, c.rebalance_time_s, c.heartbeat_s
        )
    ]  # fmt: skip
    whole = [run for run in found if run.conditions.seconds is None]
    return whole or [run for run in found if run.conditions == found[0].conditions]


def cell(runs: Sequence[LiveRun], *names: str) -> str:
    """A cell of a live column: means over the runs. ``added`` and ``up_actions`` are told with their opposites."""
    measures = [run.measures for run in runs]
    cells: dict[str, Callable[[], str]] = {
        "slo_share": lambda: SHARE.text(measures) + " %",
        "replica_minutes": lambda: COST.text(measures),
        "added": lambda: counts(measures),
        "up_actions": lambda: counts(measures, "up_actions", "down_actions"),
    }
    where = runs[0].conditions.slice
    text = ", ".join(cells[name]() for name in names)
    return f"{text} in {where}" if where else text


# --- tables ----------------------------------------------------------------------------------------------------------


def side_by_side(request: Request) -> Iterator[Cells]:
    """A row for each live run: live / its twin (range of the simulated seeds)."""
    known = {id(found.live): found for found in pairs(request)}
    for run in LIVE:
        found = known.get(id(run))
        row = {
            "live run": f"{run.conditions.label}: {run.conditions.scaler}"
            + ("" if run.seed == 1 else f", seed {run.seed}"),
            "verdict": run.verdict,
            "taken by the host": UNKNOWN if run.cpu_stolen is None else f"{100 * run.cpu_stolen:.1f} %",
            "service, ms": UNKNOWN if run.service_ms is None else f"{run.service_ms:.2f}",
        }
        for shown in COMPARED:
            kept = shown.of(run.measures) is not None
            twins = f" / {_with_range(shown, found)}" if found is not None and kept else ""
            row[shown.title] = shown.text([run.measures]) + twins
        twins = "" if found is None or run.measures.added is None else f"; {counts([found.twin])}"
        row["added / removed"] = (UNKNOWN if run.measures.added is None else counts([run.measures])) + twins
        yield row


def _with_range(shown: Shown, found: Pair) -> str:
    """The twin's value, and in brackets the range over the seeds where it shows."""
    own = shown.text([found.twin])
    values = [value for each in found.seeds if (value := shown.of(each)) is not None]
    low, high = (f"{value:.{shown.digits}f}" for value in (min(values), max(values)))
    return own if low == high else f"{own} ({low}–{high})"


def pair_rows(request: Request) -> Iterator[Cells]:
    """As ``experiments/fidelity.csv`` has them: means over the runs of each scaler under the same conditions; whether
    the live mean lies within the range of the simulated seeds.
    """
    groups: dict[Conditions, list[Pair]] = {}
    for found in pairs(request):
        groups.setdefault(found.live.conditions, []).append(found)
    for conditions, some in groups.items():
        for shown in COMPARED[:-1]:
            live = [value for each in some if (value := shown.of(each.live.measures)) is not None]
            simulated = [value for each in some if (value := shown.of(each.twin)) is not None]
            if not live:
                continue
            seeds = [value for each in some for one in each.seeds if (value := shown.of(one)) is not None]
            mean = float(np.mean(live))
            yield {
                "paper": "binpack",
                "case": conditions.label,
                "scaler": conditions.scaler,
                "measure": shown.title,
                "live": round(mean, shown.digits),
                "simulated": round(float(np.mean(simulated)), shown.digits),
                "runs": len(live),
                "within the range": min(seeds) <= mean <= max(seeds),
            }


TABLES: Final = (
    PaperTable("live", "Live runs / their simulation (range of the seeds)", side_by_side),
    PaperTable("pairs", "Live runs beside their simulation, for experiments/fidelity.csv", pair_rows),
    PaperTable(
        "recorded",
        "Run directories as rows of experiments/binpack/live.csv",
        lambda request: (live_run(run).row() for run in recorded(request, EXPERIMENTS)),
        source="recorded",
    ),
)
