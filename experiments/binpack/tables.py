"""Tables 2 and 3 of the bin-pack paper, its runs with skew, with long rebalances and with other heartbeats, its latency
distributions, and what the phase of the controller's reading changes: printed, by formula, simulated.

``python -m experiments.binpack.tables`` prints them as Markdown; with ``--out FOLDER`` they are also written as CSV,
with every run (``runs.csv``) and the percentiles of latency (``cdf.csv``). The runs are those of ``penstock compare …
--world sim``, without run directories; events of the time after the schedule's end count, decisions then do not.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import typer
from rich.console import Console

from controller.scalers.binpack import BinpackParameters, scale_event_consumer
from controller.scalers.linear import LinearParameters
from controller.scalers.optimal import OptimalParameters, optimal_replicas
from controller.scalers.overprovision import OverprovisionParameters
from controller.scalers.packing import Load, bin_size, pack
from experiments.analysis.decisions import carried_out
from experiments.binpack.experiments import EXPERIMENTS
from experiments.driver import schedule_of
from experiments.experiment import Experiment, Options, run_spec
from experiments.program import run_program
from experiments.progress import RunProgress
from experiments.tables import markdown, spread, write_csv
from penstock.errors import PenstockError
from penstock.measures import Floats, percentiles_s, slo_share
from penstock.plan import range_groups
from penstock.registry import make_scaler, unknown
from producers.workloads import Playback, parse_workload
from simulator.network_play import play
from simulator.stream import LIVE, StreamModel, make_engine

EXAMPLE: Final = "python -m experiments.binpack.tables --only table2,phase --out figures/binpack"
BY_NAME: Final = {experiment.name: experiment for experiment in EXPERIMENTS}
WORKLOAD_1, NYC = "binpack-workload-1", "binpack-nyc"
POLICIES: Final = ("binpack-tail", "binpack", "linear", "optimal", "overprovision")
PHASES_S: Final = (0.0, 0.05, 0.10, 0.12, 0.20)
REBALANCE_TIMES_S: Final = (0.5, 2.0)
JITTER_PER_S: Final = 2.6
"""How much the taxi series moves from one second to the next; the shipped curve is smooth (spec workloads.md)."""
SESSION_OF_HEARTBEAT_S: Final = {0.5: 3.0, 3.0: 10.0}
"""Session time-outs: Kafka 2.7's for its default heartbeat, and one that six heartbeats of 0.5 s fit in."""

INSTANT: Final = StreamModel(rebalance_s=0.05, stop_s=0.0, leaving_rebalances=False)
"""The burst model of the specification (4.10b): replicas come and go at once, one stop of all for t_r = 50 ms."""

PRINTED_REBALANCES: Final[Mapping[tuple[str, float], tuple[float, float]]] = {
    ("binpack", 0.5): (0.901, 33.85),
    ("binpack", 2.0): (0.854, 34.16),
    ("binpack-tail", 0.5): (0.982, 34.61),
    ("binpack-tail", 2.0): (0.994, 44.7),
}
"""Section 5 on workload 1, by (algorithm, t_r): share within the SLO, replica-minutes. The text also has 85.6 %."""
PRINTED_HEARTBEATS: Final[Mapping[tuple[str, str, float | None], tuple[float, str]]] = {
    (WORKLOAD_1, "binpack-tail", 0.5): (0.981, "< 1"),
    (WORKLOAD_1, "binpack-tail", 3.0): (0.974, "about 3"),
    (WORKLOAD_1, "linear", 3.0): (0.947, "–"),
    (NYC, "binpack-tail", 0.5): (0.9907, "< 1"),
    (NYC, "binpack-tail", 3.0): (0.989, "about 3"),
    (NYC, "linear", 3.0): (0.954, "–"),
}
"""Section 5.2, and Tables 2 and 3 for 3 s: share within the SLO, longest latency in seconds."""

SHOWN_PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 100.0)
PERCENTILES: Final = (*map(float, range(1, 100)), *(99 + tenth / 10 for tenth in range(1, 10)), 100.0)

# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the paper's tables: an experiment under a scaler, and what is changed of it.

    ``rebalance_time_s``: a stop of all for t_r after each rebalance, which Algorithm 2 reckons with. ``heartbeat_s``:
    replicas learn of a rebalance with their heartbeat; None: at once. ``jitter_per_s`` is the taxi workload's.
    ``by_arrival``: a replica serves its events in order of arrival, not its partitions in turns as Kafka's consumer
    hands them out.
    ``instant``: the burst model instead of the sim world's group.
    """

    experiment: str
    scaler: str
    phase_s: float = 0.10
    rebalance_time_s: float | None = None
    heartbeat_s: float | None = None
    jitter_per_s: float = 0.0
    by_arrival: bool = False
    instant: bool = False

    @property
    def model(self) -> StreamModel:
        """What a consumer group takes."""
        return INSTANT if self.instant else LIVE

    @property
    def label(self) -> str:
        """The scaler with what is changed of the experiment."""
        changes = (
            (f"phase {self.phase_s:g} s", self.phase_s != BY_NAME[self.experiment].tick_phase_s),
            (f"t_r {self.rebalance_time_s} s", self.rebalance_time_s is not None),
            (f"heartbeat {self.heartbeat_s} s", self.heartbeat_s is not None),
            (f"jitter {self.jitter_per_s:g}/s", self.jitter_per_s > 0),
            ("in order of arrival", self.by_arrival),
            ("instant replicas", self.instant),
        )
        return ", ".join((self.scaler, *(text for text, changed in changes if changed)))

    def __str__(self) -> str:
        return f"{self.experiment}, {self.label}"


class Outcome(NamedTuple):
    """What one run came to. ``percentiles_s``: latency at each of ``PERCENTILES``."""

    slo_share: float
    replica_minutes: float
    added: int
    removed: int
    up_actions: int
    down_actions: int
    reassignments: int
    percentiles_s: Floats

    @property
    def longest_s(self) -> float:
        """The longest latency of all."""
        return float(self.percentiles_s[-1])


Results = Mapping[Case, Sequence[Outcome]]


def experiment_of(case: Case) -> Experiment:
    """The experiment as the catalogue has it, with jitter where the case wants some."""
    experiment = BY_NAME[case.experiment]
    if not case.jitter_per_s:
        return experiment
    return dataclasses.replace(experiment, workload=f"{experiment.workload}:jitter_per_s={case.jitter_per_s:g}")


def options_of(case: Case, seed: int) -> Options:
    """What ``penstock compare`` would be told."""
    worker: dict[str, str] = {}
    settings: dict[str, dict[str, str]] = {}
    if case.rebalance_time_s is not None:
        worker["rebalance_pause_s"] = str(case.rebalance_time_s)
        settings["binpack-tail"] = {"rebalance_time_s": str(case.rebalance_time_s)}
    if case.heartbeat_s is not None:
        session_s = SESSION_OF_HEARTBEAT_S[case.heartbeat_s]
        worker |= {
            "directed_rebalance": "false",
            "heartbeat_s": str(case.heartbeat_s),
            "session_timeout_s": str(session_s),
        }
    if case.instant:
        worker["commit_interval_s"] = "0"
    system = {"batch": "0"} if case.by_arrival else {}
    return Options(world="sim", seed=seed, tick_phase_s=case.phase_s, worker=worker, system=system, settings=settings)


def simulate(case: Case, seed: int) -> Outcome:
    """One run in virtual time."""
    experiment, options = experiment_of(case), options_of(case, seed)
    spec = run_spec(experiment, case.scaler, options, run=f"{case.experiment}-{case.scaler}-{seed}")
    engine = make_engine(spec, schedule_of(experiment, options, spec), case.model)
    played = play(spec, engine, make_scaler(spec.scaler))
    table = played.results
    # In whole nanoseconds, as runs are written: an event after exactly 0.5 s is within the SLO.
    latency_s = (np.rint(table.finished_s * 1e9) - np.rint(table.intended_s * 1e9)) / 1e9
    counts = carried_out(played.ticks)
    return Outcome(
        slo_share=slo_share(latency_s, spec.slo_s),
        replica_minutes=played.replica_minutes(),
        added=counts.replicas_added,
        removed=counts.replicas_removed,
        up_actions=counts.up_actions,
        down_actions=counts.down_actions,
        reassignments=counts.reassignments,
        percentiles_s=percentiles_s(latency_s, PERCENTILES),
    )


# --- formulas --------------------------------------------------------------------------------------------------------


class Formula(NamedTuple):
    """A policy applied to the rate of each second, by itself: no queue, no consumer group, no time to act in."""

    replica_minutes: float
    added: int
    removed: int
    up_actions: int
    down_actions: int


def rates_per_s(experiment: Experiment) -> list[float]:
    """Events per second of the workload, one value for each of its seconds."""
    rates: list[float] = Playback(parse_workload(experiment.workload), seconds=experiment.seconds).step_rates().tolist()
    return rates


def replay(wanted: Callable[[float, int], int], rates: Iterable[float], hold_s: float, replicas: int = 1) -> Formula:
    """``wanted(rate, replicas)`` is asked each second unless the last change was ``hold_s`` ago or less."""
    total = added = removed = ups = downs = 0
    changed_s = -inf
    for second, rate in enumerate(rates):
        if second - changed_s > hold_s:
            target = wanted(rate, replicas)
            if target != replicas:
                changed_s = second
            ups, downs = ups + (target > replicas), downs + (target < replicas)
            added, removed = added + max(0, target - replicas), removed + max(0, replicas - target)
            replicas = target
        total += replicas
    return Formula(total / 60, added, removed, ups, downs)


def by_formula(experiment: Experiment, scaler: str, lag_s: float = 0.0) -> Formula:
    """Replicas of a policy on the experiment's rates, split as its partitions are. ``lag_s``: how many seconds of
    arrivals the bin-pack algorithm sees waiting. Optimal and overprovision know no hold.
    """
    rates, partitions, most = rates_per_s(experiment), experiment.partitions, experiment.max_replicas
    weights = experiment.partition_weights or (1 / partitions,) * partitions
    parameters = make_scaler(run_spec(experiment, scaler, Options(world="sim"), run="formula").scaler).parameters
    if isinstance(parameters, OptimalParameters):
        capacity = parameters.replica_capacity_per_s
        return replay(lambda rate, _: min(optimal_replicas(rate, partitions, capacity), most), rates, hold_s=0)
    if isinstance(parameters, OverprovisionParameters):
        share = parameters.peak_rate_per_s / partitions
        size = bin_size(parameters.service_rate_per_s, parameters.slo_s, parameters.f_up)
        packing = pack(Load([share * parameters.lag_s] * partitions, [share] * partitions), size, most=most)
        assert packing is not None
        needed = packing.bins
        return replay(lambda *_: needed, rates, hold_s=0)
    if isinstance(parameters, LinearParameters):
        linear = parameters
        return replay(lambda rate, _: min(linear.needed(rate, linear.f_up), most), rates, linear.hold_s)
    assert isinstance(parameters, BinpackParameters)
    up, down = parameters.bins()
    current = range_groups(range(partitions), experiment.initial_replicas)

    def algorithm_1(rate: float, replicas: int) -> int:
        nonlocal current
        shares = [rate * weight for weight in weights]
        scaling = scale_event_consumer(
            Load([lag_s * share for share in shares], shares), current, replicas, up, down, most
        )
        current = scaling.groups
        return scaling.replicas

    return replay(algorithm_1, rates, parameters.hold_s)


# --- words -----------------------------------------------------------------------------------------------------------


def pair(outcomes: Sequence[Outcome], first: str, second: str) -> str:
    """Two counts as ups/downs; the mean of each, and the ranges where there are any."""
    texts = []
    for name in (first, second):
        values = [float(getattr(outcome, name)) for outcome in outcomes]
        texts.append(spread(values, 0 if len(set(values)) == 1 else 1))
    return " / ".join(texts)


def shares_text(outcomes: Sequence[Outcome]) -> str:
    """Share within the SLO in %."""
    return spread([100 * outcome.slo_share for outcome in outcomes], 2) + " %"


def cost_text(outcomes: Sequence[Outcome]) -> str:
    """Replica-minutes."""
    costs = [outcome.replica_minutes for outcome in outcomes]
    return spread(costs, 1 if np.mean(costs) >= 100 else 2)


def change(outcomes: Sequence[Outcome], field: str, printed: float | None) -> str:
    """Mean against print: points for a share, % for a cost."""
    if printed is None:
        return "–"
    mean = float(np.mean([getattr(outcome, field) for outcome in outcomes]))
    points = 100 * (mean - printed if field == "slo_share" else mean / printed - 1)
    return f"{round(points, 1) + 0.0:+.1f} {'points' if field == 'slo_share' else '%'}"  # never -0.0


# --- sections --------------------------------------------------------------------------------------------------------


class Section(NamedTuple):
    """A table of the paper: the runs that it needs, and its rows once they are there."""

    title: str
    cases: tuple[Case, ...]
    headings: tuple[str, ...]
    rows: Callable[[Results], Iterable[Sequence[str]]]


def comparison(title: str, cases: Sequence[Case]) -> Section:
    """Printed, formula and simulated of each case, measure by measure."""

    def rows(results: Results) -> Iterator[Sequence[str]]:
        for case in cases:
            yield from _compared(case, results[case])

    headings = ("experiment", "scaler", "measure", "printed", "formula", "simulated", "simulated against printed")
    return Section(title, tuple(cases), headings, rows)


def _compared(case: Case, outcomes: Sequence[Outcome]) -> Iterator[Sequence[str]]:
    experiment = experiment_of(case)
    printed = experiment.printed.get(case.scaler, {})
    lags_s = (0.0, 1.0) if case.scaler.startswith("binpack") else (0.0,)
    formulas = [by_formula(experiment, case.scaler, lag_s) for lag_s in lags_s]
    digits = 1 if formulas[0].replica_minutes >= 100 else 2
    costs = " to ".join(f"{formula.replica_minutes:.{digits}f}" for formula in formulas)
    replicas = " to ".join(f"{formula.added} / {formula.removed}" for formula in formulas)
    actions = " to ".join(f"{formula.up_actions} / {formula.down_actions}" for formula in formulas)
    share, cost = printed.get("slo_share"), printed.get("replica_minutes")
    scales = f"{printed['ups']:g} / {printed['downs']:g}" if "ups" in printed else "–"
    yield (
        case.experiment,
        case.label,
        "SLO share",
        "–" if share is None else f"{100 * share:.4g} %",
        "–",
        shares_text(outcomes),
        change(outcomes, "slo_share", share),
    )
    yield (
        case.experiment,
        case.label,
        "replica-minutes",
        "–" if cost is None else f"{cost:g}",
        costs,
        cost_text(outcomes),
        change(outcomes, "replica_minutes", cost),
    )
    yield (
        case.experiment,
        case.label,
        "replicas added / removed",
        scales,
        replicas,
        pair(outcomes, "added", "removed"),
        "–",
    )
    yield (
        case.experiment,
        case.label,
        "up / down actions",
        scales,
        actions,
        pair(outcomes, "up_actions", "down_actions"),
        "–",
    )


def phase_section() -> Section:
    """The controller's phase, in the sim world and in the burst model."""
    swept = [(WORKLOAD_1, "binpack-tail"), (WORKLOAD_1, "linear"), (NYC, "binpack-tail")]
    cases = [
        Case(experiment=experiment, scaler=scaler, phase_s=phase_s, instant=instant)
        for experiment, scaler in swept
        for phase_s in PHASES_S
        for instant in (False, True)
    ]

    def rows(results: Results) -> Iterator[Sequence[str]]:
        for world, burst in zip(cases[::2], cases[1::2], strict=True):
            cells: list[str] = []
            for case in (world, burst):
                some = results[case]
                cells += [shares_text(some), cost_text(some), pair(some, "added", "removed")]
            yield world.experiment, world.scaler, f"{world.phase_s:.2f}", *cells

    measures = ("SLO share", "replica-minutes", "added / removed")
    headings = (*measures, *(f"{measure}, instant" for measure in measures))
    return Section(
        "Phase of the controller's reading after each burst",
        tuple(cases),
        ("experiment", "scaler", "phase s", *headings),
        rows,
    )


