"""``docs/reliability.md`` from the runs of ``penstock chaos``.

Run as ``python tests/bench/reliability_page.py DIRECTORY… > docs/reliability.md`` with the directories that the command
printed (``runs/<utc>-chaos-<experiment>-compare``). Times to recover are computed from the run directories beside them.
Each seed becomes a line of ``docs/reliability.jsonl``, so that seeds can be played over several sittings; without a
directory the page is written from these lines.
"""

# ruff: noqa: E501 - lines of the page
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

import msgspec

from experiments.chaos import ChaosDirectory, ChaosRun
from penstock.fleet_kinds import kind_of
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.outcomes import events_of
from report.analysis.recovery import fault_effects
from report.analysis.run_data import RunData
from report.analysis.summary import FaultEffect

ROWS = Path(__file__).resolve().parents[2] / "docs/reliability.jsonl"

TOP = """# Reliability

Runs of `penstock chaos`: each seed draws one to four faults from all that the world has for the kind of fleet, within the first 80 % of the run. A violation is an event that is lost, finished twice or
left over, counts that disagree, a run that ends with an error, or anything of the run that stays behind. [Measurement rules](measurement.md) define the times. This page is written by
`python tests/bench/reliability_page.py DIRECTORY…`; [reliability.jsonl](reliability.jsonl) has every run with its seed, faults, counts, verdict and times to recover, a line each.

**Conditions.** Two shared cores, one Kafka broker, RabbitMQ, Redis and HAProxy as processes of the same machine. All cores were busy with other work in nearly every second of the live runs, so that most live
runs are DEGRADED and many fleets miss their SLO without any fault: times to recover are upper bounds here. A failed event has its result and is not lost.
Up to four live series were played side by side on the two cores, some beside the build of images and a run of 1,000 events/s: `binpack-workload-1 --from 420`, `multiqueue`, `pubsub-mintime --speed 20` and `amesos-document --set workload.scale=0.05` (in the sim world without that setting). The bank of queues misses half of its events within the SLO in its first 30 s without any fault: "not within the run" there is mostly the load's, not the fault's.
"""

OTHERS = """## What others document

None of these systems promises a time to recover; they document the settings from which it follows.

| system | documented | what follows after a failure | here |
|---|---|---|---|
| Kafka consumer group | `session.timeout.ms` 45 s, `heartbeat.interval.ms` 3 s (clients since 3.0) | partitions of a consumer that died without leaving stand still for up to 45 s, then the group rebalances | session 3 s (`worker.session_timeout_s`), heartbeat 0.5 s |
| RabbitMQ | heartbeat timeout 60 s; delivery acknowledgement timeout 30 min | a closed connection gives its unacknowledged messages back at once; a silent peer after the heartbeat timeout; a consumer that hangs after 30 min | connections close with the process |
| Kubernetes | restarts after 10 s, 20 s, 40 s … up to 5 min; pods leave a node that is not ready after 300 s; the HPA looks every 15 s and waits 300 s before it scales in | a container that dies repeatedly is down for up to 5 min at a time | replicas are restarted at once by the process manager |
| KEDA | `pollingInterval` 30 s, `cooldownPeriod` 300 s; a fallback number of replicas after `failureThreshold` failed polls, if one is configured | a trigger that cannot be read changes nothing until then | unknown is not zero: every scaler holds |
"""

