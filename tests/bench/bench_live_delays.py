"""The durations of the live world that the sim world assumes (``penstock/measured.py``), from finished live runs.

Run as ``python tests/bench/bench_live_delays.py RUN…`` with run directories of consumer groups that scaled up and down,
such as those of ``penstock run binpack-workload-1 --scaler binpack-tail --from 430 --seconds 60 --no-spark`` and
``--from 20 --initial-replicas 4 --set binpack-tail.hold_s=5``. A busy machine makes all of them longer: the share of
the seconds in which all cores were busy is printed. REBALANCE_S by itself: ``bench_rebalance.py``.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import Floats
from penstock.rundir import RunDirectory
from report.analysis.run_data import RunData


def phases(run: RunData, begin: str, end: str) -> list[float]:
    """Seconds from one phase to another of every replica that was requested, or released, during the run."""
    at_s: dict[str, dict[str, float]] = defaultdict(dict)
    for event in run.replica_events:
        at_s[event.replica][event.phase] = run.second_of(event.at_ns)
    return [
        each[end] - each[begin]
        for each in at_s.values()
        if end in each and 0 < each.get(begin, 0.0) < run.spec.duration_s
    ]


def reading_ages(run: RunData) -> list[float]:
    """Seconds since the first event that a monitor's reading of the commits did not have was finished: 0 where it had
    all of them.
    """
    table = run.outcomes("queue", "received_ns")
    queue, finished_ns = np.asarray(table["queue"].cast("string").to_pylist()), table["finished_ns"].to_numpy()
    finished = {int(name.rpartition("/")[2]): np.sort(finished_ns[queue == name]) for name in np.unique(queue).tolist()}
    ages = []
    for tick in run.ticks:
        for status in tick.observation.partitions or ():  # type: ignore[attr-defined]
            done, committed = finished.get(status.partition, np.empty(0)), status.committed_offset
            if committed is not None and committed < len(done):
                ages.append(max(0.0, (tick.at_ns - int(done[committed])) / NANOS_PER_SECOND))
    return ages


def service_times(run: RunData) -> Floats:
    """Service time of each event over the mean that the run asks for."""
    table = run.outcomes()
    service_ns = table["finished_ns"].to_numpy() - table["started_ns"].to_numpy()
    return np.asarray(service_ns / NANOS_PER_SECOND / run.spec.worker.service_time_s)


def say(what: str, values: "list[float] | Floats", unit: str = "s") -> None:
    """Median and spread."""
    if len(values):
        low, p50, high = np.percentile(values, (10, 50, 90))
        print(f"{what:58} p50 {p50:7.3f} {unit:2} (p10 {low:.3f}, p90 {high:.3f}, {len(values)} values)")


def main() -> None:
    """All of it, over all given runs together."""
    runs = [RunData(RunDirectory.open(Path(path))) for path in sys.argv[1:]]
    if not runs:
        sys.exit("give the directories of finished live runs of a consumer group")
    for run in runs:
        load = run.manifest.cpu_saturation if run.manifest is not None else None
        print(f"{run.name}: {'' if load is None else f'all cores busy in {load:.0%} of the seconds'}")
    say("START_UP_S: requested to joined", [each for run in runs for each in phases(run, "requested", "joined")])
    say("joined to first event: a rebalance", [each for run in runs for each in phases(run, "joined", "first-event")])
    say("draining to gone: a rebalance, STOP_S", [each for run in runs for each in phases(run, "draining", "gone")])
    say("age of the commits at a reading", [each for run in runs for each in reading_ages(run)])
    service = np.concatenate([service_times(run) for run in runs])
    say("service time over its mean", service, "")
    print(f"{'its mean and standard deviation':58} {service.mean():.3f}, {service.std():.3f}")


if __name__ == "__main__":
    main()