def rebalance_section() -> Section:
    """Algorithms 1 and 2 on workload 1 with a stop of all for t_r at each rebalance."""
    cases = [
        Case(experiment=WORKLOAD_1, scaler=scaler, rebalance_time_s=t_r_s)
        for scaler in ("binpack", "binpack-tail")
        for t_r_s in REBALANCE_TIMES_S
    ]

    def rows(results: Results) -> Iterator[Sequence[str]]:
        for case in cases:
            assert case.rebalance_time_s is not None
            share, cost = PRINTED_REBALANCES[case.scaler, case.rebalance_time_s]
            some = results[case]
            yield (
                case.scaler,
                f"{case.rebalance_time_s:g}",
                f"{100 * share:.1f} %",
                shares_text(some),
                change(some, "slo_share", share),
                f"{cost:g}",
                cost_text(some),
                change(some, "replica_minutes", cost),
                pair(some, "added", "removed"),
                spread([outcome.reassignments for outcome in some], 0),
            )

    headings = ("scaler", "t_r s", "SLO share, printed", "simulated", "difference", "replica-minutes, printed")
    counts = ("simulated", "difference", "added / removed", "reassignments")
    return Section("Rebalance time, workload 1", tuple(cases), (*headings, *counts), rows)


def heartbeat_section() -> Section:
    """Algorithm 2 and Linear when replicas learn of a rebalance at once, or with their heartbeat.

    Tables 2 and 3 of the paper were measured with heartbeats of 3 s.
    """
    cases = [
        Case(experiment=experiment, scaler=scaler, heartbeat_s=heartbeat_s, by_arrival=by_arrival)
        for experiment in (WORKLOAD_1, NYC)
        for scaler, by_arrival in (("binpack-tail", False), ("binpack-tail", True), ("linear", False))
        for heartbeat_s in (None, *SESSION_OF_HEARTBEAT_S)
    ]

    def rows(results: Results) -> Iterator[Sequence[str]]:
        for case in cases:
            some = results[case]
            share, longest = PRINTED_HEARTBEATS.get((case.experiment, case.scaler, case.heartbeat_s), (None, "–"))
            yield (
                case.experiment,
                case.scaler + (", in order of arrival" if case.by_arrival else ""),
                "at once" if case.heartbeat_s is None else f"by heartbeat, {case.heartbeat_s:g} s",
                "–" if share is None else f"{100 * share:.4g} %",
                shares_text(some),
                change(some, "slo_share", share),
                longest,
                spread([outcome.longest_s for outcome in some], 2),
                cost_text(some),
                pair(some, "added", "removed"),
                spread([outcome.reassignments for outcome in some], 0),
                spread([1.0 + outcome.added for outcome in some], 0),
            )

    headings = ("experiment", "scaler", "told of a rebalance", "SLO share, printed", "simulated", "difference")
    latency = ("longest latency s, printed", "simulated", "replica-minutes")
    more = (*latency, "added / removed", "reassignments", "consumers in all")
    return Section("Heartbeat", tuple(cases), (*headings, *more), rows)


