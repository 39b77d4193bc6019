"""From a new plan to every partition being consumed again: directed or by heartbeat, eager or cooperative.

Run as ``python tests/bench/bench_rebalance.py`` with the services' endpoints in the environment (`penstock env`). Three
real workers, five partitions under a steady load, plans that alternate. Claimed for directed rebalances of running
replicas: p50 ≤ 100 ms, p99 ≤ 600 ms. What it showed last: ``docs/decisions/0003-rebalance-protocol.md``.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

import consumers.worker
from consumers.assignor import PlanAssignor
from consumers.group import GroupConsumer
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from penstock.records import encode
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from tests.consumers.observed_run import ObservedRun

REPLICAS = ("p-0", "p-1", "p-2")
PLANS = (((0, 1), (2, 3), (4,)), ((0, 2), (1, 3), (4,)))
PARTITIONS = 5
RATE_PER_S = 250
"""Of all partitions: each gets an event every 20 ms, which is the resolution."""
CLAIM_P50_S, CLAIM_P99_S = 0.1, 0.6


class CooperativePlanAssignor(PlanAssignor):
    """The same plan in two rounds (KIP-429): a partition that moves is given to nobody until its holder let it go."""

    name = "penstock-plan-cooperative"

    def supported_protocols(self) -> list[Any]:
        """Cooperative only."""
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: set[str]) -> Any:
        """The subscription with what this member owns."""
        plain = super().metadata(topics)
        owned = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=1,
            topics=plain.topics,
            user_data=plain.user_data,
            owned_partitions=[owned(topic=topic, partitions=list(held)) for topic, held in self._held.items()],
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """The plan without what somebody else still owns."""
        owner = {
            (owned.topic, partition): member.member_id
            for member in members
            for owned in member.metadata.owned_partitions or ()
            for partition in owned.partitions
        }
        given = super().assign(cluster, members)
        return {
            member: ConsumerProtocolAssignment(
                1,
                [
                    (topic, [p for p in partitions if owner.get((topic, p), member) == member])
                    for topic, partitions in assignment.assigned_partitions
                ],
                assignment.user_data,
            )
            for member, assignment in given.items()
        }


class Case:
    """One way to rebalance."""

    def __init__(self, name: str, worker: WorkerSpec, *, cooperative: bool = False) -> None:
        self.name = name
        self.worker = worker
        self.cooperative = cooperative


def worker_spec(heartbeat_s: float, *, directed: bool) -> WorkerSpec:
    """A fast replica, so that the events themselves don't blur the picture."""
    return WorkerSpec(service_time_s=0.001, heartbeat_s=heartbeat_s, session_timeout_s=10, directed_rebalance=directed)


CASES = {
    "eager": Case("directed, eager", worker_spec(0.5, directed=True)),
    "cooperative": Case("directed, cooperative", worker_spec(0.5, directed=True), cooperative=True),
    "heartbeat-0.5": Case("by heartbeat 0.5 s, eager", worker_spec(0.5, directed=False)),
    "heartbeat-3": Case("by heartbeat 3 s, eager", worker_spec(3.0, directed=False)),
}


@contextmanager
def load(run: ObservedRun) -> Iterator[None]:
    """Events at a steady rate, to the partitions in turn."""
    ending = threading.Event()

    def send() -> None:
        began = time.monotonic()
        for number in range(10_000_000):
            if ending.wait(max(0.0, began + number / RATE_PER_S - time.monotonic())):
                return
            run.send_raw(encode(run.event(number)), number % PARTITIONS)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ending.set()
        sender.join()


def rebalances(endpoints: Endpoints, case: Case, rounds: int) -> list[tuple[float, float]]:
    """Seconds of each rebalance from the proposal of a plan to (the last member's assignment, the last partition
    that is consumed again).
    """
    with ObservedRun(endpoints, purpose="bench", partitions=PARTITIONS, worker=case.worker) as run:
        board = AssignmentPlanner(join_timeout_s=30, directed=case.worker.directed_rebalance)
        service = PlanService(board, group=run.spec.group, fleet=run.spec.fleet, url="http://127.0.0.1:0")
        service.start()
        run.controller = service.url
        try:
            service.propose(PLANS[0], REPLICAS, 0)
            for replica in REPLICAS:
                if case.cooperative:
                    run.commands[replica] = cooperative_worker(run, replica)
                run.start(replica)
            wait_for(service, epoch=1, timeout_s=60)
            with load(run):
                time.sleep(1)
                return [one_rebalance(run, service, round_, case.worker.heartbeat_s) for round_ in range(rounds)]
        finally:
            service.stop()


