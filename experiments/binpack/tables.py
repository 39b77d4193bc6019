"""Tables 2 and 3 of the bin-pack paper, its runs with skew, with long rebalances and with other heartbeats, its latency
distributions, and the effect of the controller's tick phase: printed, by formula, simulated.

``penstock paper binpack`` lists them. The runs are those of ``penstock compare … --world sim`` under the paper's
conditions (``PAPER_SYSTEM``), without run directories; events after the schedule's end count, decisions after it do
not.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product, zip_longest
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from controller.scalers.binpack import BinpackParameters, scale_event_consumer
from controller.scalers.linear import LinearParameters
from controller.scalers.optimal import OptimalParameters, optimal_replicas
from controller.scalers.overprovision import OverprovisionParameters
from controller.scalers.shared.pack import pack
from controller.scalers.shared.packing import Load, bin_size
from experiments.binpack import live
from experiments.binpack.experiments import EXPERIMENTS, printed
from experiments.experiment import Experiment, Options, run_spec
from experiments.paper import TWENTY, UNKNOWN, Cells, PaperTable, Request, Settings, median_range
from experiments.processes import Remembered
from experiments.run_result import simulate as run_in_memory
from penstock.measures import Floats, percentiles_s, slo_share
from penstock.plan import range_groups
from penstock.registry import make_scaler
from producers.workloads import Playback, parse_workload
from report.analysis.decisions import carried_out, steps

BY_NAME: Final = {experiment.name: experiment for experiment in EXPERIMENTS}
WORKLOAD_1, NYC = "binpack-workload-1", "binpack-nyc"
POLICIES: Final = ("binpack-tail", "binpack", "linear", "optimal", "overprovision")
SEEDS_OF_PHASES: Final = 3
"""Of the cases by tick phase, whose ranges are narrow."""
PHASES_S: Final = (0.0, 0.05, 0.10, 0.12, 0.20)
JITTER_PER_S: Final = 2.6
"""How much the taxi series moves from one second to the next; the shipped curve is smooth."""
SESSION_OF_HEARTBEAT_S: Final = {0.5: 3.0, 3.0: 10.0}
"""Session time-outs: Kafka 2.7's for its default heartbeat, and one that six heartbeats of 0.5 s fit in."""

PAPERS_HEARTBEAT_S: Final = 3.0
"""Of the paper's consumers, unless it says otherwise."""

PAPER_SYSTEM: Final = {
    "start_up_s": "0", "rebalance_s": "0.09", "stop_s": "0.2", "staleness_s": "0", "service_scv": "0",
}  # fmt: skip
"""The paper's conditions, not what a live run measures: replicas join at once, every event takes 5 ms."""
REBALANCE_TIME_S: Final = 0.05
"""t_r, which Algorithm 2 assumes, unless a case says otherwise."""
INSTANT: Final = {"rebalance_s": "0.05", "stop_s": "0", "leaving_rebalances": "false"}
"""The burst model: replicas come and go at once, each rebalance stops all of them for t_r = 50 ms."""

SCALINGS: Final = {"up": "scale-up", "down": "scale-down", "reassign": "reassignment"}
INTERVALS: Final = 600
"""Parts of a run in which the longest latency is told: a second of workload 1, 12 of NYC."""
SHOWN_PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 100.0)
PERCENTILES: Final = (*map(float, range(1, 100)), *(99 + tenth / 10 for tenth in range(1, 10)), 100.0)

# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell of the paper's tables: an experiment under a scaler, with changes.

    ``rebalance_time_s``: stop of all replicas after each rebalance; Algorithm 2 takes it as t_r. ``heartbeat_s``:
    replicas learn of a rebalance with their heartbeat; None: at once. ``jitter_per_s`` is the taxi workload's.
    ``by_arrival``: a replica serves its events in order of arrival, not its partitions in turns like Kafka's consumer.
    ``instant``: the burst model instead of the sim world's group. ``f_up``, ``f_down``: the scaler's. ``start_up_s``,
    ``stop_s``: until a replica joins, and until it is gone after its last partition.
    """

    experiment: str
    scaler: str
    phase_s: float = 0.10
    rebalance_time_s: float | None = None
    heartbeat_s: float | None = None
    jitter_per_s: float = 0.0
    by_arrival: bool = False
    instant: bool = False
    f_up: float | None = None
    f_down: float | None = None
    start_up_s: float | None = None
    stop_s: float | None = None

    @property
    def label(self) -> str:
        """The scaler and the changes of the experiment."""
        changes = (
            (f"phase {self.phase_s:g} s", self.phase_s != BY_NAME[self.experiment].tick_phase_s),
            (f"t_r {self.rebalance_time_s} s", self.rebalance_time_s is not None),
            (f"heartbeat {self.heartbeat_s} s", self.heartbeat_s is not None),
            (f"jitter {self.jitter_per_s:g}/s", self.jitter_per_s > 0),
            ("in order of arrival", self.by_arrival),
            ("instant replicas", self.instant),
            *((f"{name} {value}", value is not None) for name, value in self.own().items()),
        )
        return ", ".join((self.scaler, *(text for text, changed in changes if changed)))

    def own(self) -> dict[str, float | None]:
        """The changes that are named like the setting they change."""
        return {name: getattr(self, name) for name in ("f_up", "f_down", "start_up_s", "stop_s")}

    def __str__(self) -> str:
        return f"{self.experiment}, {self.label}"


class BinpackResult(NamedTuple):
    """Measures of one run. ``percentiles_s``: latency at each of ``PERCENTILES``. ``peaks_s``: by kind of decision the
    longest latency at each one that was carried out, of the events intended from 0.5 s before it to 1 s after it.
    ``longest_by_consumer_s``: longest latency of the events intended in each of ``INTERVALS`` equal parts of the run,
    a row for each consumer in the order in which they come; NaN where it served none.
    """

    slo_share: float
    replica_minutes: float
    added: int
    removed: int
    up_actions: int
    down_actions: int
    reassignments: int
    percentiles_s: Floats
    peaks_s: Mapping[str, Sequence[float]]
    longest_by_consumer_s: Floats

    @property
    def longest_s(self) -> float:
        """The longest latency of all."""
        return float(self.percentiles_s[-1])


class BinpackSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper binpack``."""

    seeds: tuple[int, ...] = TWENTY


class CaseResults(NamedTuple):
    """A case with its runs, one per seed."""

    case: Case
    runs: Sequence[BinpackResult]


def longest_by_consumer(worker: Any, intended_s: Floats, latency_s: Floats, seconds: float) -> Floats:
    """Of each consumer, in order of its number, and each part of the run; NaN without events."""
    consumer = (np.cumsum(np.bincount(worker) > 0) - 1)[worker]
    part = np.minimum((intended_s * INTERVALS / seconds + 1e-9).astype(int), INTERVALS - 1)
    place = consumer * INTERVALS + part
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    longest_s = np.full((consumer.max() + 1) * INTERVALS, np.nan)
    longest_s[place[order][first]] = np.maximum.reduceat(latency_s[order], first)
    return longest_s.reshape(-1, INTERVALS)


def experiment_of(case: Case) -> Experiment:
    """The experiment as the catalogue has it, with jitter where the case wants some."""
    experiment = BY_NAME[case.experiment]
    if not case.jitter_per_s:
        return experiment
    return dataclasses.replace(experiment, workload=f"{experiment.workload}:jitter_per_s={case.jitter_per_s:g}")


def options_of(case: Case, seed: int) -> Options:
    """The options of ``penstock compare`` for this case."""
    worker: dict[str, str] = {"commit_interval_s": "0"} if case.instant else {}
    t_r = REBALANCE_TIME_S if case.rebalance_time_s is None else case.rebalance_time_s
    settings = {"all": {"rebalance_time_s": str(t_r)}}
    own = {name: str(value) for name, value in case.own().items() if value is not None}
    settings[case.scaler] = {name: value for name, value in own.items() if name in ("f_up", "f_down")}
    if case.rebalance_time_s is not None:
        worker["rebalance_pause_s"] = str(case.rebalance_time_s)
    if case.heartbeat_s is not None:
        session_timeout_s = SESSION_OF_HEARTBEAT_S[case.heartbeat_s]
        worker |= {"directed_rebalance": "false", "heartbeat_s": str(case.heartbeat_s)}
        worker |= {"session_timeout_s": str(session_timeout_s)}
    system = {**PAPER_SYSTEM, **(INSTANT if case.instant else {}), **({"batch": "0"} if case.by_arrival else {})}
    system |= {name: value for name, value in own.items() if name in PAPER_SYSTEM}
    return Options(world="sim", seed=seed, tick_phase_s=case.phase_s, worker=worker, system=system, settings=settings)