def cdf_section() -> Section:
    """Latency distributions; ``cdf.csv`` has more percentiles of them."""
    cases = [Case(experiment=experiment, scaler=scaler) for experiment in (WORKLOAD_1, NYC) for scaler in POLICIES]
    cases += [
        Case(experiment=experiment, scaler="binpack-tail", heartbeat_s=heartbeat_s)
        for experiment in (WORKLOAD_1, NYC)
        for heartbeat_s in SESSION_OF_HEARTBEAT_S
    ]
    shown = [PERCENTILES.index(percentile) for percentile in SHOWN_PERCENTILES]

    def rows(results: Results) -> Iterator[Sequence[str]]:
        for case in cases:
            latencies_s = ([float(one.percentiles_s[index]) for one in results[case]] for index in shown)
            yield str(case), *(spread(values, 3) for values in latencies_s)

    headings = ("run", *(f"p{percentile:g} s" for percentile in SHOWN_PERCENTILES))
    return Section("Latency from the intended send time", tuple(cases), headings, rows)


SECTIONS: Final[Mapping[str, Section]] = {
    "table2": comparison(
        "Table 2, workload 1",
        [
            *(Case(experiment=WORKLOAD_1, scaler=scaler) for scaler in POLICIES),
            Case(experiment=WORKLOAD_1, scaler="binpack-tail", by_arrival=True),
        ],
    ),
    "table3": comparison(
        "Table 3, NYC taxi",
        [
            *(Case(experiment=NYC, scaler=scaler) for scaler in POLICIES),
            Case(experiment=NYC, scaler="binpack-tail", by_arrival=True),
            *(
                Case(experiment=NYC, scaler=scaler, jitter_per_s=JITTER_PER_S)
                for scaler in ("binpack-tail", "linear", "optimal")
            ),
        ],
    ),
    "skew": comparison(
        "Half of the rate on two of 9 partitions",
        [
            Case(experiment=f"{experiment}-skewed", scaler=scaler, by_arrival=by_arrival)
            for experiment in (WORKLOAD_1, NYC)
            for scaler, by_arrival in (
                ("binpack-tail", False),
                ("binpack-tail", True),
                ("binpack", False),
                ("linear", False),
            )
        ],
    ),
    "rebalance": rebalance_section(),
    "heartbeat": heartbeat_section(),
    "cdf": cdf_section(),
    "phase": phase_section(),
}