def one_rebalance(run: ObservedRun, service: PlanService, round_: int, heartbeat_s: float) -> tuple[float, float]:
    """Propose, let it happen, and read from the results when each partition's holder went on."""
    # Not in step with heartbeats or fetches.
    time.sleep(0.3 + 0.37 * (round_ % 7) / 7)
    before = service.snapshot().assigned()
    planned_ns = time.time_ns()
    service.propose(PLANS[(round_ + 1) % 2], REPLICAS, 0)
    wait_for(service, epoch=round_ + 2, timeout_s=20 + 2 * heartbeat_s)
    members = service.snapshot().members
    awaited: dict[int, tuple[str, int]] = {}
    for holder, report in members.items():
        for partition in report.partitions:
            stayed = partition in before.get(holder, ())
            awaited[partition] = (holder, report.at_ns if stayed else planned_ns)
    assigned_ns = max(report.at_ns for report in members.values())
    return (assigned_ns - planned_ns) / 1e9, (consumed_again_ns(run, awaited) - planned_ns) / 1e9


def consumed_again_ns(run: ObservedRun, awaited: dict[int, tuple[str, int]]) -> int:
    """When the last partition's holder took an event of it, ``awaited``: holder and the time since when that counts."""
    again: dict[int, int] = {}
    for result in run.results(10.0):
        partition = int(result.queue.rpartition("/")[2])
        holder, since_ns = awaited[partition]
        if result.worker == holder and result.started_ns >= since_ns:
            again.setdefault(partition, result.started_ns)
            if len(again) == PARTITIONS:
                return max(again.values())
    raise SystemExit(f"only partitions {sorted(again)} were consumed again within 10 s")


def wait_for(service: PlanService, epoch: int, timeout_s: float) -> None:
    """Return when the plan's partitions are all held as it says, by members that follow it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        plan, held = service.snapshot().current, service.snapshot().assigned()
        if plan is not None and plan.epoch == epoch and sorted(held.values()) == sorted(plan.groups):
            return
        time.sleep(0.002)
    raise SystemExit(f"plan {epoch} was not taken up within {timeout_s:g} s: {service.snapshot().assigned()}")


def cooperative_worker(run: ObservedRun, replica: str) -> tuple[str, ...]:
    """Command of a worker with the cooperative assignor."""
    return (sys.executable, __file__, "--cooperative-worker", str(run.path), replica)


def become_cooperative_worker(directory: str, replica: str) -> None:
    """The worker with the other assignor; it also has to report when partitions are only taken from it."""
    revoke = GroupConsumer.on_partitions_revoked

    async def revoke_and_report(self: GroupConsumer, revoked: set[Any]) -> None:
        await revoke(self, revoked)
        await self.on_partitions_assigned(set())

    setattr(GroupConsumer, revoke.__name__, revoke_and_report)
    setattr(consumers.worker, PlanAssignor.__name__, CooperativePlanAssignor)
    sys.exit(consumers.worker.main(["--run", directory, "--replica", replica]))


def main() -> None:
    """Print p50, p90, p99 and the worst of each case."""
    if sys.argv[1:2] == ["--cooperative-worker"]:
        become_cooperative_worker(sys.argv[2], sys.argv[3])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of the directed cases; a quarter of the others")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    endpoints = Endpoints()
    for name in given.cases:
        case = CASES[name]
        rounds = given.rounds if case.worker.directed_rebalance else max(1, given.rounds // 4)
        assigned, took = np.array(rebalances(endpoints, case, rounds)).T
        p50, p90, p99 = np.percentile(took, [50, 90, 99])
        claim = ""
        if name == "eager":
            holds = p50 <= CLAIM_P50_S and p99 <= CLAIM_P99_S
            claim = (
                f"; claimed p50 ≤ {CLAIM_P50_S:g} s, p99 ≤ {CLAIM_P99_S:g} s: {'holds' if holds else 'DOES NOT HOLD'}"
            )
        print(
            f"{case.name:26s} p50 {p50 * 1e3:6.0f} ms  p90 {p90 * 1e3:6.0f} ms  p99 {p99 * 1e3:6.0f} ms  "
            f"worst {took.max() * 1e3:6.0f} ms  over {rounds} (assigned p50 {np.median(assigned) * 1e3:.0f} ms){claim}",
            flush=True,
        )


if __name__ == "__main__":
    main()