FOUND = """## What the runs found

- Two `kill-controller` in short succession ended the whole run; a fault now has no effect on what does not run.
- After `stop-gateway` the gateway had forgotten its functions and every further request failed (191 of 217 events of function, seed 1, and 206 of 206 of seed 6). The controller deploys them again, and these seeds
  were run again. Requests that arrive before that still fail with 404: the column "failed".
- On a busy machine the sender connected while RabbitMQ was stopped, gave up after 10 s and ended the run (network, seed 7); it waits 60 s now. The seed was run again.
- After `cut-workers` four results were in the results topic twice, each the same record: the cut had swallowed their acknowledgements and the client library published them again, as it may. Each event was booked and
  finished once. "Finished twice" counts finishes with another worker or time now, not records.
- The wait for the last results counted 30 s without progress also while a stopped broker was being started again. On a machine with a load of 40 that takes longer, and four of 75 runs were given up with two to five
  events in the queue (queue, seeds 34, 65, 95, 97). It counts from the end of the last fault now; the seeds were run again.
- Under that load Kafka's controller took its own broker for dead, which answered "not coordinator" for 45 s, and a run was given up (stream, seed 39); Kafka, RabbitMQ or a part of the run was not up in time (queue 26,
  network 23, function 27 and 45, stream 40). These six were run again when there was less other work.
- Under the same load the process manager did not answer within 5 s, which ended a long run. A run waits 30 s for it now.
- Kafka was taken for dead while a fault's end was starting it: for seconds, on a busy machine, its program was there without a process (stream, seed 53). A service that is stopped or started on purpose is not judged
  until its process runs. The seed was run again.
- A soak of two hours at 1,000 events/s ended at 6,096 s: after the twelfth stop of the broker the sender's client never connected again, and 200,000 events timed out. A broker that stops or starts may answer that the
  cluster has no brokers; librdkafka (2.10 and later) then forgets the one it knows, and sometimes for good (its issue 5301, open). Sender, results, the connector of pipelines and the monitor of offsets replace such a client now: no answer
  for 20 s while a new client has one.
- The second soak ran its two hours and was INVALID: 1,775,199 of 6,840,000 events had no result, all of the first ones. The limit of 2 GiB a partition in the broker's settings had removed the oldest records of
  the results topic; all events were in the ledger. Topics of a run now keep their records until the run deletes them, on every broker. Runs of up to some 4.7 million events were not affected.
- In the sim world a member that was frozen when Redis or the broker went away never served again.
- Beside chaos, hostile input: a record that is not UTF-8, nests deeply or has integers beyond 64 bits ended every process that read it.
- `python -m tests.faults --first 1 --seeds 10000` plays the control plane of consumer groups (processes and pods), queues, pub/sub networks and functions in virtual time, 2,000 seeds each
  ([decision 18](decisions/0018-faults-by-seed.md)). Before the last mends it found a replica too many on pods whose names a late watch did not show, and replicas that drained for ever after a scale-in that was
  called off. A later series of 10,000 seeds had one violation (stream, 1622): a check took a stopped program of somebody else for a replica. The check is mended. Seeds 1 to 2,000 of each kind then had
  0 violations, in 217 s on two quiet cores.

## On a cluster

`penstock chaos EXPERIMENT --scaler SCALER --seeds 1-5 --world kubernetes` on a kind cluster of one node, two cores: twenty runs, 0 violations. Their directories were not kept, so that they are not among the
lines of reliability.jsonl.

| kind | experiment, scaler | events | failed | lost | finished twice | left behind | within SLO again (p50 / worst) |
|---|---|---|---|---|---|---|---|
| stream | binpack-workload-1, linear | 1,465 | 0 | 0 | 0 | 0 | `kill-worker` 2.1 s / 2.8 s; `kill-controller` 0 s / 0 s; `blind-monitor` 0 s / 4.8 s |
| function | amesos-document, amesos, `workload.scale=0.05` | 220 | 0 | 0 | 0 | 0 | `kill-worker` 4.4 s / 4.5 s; `kill-controller` 1.7 s / 2.5 s; `kill-dataflow` 0.5 s / 0.9 s |
| queue | multiqueue, multiqueue-damped | 30,299 | 0 | 0 | 0 | 0 | `kill-worker` 1.3 s, 1 not within the run; the others not within the run |
| network | pubsub-mintime, min-time, `--speed 20` | 319 | 0 | 0 | 0 | 0 | `kill-worker` 8.3 s / 16.6 s, 1 not within the run; `kill-controller` 2.9 s / 5.8 s; `blind-monitor` 4.8 s / 10.7 s |

There a drain of a pub/sub network was given up after 30 s, although one job takes 42 s: it waits as long as jobs take now.

## Two hours

`python tests/bench/soak.py --seconds 7200`: 1,000 events/s, half a minute without load every ten minutes, at least 0 replicas, a fault every minute. The third soak, on 2026-11-26, on two cores:

- 6,840,000 events scheduled, acknowledged and completed; 0 failed, 0 lost, 0 left over, 0 finished twice. The three counts agree.
- 119 faults of seven kinds, 17 of each, each with an effect.
- No program grew. Resident memory in MB, before and after: sender 661 and 666, the run's command 388 and 390, process manager 44 and 44, workers 72 and 72, controllers 82 and 82, Kafka 1,327 and 1,346. Prometheus
  and Redis keep the run's data and grew with it: from 82 to 99 and from 580 to 1,362.
- The verdict is DEGRADED: the cores were more than 90 % busy in 80 % of the seconds, in the first 20 minutes partly with other work. Latencies of this run are no result; the counts are.

## What was not run

- Kubernetes has `kill-worker`, `kill-controller`, `blind-monitor` and for some kinds `kill-forwarder` or `kill-dataflow`.
- Live cuts of the network: `cut-workers` from Kafka (consumer groups) or RabbitMQ (queues, networks), `cut-controller` from Kafka. Cuts from Redis and the gateway, and of one worker alone, are played by
  `python -m tests.faults` only, in virtual time. `fill-disk` hits the files of the controller; a full disk of a broker is not injected.
- Steps of the clock are not injected live; `python -m tests.faults` plays them in virtual time. A live step for one program needs a library that is loaded into it (libfaketime), which is not installed here. What a step
  would hit: ticks are due by the wall clock, because all processes of a run share its start; a step back delays the next tick by as much, a step forward makes ticks missed. Records of events and replicas have
  wall-clock times, and the controller's time-outs of plans and replicas are measured by it. Service times, sessions, and waits for brokers and services are measured by monotonic clocks.
"""