# --- the command -----------------------------------------------------------------------------------------------------

CASE_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Case))


def run_rows(results: Results) -> Iterator[Sequence[object]]:
    """One row for each run."""
    for case, outcomes in results.items():
        for seed, outcome in enumerate(outcomes, 1):
            yield *dataclasses.astuple(case), seed, *outcome[:-1], outcome.longest_s


def cdf_rows(cases: Sequence[Case], results: Results) -> Iterator[Sequence[float]]:
    """Percentile, then the latency of each case in seconds: means over the seeds."""
    means = [np.mean([outcome.percentiles_s for outcome in results[case]], axis=0) for case in cases]
    for index, percentile in enumerate(PERCENTILES):
        yield percentile, *(round(float(mean[index]), 6) for mean in means)


def chosen(only: str) -> dict[str, Section]:
    """The sections of ``--only``, in the paper's order. PenstockError for one that is not there."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in SECTIONS:
            raise unknown("table", name, SECTIONS, f"--only takes {', '.join(SECTIONS)}, separated by commas")
    return {name: section for name, section in SECTIONS.items() if name in names} if names else dict(SECTIONS)


def make_folder(out: Path) -> None:
    """``--out`` and what lies above it. PenstockError where that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(f"--out {out}: cannot be made ({error.strerror}); give a folder") from None