@Remembered
def simulate(case: Case, seed: int) -> BinpackResult:
    """One run in virtual time; tables share it."""
    experiment, options = experiment_of(case), options_of(case, seed)
    played = run_in_memory(experiment, case.scaler, options)
    table = played.results
    # In whole nanoseconds, as runs are written: an event after exactly 0.5 s is within the SLO.
    latency_s = (np.rint(table.finished_s * 1e9) - np.rint(table.intended_s * 1e9)) / 1e9
    done = steps(played.ticks)
    counts = carried_out(done)
    order = np.argsort(table.intended_s, kind="stable")
    intended_s, ordered_s = table.intended_s[order], latency_s[order]
    peaks_s: dict[str, list[float]] = {action: [] for action in SCALINGS}
    for step in done:
        first, after = np.searchsorted(intended_s, (step.record.time_s - 0.5, step.record.time_s + 1.0))
        if after > first:
            peaks_s[step.decision.action].append(float(ordered_s[first:after].max()))
    return BinpackResult(
        slo_share=slo_share(latency_s, experiment.slo_s),
        replica_minutes=played.replica_minutes(),
        added=counts.replicas_added,
        removed=counts.replicas_removed,
        up_actions=counts.up_actions,
        down_actions=counts.down_actions,
        reassignments=counts.reassignments,
        percentiles_s=percentiles_s(latency_s, PERCENTILES),
        peaks_s=peaks_s,
        longest_by_consumer_s=longest_by_consumer(table.worker, table.intended_s, latency_s, experiment.seconds),
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
    fleet, changed_s = [replicas], -inf
    for second, rate in enumerate(rates):
        fleet.append(wanted(rate, fleet[-1]) if second - changed_s > hold_s else fleet[-1])
        if fleet[-1] != fleet[-2]:
            changed_s = second
    steps = [after - before for before, after in pairwise(fleet)]
    ups, downs = ([abs(step) for step in steps if step * sign > 0] for sign in (1, -1))
    return Formula(sum(fleet[1:]) / 60, sum(ups), sum(downs), len(ups), len(downs))


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


# --- cells -----------------------------------------------------------------------------------------------------------


def mean_text(runs: Sequence[BinpackResult], measure: str, digits: int = 0) -> str:
    """The median of a measure with its range."""
    return median_range([float(getattr(run, measure)) for run in runs], digits)


def pair(runs: Sequence[BinpackResult], ups: str = "added", downs: str = "removed") -> str:
    """Two counts as ups / downs."""
    varied = [len({getattr(run, name) for run in runs}) > 1 for name in (ups, downs)]
    return " / ".join(mean_text(runs, name, int(digits)) for name, digits in zip((ups, downs), varied, strict=True))


def share_text(runs: Sequence[BinpackResult]) -> str:
    """Share within the SLO in %."""
    return median_range([100 * run.slo_share for run in runs], 2) + " %"


def cost_text(runs: Sequence[BinpackResult]) -> str:
    """Replica-minutes."""
    return mean_text(runs, "replica_minutes", 1 if np.median([run.replica_minutes for run in runs]) >= 100 else 2)


def live_cell(case: Case, *measures: str) -> str:
    """What live runs of the case measured: fields of ``live.Measures``, or its counts up and down. Without such runs –
    unless the paper prints the case.
    """
    if case.scaler == "optimal":
        return "sim only"
    if case.by_arrival or case.instant or case.jitter_per_s or any(value is not None for value in case.own().values()):
        return UNKNOWN
    changes = (case.phase_s, case.rebalance_time_s, case.heartbeat_s)
    if runs := live.runs_of(case.experiment, case.scaler, *changes):
        return live.cell(runs, *measures)
    return live.NOT_MEASURED if is_printed(case) else UNKNOWN


def is_printed(case: Case) -> bool:
    """Whether the paper prints the case. Its consumers learn of a rebalance by heartbeat; values of its tables stand
    at consumers that are notified at once as well.
    """
    if case.rebalance_time_s is not None:
        return case.heartbeat_s == PAPERS_HEARTBEAT_S
    return case.scaler in printed(case.experiment, heartbeat_s=case.heartbeat_s)


def percent(share: float | None) -> str:
    """A printed share in %."""
    return UNKNOWN if share is None else f"{100 * share:.4g} %"


def change(runs: Sequence[BinpackResult], measure: str, as_printed: float | None) -> str:
    """Median against print: points for a share, % for a cost."""
    if as_printed is None:
        return UNKNOWN
    median = float(np.median([getattr(run, measure) for run in runs]))
    points = 100 * (median - as_printed if measure == "slo_share" else median / as_printed - 1)
    return f"{round(points, 1) + 0.0:+.1f} {'points' if measure == 'slo_share' else '%'}"  # never -0.0


# --- tables ----------------------------------------------------------------------------------------------------------

CASES: Final[dict[str, tuple[Case, ...]]] = {}
"""The cases of each table."""


def results(request: Request, cases: Iterable[Case]) -> Iterator[CaseResults]:
    """Each case, simulated with every seed; one of another phase or of the burst model with the first three."""
    for case in request.each(cases):
        aside = case.instant or case.phase_s != experiment_of(case).tick_phase_s
        seeds = request.settings.seeds[: SEEDS_OF_PHASES if aside else None]
        yield CaseResults(case, simulate.each((case, seed) for seed in seeds))


def table(
    name: str,
    title: str,
    cases: Sequence[Case],
    rows: Callable[[Iterator[CaseResults]], Iterable[Cells]],
    shown: Callable[[Cells], bool] = lambda _: True,
) -> PaperTable:
    """A table of cases; ``rows`` makes its rows of their results."""
    CASES[name] = tuple(cases)
    return PaperTable(name, title, lambda request: rows(results(request, cases)), shown=shown)


def compared(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Printed, formula and simulated of each case, measure by measure."""
    for case, runs in found:
        experiment = experiment_of(case)
        as_printed = experiment.printed.get(case.scaler, {})
        lags_s = (0.0, 1.0) if case.scaler.startswith("binpack") else (0.0,)
        formulas = [by_formula(experiment, case.scaler, lag_s) for lag_s in lags_s]
        digits = 1 if formulas[0].replica_minutes >= 100 else 2
        cost = as_printed.get("replica_minutes", UNKNOWN)
        scales = "{ups:g} / {downs:g}".format(**as_printed) if "ups" in as_printed else UNKNOWN

        def by_formulas(form: str, formulas: Sequence[Formula] = formulas) -> str:
            return " to ".join(form.format(**formula._asdict()) for formula in formulas)

        minutes = by_formulas(f"{{replica_minutes:.{digits}f}}")
        actions = pair(runs, "up_actions", "down_actions")
        for measure, printed_text, formula, simulated, field in (
            ("SLO share", percent(as_printed.get("slo_share")), UNKNOWN, share_text(runs), "slo_share"),
            ("replica-minutes", f"{cost}", minutes, cost_text(runs), "replica_minutes"),
            ("replicas added / removed", scales, by_formulas("{added} / {removed}"), pair(runs), "added"),
            ("up / down actions", scales, by_formulas("{up_actions} / {down_actions}"), actions, "up_actions"),
        ):
            found_here = {"printed": printed_text, "formula": formula, "simulated": simulated}
            against = {"simulated against printed": change(runs, field, as_printed.get(field))}
            head = {"experiment": case.experiment, "scaler": case.label, "measure": measure}
            yield {**head, **found_here, **against, "live": live_cell(case, field)}


def by_phase(found: Iterator[CaseResults]) -> Iterator[Cells]:
    """The sim world and the burst model side by side."""
    for (case, world), (_, burst) in zip(found, found, strict=True):
        yield {
            "experiment": case.experiment,
            "scaler": case.scaler,
            "phase s": f"{case.phase_s:.2f}",
            **{
                f"{measure}{model}": text(runs)
                for model, runs in (("", world), (", instant", burst))
                for measure, text in (
                    ("SLO share", share_text),
                    ("replica-minutes", cost_text),
                    ("added / removed", pair),
                )
            },
        }


def by_rebalance_time(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Algorithms 1 and 2 on workload 1 with a stop of all for t_r at each rebalance, of which replicas learn at once or
    with their heartbeat.
    """
    for case, runs in found:
        as_printed = printed(case.experiment, rebalance_time_s=case.rebalance_time_s)[case.scaler]
        yield {
            "scaler": case.scaler,
            "t_r s": case.rebalance_time_s,
            "notified": notified(case),
            "SLO share, printed": percent(as_printed["slo_share"]),
            "simulated": share_text(runs),
            "difference": change(runs, "slo_share", as_printed["slo_share"]),
            "replica-minutes, printed": as_printed["replica_minutes"],
            "replica-minutes": cost_text(runs),
            "cost difference": change(runs, "replica_minutes", as_printed["replica_minutes"]),
            "added / removed": pair(runs),
            "reassignments": mean_text(runs, "reassignments"),
            "live": live_cell(case, "slo_share", "replica_minutes"),
        }


def notified(case: Case) -> str:
    """How replicas learn of a rebalance."""
    return "at once" if case.heartbeat_s is None else f"by heartbeat, {case.heartbeat_s:g} s"


def by_heartbeat(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Algorithm 2 and Linear when replicas learn of a rebalance at once, or with their heartbeat.

    Tables 2 and 3 of the paper were measured with heartbeats of 3 s.
    """
    for case, runs in found:
        late = case.heartbeat_s is not None
        as_printed = printed(case.experiment, heartbeat_s=case.heartbeat_s).get(case.scaler, {}) if late else {}
        yield {
            "experiment": case.experiment,
            "scaler": case.scaler + (", in order of arrival" if case.by_arrival else ""),
            "notified of a rebalance": notified(case),
            "SLO share, printed": percent(as_printed.get("slo_share")),
            "simulated": share_text(runs),
            "difference": change(runs, "slo_share", as_printed.get("slo_share")),
            "longest latency s, printed": as_printed.get("longest_s", UNKNOWN),
            "longest latency s": mean_text(runs, "longest_s", 2),
            "replica-minutes": cost_text(runs),
            "added / removed": pair(runs),
            "reassignments": mean_text(runs, "reassignments"),
            "consumers in all": median_range([1.0 + run.added for run in runs], 0),
            "live": live_cell(case, "slo_share"),
        }


def by_fraction(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Algorithm 2 with other fractions f_up and f_down."""
    for case, runs in found:
        own = {name: value for name, value in case.own().items() if value is not None}
        yield {
            "changed": ", ".join(f"{name} {value:g}" for name, value in own.items()),
            "SLO share": share_text(runs),
            "replica-minutes": cost_text(runs),
            "added / removed": pair(runs),
        }


def by_pod_time(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Linear with replicas that take long to start or to go, against its printed cost."""
    for case, runs in found:
        yield {
            "scaler": case.label,
            "SLO share": share_text(runs),
            "replica-minutes, printed": printed(case.experiment)[case.scaler]["replica_minutes"],
            "replica-minutes": cost_text(runs),
        }


def peaks(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """The longest latency at each decision that was carried out, over all decisions of a kind and all seeds."""
    for case, runs in found:
        longest_s = {action: [peak for run in runs for peak in run.peaks_s[action]] for action in SCALINGS}
        columns = {f"at a {name}, s": median_range(longest_s[action], 2) for action, name in SCALINGS.items()}
        yield {"experiment": case.experiment, "scaler": case.scaler, "notified": notified(case), **columns}


def workloads(_: Request) -> Iterator[Cells]:
    """Figures 2 and 3: events per second of both workloads; – after the end of the shorter one."""
    for second, both in enumerate(zip_longest(*(rates_per_s(BY_NAME[name]) for name in BOTH))):
        yield {"second": second, **dict(zip(BOTH, both, strict=True))}


def part_begins_s(case: Case) -> Iterator[float]:
    """When each of the ``INTERVALS`` of a run begins."""
    return (round(BY_NAME[case.experiment].seconds * part / INTERVALS, 2) for part in range(INTERVALS))


def over_time(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Median, lowest and highest over the seeds of the longest latency in each part of the run."""
    for case, runs in found:
        longest_s = np.asarray([np.nanmax(run.longest_by_consumer_s, axis=0, initial=0) for run in runs])
        rows = zip(*(of(longest_s, axis=0) for of in (np.median, np.min, np.max)), strict=True)
        for time_s, (median, low, high) in zip(part_begins_s(case), rows, strict=True):
            values = {"longest s": round(median, 3), "lowest": round(low, 3), "highest": round(high, 3)}
            yield {"run": str(case), "time s": time_s, **values}


def by_consumer(request: Request) -> Iterator[Cells]:
    """Figure 5: the longest latency of each consumer's events in each part of one run, that of the first seed."""
    first, *_ = request.settings.seeds
    for case in request.each(IN_FIGURE_5):
        longest_s = simulate(case, first).longest_by_consumer_s
        for time_s, values in zip(part_begins_s(case), longest_s.T, strict=True):
            consumers = {f"consumer {number}": value for number, value in enumerate(values.round(3).tolist(), 1)}
            yield {"run": f"{case}, seed {first}", "time s": time_s, **consumers}


def some_percentiles(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Some percentiles of the latency."""
    for case, runs in found:
        latencies_s = {p: [float(run.percentiles_s[PERCENTILES.index(p)]) for run in runs] for p in SHOWN_PERCENTILES}
        yield {"run": str(case), **{f"p{p:g} s": median_range(values, 3) for p, values in latencies_s.items()}}


def curves(found: Iterable[CaseResults]) -> Iterator[Cells]:
    """Percentile, then the latency of each case in seconds: means over the seeds."""
    means = {str(case): np.mean([run.percentiles_s for run in runs], axis=0) for case, runs in found}
    for index, percentile in enumerate(PERCENTILES):
        yield {"percentile": percentile, **{case: round(float(mean[index]), 6) for case, mean in means.items()}}


def run_rows(request: Request) -> Iterator[Cells]:
    """One row for each run of the selected tables; of all tables if no other is selected."""
    selected = [CASES[table.name] for table in request.tables if table.name in CASES] or CASES.values()
    for case, runs in results(request, dict.fromkeys(case for cases in selected for case in cases)):
        for seed, run in zip(request.settings.seeds, runs, strict=False):
            measures = {
                name: value
                for name, value in run._asdict().items()
                if name not in ("percentiles_s", "peaks_s", "longest_by_consumer_s")
            }
            yield {**dataclasses.asdict(case), "seed": seed, **measures, "longest_s": run.longest_s}


def cases(experiments: Sequence[str], scalers: Sequence[str], **changes: Sequence[Any]) -> list[Case]:
    """Every combination of experiments, scalers and values of the changes, in this order."""
    return [
        Case(experiment=experiment, scaler=scaler, **dict(zip(changes, values, strict=True)))
        for experiment, scaler, *values in product(experiments, scalers, *changes.values())
    ]


BOTH: Final = (WORKLOAD_1, NYC)
TAIL: Final = ("binpack-tail",)
NOTIFIED: Final = (None, *SESSION_OF_HEARTBEAT_S)
IN_CDF: Final = [
    *cases(BOTH, POLICIES),
    *cases(BOTH, TAIL, heartbeat_s=tuple(SESSION_OF_HEARTBEAT_S)),
    *cases([f"{name}-skewed" for name in BOTH], (*TAIL, "linear")),
    *cases([WORKLOAD_1], ("binpack", *TAIL), rebalance_time_s=[0.5, 2.0], heartbeat_s=[None, 3.0]),
]
"""Of the policies; figures 9 (heartbeat), 7 (skew) and 10 to 12 (t_r, Algorithm 1 against 2)."""
IN_FIGURES_4_TO_8: Final = [
    *cases(BOTH, (*TAIL, "linear"), heartbeat_s=[3.0]),
    *cases(BOTH, TAIL, heartbeat_s=[0.5]),
    *cases([f"{WORKLOAD_1}-skewed"], (*TAIL, "linear")),
]
IN_FIGURE_5: Final = cases([WORKLOAD_1], TAIL, heartbeat_s=[3.0])

TABLES: Final = (
    PaperTable(
        "workloads",
        "Figures 2 and 3: events per second",
        workloads,
        shown=lambda row: row["second"] % 60 == 0 and row["second"] < 600,
    ),
    table(
        "table2",
        "Table 2, workload 1",
        [*cases([WORKLOAD_1], POLICIES), *cases([WORKLOAD_1], TAIL, by_arrival=[True])],
        compared,
    ),
    table(
        "table3",
        "Table 3, NYC taxi",
        [
            *cases([NYC], POLICIES),
            *cases([NYC], TAIL, by_arrival=[True]),
            *cases([NYC], (*TAIL, "linear", "optimal"), jitter_per_s=[JITTER_PER_S]),
        ],
        compared,
    ),
    table(
        "skew",
        "Half of the rate on two of 9 partitions",
        [
            case
            for experiment in (f"{WORKLOAD_1}-skewed", f"{NYC}-skewed")
            for case in (
                *cases([experiment], TAIL, by_arrival=[False, True]),
                *cases([experiment], ("binpack", "linear")),
            )
        ],
        compared,
    ),
    table(
        "rebalance",
        "Rebalance time, workload 1",
        cases([WORKLOAD_1], ("binpack", "binpack-tail"), rebalance_time_s=[0.5, 2.0], heartbeat_s=NOTIFIED),
        by_rebalance_time,
    ),
    table(
        "heartbeat",
        "Heartbeat",
        [
            case
            for experiment in BOTH
            for case in (
                *cases([experiment], TAIL, by_arrival=[False, True], heartbeat_s=NOTIFIED),
                *cases([experiment], ("binpack", "linear"), heartbeat_s=NOTIFIED),
            )
        ],
        by_heartbeat,
    ),
    table(
        "peaks",
        "Longest latency at a scaling: median and range over all scalings of all seeds",
        [*cases(BOTH, TAIL, heartbeat_s=NOTIFIED), *cases([WORKLOAD_1], ["linear"], heartbeat_s=NOTIFIED)],
        peaks,
    ),
    table(
        "latency",
        "Figures 4, 6 and 8: longest latency over time: median, lowest and highest over the seeds",
        IN_FIGURES_4_TO_8,
        over_time,
        shown=lambda row: row["time s"] % 60 == 0,
    ),
    PaperTable(
        "consumers",
        "Figure 5: longest latency of each consumer over time, one run, s",
        by_consumer,
        shown=lambda row: row["time s"] % 60 == 0,
    ),
    table(
        "fractions",
        "f_up and f_down, workload 1",
        [*cases([WORKLOAD_1], TAIL, f_up=[0.7, 0.8, 0.9]), *cases([WORKLOAD_1], TAIL, f_down=[0.3, 0.4, 0.5])],
        by_fraction,
    ),
    table(
        "pods",
        "Linear with slow pods, workload 1",
        [
            *cases([WORKLOAD_1], ["linear"], start_up_s=[0.0, 1.0, 2.0, 5.0]),
            *cases([WORKLOAD_1], ["linear"], stop_s=[1.0, 2.0, 5.0]),
        ],
        by_pod_time,
    ),
    table("cdf", "Latency from the intended send time", IN_CDF, some_percentiles),
    PaperTable(
        "cdf-curves",
        "Latency from the intended send time, all percentiles: means over the seeds, s",
        lambda request: curves(results(request, IN_CDF)),
        shown=lambda row: row["percentile"] in SHOWN_PERCENTILES,
    ),
    table(
        "phase",
        "Phase of the controller's reading after each burst",
        [
            *cases([WORKLOAD_1], (*TAIL, "linear"), phase_s=PHASES_S, instant=[False, True]),
            *cases([NYC], TAIL, phase_s=PHASES_S, instant=[False, True]),
        ],
        by_phase,
    ),
    PaperTable("runs", "Every run of the selected tables", run_rows),
)