class PlayedSeed(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``docs/reliability.jsonl``: one run of one seed."""

    kind: str
    """Kind of fleet."""
    world: str
    request: str
    """Experiment and scaler."""
    chaos: ChaosRun
    slo_share: float | None = None
    """Share of the events within the SLO; None of a run that ended with an error."""
    effects: tuple[FaultEffect, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Kind, world, request and seed: a seed that is played again replaces its line."""
        return self.kind, self.world, self.request, self.chaos.seed


def played(path: Path) -> Iterator[PlayedSeed]:
    """Read a directory of ``penstock chaos``."""
    directory = ChaosDirectory(path)
    request = directory.read().request
    (scaler,) = request["scalers"]
    for found in directory.found().values():
        run = RunData(RunDirectory.open(path.parent / found.run))
        row = PlayedSeed(
            kind=kind_of(run.spec.system).name,
            world=str(request["world"]),
            request=f"{request['experiment']}, {scaler}",
            chaos=found,
        )
        if not found.error:
            summary = summary_of(run)
            effects = fault_effects(run, events_of(run, run.schedule(), summary.conservation.in_flight))
            row = msgspec.structs.replace(row, slo_share=summary.slo_share, effects=tuple(effects))
        yield row


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)
    yield ""


def recoveries(times_s: Sequence[float | None]) -> str:
    """Median and worst of the known times, and how many are not known."""
    known = [time_s for time_s in times_s if time_s is not None]
    open_ = f", {len(times_s) - len(known)} not within the run" if len(known) < len(times_s) else ""
    return f"{median(known):.1f} s / {max(known):.1f} s{open_}" if known else f"–{open_}"


def overview(seeds: Sequence[PlayedSeed]) -> Iterator[str]:
    """One row per kind of fleet, world and request."""
    rows = []
    for (kind, world, request), of in groupby(seeds, lambda one: one.key[:3]):
        runs = [one.chaos for one in of]
        numbers = {run.seed for run in runs}
        starts = sorted(seed for seed in numbers if seed - 1 not in numbers)
        ends = sorted(seed for seed in numbers if seed + 1 not in numbers)
        spans = ", ".join(f"{a}–{b}" if b > a else f"{a}" for a, b in zip(starts, ends, strict=True))
        bad = sum(bool(run.violations) for run in runs)
        left = sum(run.in_flight + len(run.left_behind) for run in runs)
        counts = (
            f"{sum(run.events for run in runs):,}", sum(run.failed for run in runs), sum(run.lost for run in runs),
            sum(run.finished_twice for run in runs), left, bad,
        )  # fmt: skip
        rows.append((kind, world, request, spans, len(runs), *counts))
    head = ("kind", "world", "experiment, scaler", "seeds", "runs", "events", "failed", "lost", "finished twice")
    yield from table((*head, "left behind", "violations"), rows)


def recovery(seeds: Sequence[PlayedSeed]) -> Iterator[str]:
    """One row per kind of fleet, world and fault."""
    by_fault: dict[tuple[str, str, str], list[FaultEffect]] = defaultdict(list)
    for one in seeds:
        for effect in one.effects:
            by_fault[one.kind, one.world, effect.kind].append(effect)
    rows = []
    for (kind, world, fault), of_fault in sorted(by_fault.items()):
        hit = [effect for effect in of_fault if effect.hit]
        late = [effect.late_events for effect in hit]
        missing = [effect.missing_replica_s for effect in hit]
        costs = (
            (f"{median(late):.0f} / {max(late)}", f"{median(missing):.1f} / {max(missing):.1f}") if hit else ("", "")
        )
        taken = recoveries([effect.slo_recovery_s for effect in hit])
        replicas = recoveries([effect.replicas_recovery_s for effect in hit])
        rows.append((kind, world, f"`{fault}`", len(hit), len(of_fault) - len(hit), taken, replicas, *costs))
    head = ("kind", "world", "fault", "hits", "no effect", "within SLO again (p50 / worst)")
    more = ("wanted replicas again (p50 / worst)", "late events (p50 / worst)", "replica-seconds missing (p50 / worst)")
    yield from table((*head, *more), rows)


def main() -> None:
    """Add what was played, and print the page."""
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    known = {row.key: row for row in map(msgspec.json.Decoder(PlayedSeed).decode, lines)}
    for argument in sys.argv[1:]:
        known.update((row.key, row) for row in played(Path(argument)))
    seeds = [known[key] for key in sorted(known, key=lambda key: (key[1], *key))]
    ROWS.write_text("".join(f"{msgspec.json.encode(row).decode()}\n" for row in seeds))
    print(TOP)
    print("\n".join(("## What was run", "", *overview(seeds))))
    print(
        "\n".join(("## Time to recover", "", "Of faults with an effect. 0 s: never disturbed.", "", *recovery(seeds)))
    )
    print(OTHERS)
    print(FOUND.rstrip())


if __name__ == "__main__":
    main()