def main(
    out: Annotated[Path | None, typer.Option(help="Folder for the CSV files; made if it is not there.")] = None,
    only: Annotated[
        str, typer.Option(help=f"Some of {', '.join(SECTIONS)}, separated by commas; all unless given.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each case, with seeds 1, 2, ….")] = 3,
) -> None:
    """Simulate the bin-pack paper's tables and print them; all of them take some minutes, table2 some seconds."""
    sections = chosen(only)
    if out is not None:
        make_folder(out)
    results: dict[Case, list[Outcome]] = {}
    cases = list(dict.fromkeys(case for section in sections.values() for case in section.cases))
    with RunProgress(Console(stderr=True), runs=len(cases)) as progress:
        for name, section in sections.items():
            for case in section.cases:
                if case not in results:
                    progress.begin(str(case))
                    results[case] = [simulate(case, seed) for seed in range(1, seeds + 1)]
            rows = [list(row) for row in section.rows(results)]
            typer.echo(f"## {section.title}\n\n{markdown(section.headings, rows)}")
            if out is not None:
                write_csv(out / f"{name}.csv", section.headings, rows)
    if out is not None:
        run_fields = (*CASE_FIELDS, "seed", *Outcome._fields[:-1], "longest_s")
        write_csv(out / "runs.csv", run_fields, run_rows(results))
        if "cdf" in sections:
            curves = sections["cdf"].cases
            write_csv(out / "cdf.csv", ("percentile", *map(str, curves)), cdf_rows(curves, results))


if __name__ == "__main__":
    run_program(main, EXAMPLE)
