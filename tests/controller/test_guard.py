"""Guards: which decisions they change, by ticks of a fleet whose lateness follows from its replicas."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import msgspec
import pytest

from controller.guard import EVIDENCE, MEMORY, SETTLE, Guarded
from controller.scalers.shared.base import NoState
from penstock.contracts import Decision, FleetObservation, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.plan import range_groups
from penstock.runspec import GuardSpec

SPEC = GuardSpec(slo_s=0.5, slo_share=0.99, max_replicas=5, service_rate_per_s=100.0, rebalance_time_s=0.1)


class Wanted:
    """A scaler that wants the replicas of a list, one each tick; the last one from then on."""

    name: ClassVar[str] = "wanted"
    fleets: ClassVar[type[FleetObservation]] = FleetObservation
    paper: ClassVar[str] = ""
    State: ClassVar[type[Any]] = NoState
    Parameters: ClassVar[type[Any]] = NoState
    parameters: Any = None
    period_s = 1.0

    def __init__(self, replicas: Sequence[int]) -> None:
        self.replicas = list(replicas)

    def start(self, seed: int) -> NoState:
        return NoState()

    def decide(self, observation: FleetObservation, state: NoState) -> tuple[Decision, NoState]:
        now, wanted = observation.replicas.current, self.replicas.pop(0) if len(self.replicas) > 1 else self.replicas[0]
        if wanted == now:
            return Decision(action="none"), state
        groups = range_groups(range(4), wanted)
        return Decision(action="up" if wanted > now else "down", targets={"f": wanted}, assignment=groups), state


class Group:
    """A consumer group of four partitions. ``needed``: with fewer replicas a tenth of the events is late."""

    def __init__(self, wanted: Sequence[int], needed: int, rate: int = 200, spec: GuardSpec = SPEC) -> None:
        self.scaler = Guarded(Wanted(wanted), spec)
        self.state = self.scaler.start(1)
        self.needed, self.rate, self.replicas = needed, rate, 3
        self.plan = range_groups(range(4), 3)
        self.time_s = self.arrived = self.finished = self.late = 0
        self.notes: list[str] = []

    def tick(self, unknown: str = "", hottest: float = 50.0) -> Decision:
        self.time_s += 1
        self.arrived += self.rate
        self.finished += self.rate
        self.late += self.rate // 10 if self.replicas < self.needed else 0
        values: dict[str, Any] = {"arrived": self.arrived, "completed": self.finished, "backlog": 0}
        if unknown:
            values[unknown] = None
        seen = StreamObservation(
            time_s=float(self.time_s),
            fleet="f",
            replicas=ReplicaCounts(joined=self.replicas),
            plan=self.plan,
            finished=self.finished,
            late=self.late,
            partitions=(PartitionObservation(0, 1, 1, hottest), PartitionObservation(1, 1, 1, 10.0)),
            unknown={unknown: "broker away"} if unknown else {},
            **values,
        )
        decision, state = self.scaler.decide(seen, self.state)
        self.state = msgspec.json.decode(msgspec.json.encode(state), type=self.scaler.State)
        self.replicas = decision.targets.get("f", self.replicas)
        self.plan = decision.assignment or self.plan
        self.notes += [str(decision.why["f"]["guard"])] if "guard" in decision.why.get("f", {}) else []
        return decision

    def run(self, ticks: int) -> list[int]:
        found = []
        for _ in range(ticks):
            self.tick()
            found.append(self.replicas)
        return found


def test_decisions_that_do_no_harm_are_left_alone() -> None:
    group = Group([3, 3, 4, 4, 3, 2], needed=2)
    assert group.run(40) == [3, 3, 4, 4, 3, *[2] * 35]
    assert (group.notes, group.state.interventions) == ([], 0)


@pytest.mark.parametrize("unknown", ["arrived", "completed", "backlog"])
def test_nothing_scales_in_on_unknown_input(unknown: str) -> None:
    group = Group([2], needed=1)
    decision = group.tick(unknown)
    assert (decision.action, group.replicas) == ("none", 3)
    assert group.notes == [f"no scale-in to 2: {unknown} is unknown (broker away)"]
    group.tick()
    assert group.replicas == 2


def test_unknown_input_does_not_stop_a_scale_out() -> None:
    group = Group([4], needed=1)
    group.tick("backlog")
    assert (group.replicas, group.notes) == (4, [])


def test_a_scale_in_that_made_events_late_is_undone_with_the_grouping_of_before() -> None:
    group = Group([3] * 5 + [2], needed=3)
    before = group.plan
    seen = group.run(14)
    down = seen.index(2)
    assert seen[down : down + 8] == [2] * int(SETTLE + EVIDENCE) + [3] * (8 - int(SETTLE + EVIDENCE))
    assert group.plan == before
    assert group.notes[0] == "10.0% were late after the scale-in from 3: it is undone"
    assert group.state.interventions == len(group.notes)


def test_it_is_not_repeated_at_such_a_load_but_at_a_smaller_one() -> None:
    group = Group([3] * 5 + [2], needed=3)
    group.run(60)
    assert group.replicas == 3
    assert group.notes[-1] == "fewer than 3 were too few from 180 events/s on"
    group.rate, group.needed = 120, 2
    group.run(2)
    assert group.replicas == 2


def test_it_is_tried_again_when_it_is_forgotten_and_remembered_for_twice_as_long() -> None:
    group = Group([3] * 5 + [2], needed=3)
    seen = group.run(round(4 * MEMORY))
    tries = [tick for tick, (a, b) in enumerate(pairwise(seen)) if (a, b) == (3, 2)]
    assert len(tries) == 3
    assert 1.7 < (tries[2] - tries[1]) / (tries[1] - tries[0]) < 2.1


def test_events_that_were_late_before_are_not_the_scale_ins_fault() -> None:
    group = Group([3] * 15 + [2], needed=9)
    assert group.run(40)[-1] == 2


def test_a_fleet_that_swings_keeps_its_replicas() -> None:
    group = Group([4, 3] * 40, needed=1)
    seen = group.run(80)
    falls = sum(1 for a, b in pairwise(seen) if b < a)
    assert falls < 6
    assert group.notes[0] == "no scale-in to 3: 4 reversals within 60 s"


@pytest.mark.parametrize(
    ("spec", "rate", "hottest", "said"),
    [
        (SPEC, 620, 50.0, "620 events/s need 7"),
        (SPEC, 300, 150.0, "none would do: partition 0 has 150 events/s, a replica serves 100"),
        (msgspec.structs.replace(SPEC, service_rate_per_s=1.25), 300, 1.0, "none would do: an event takes 0.8 s"),
        (msgspec.structs.replace(SPEC, rebalance_time_s=2.0), 300, 50.0, "a rebalance takes 2 s, the SLO is 0.5 s"),
        (msgspec.structs.replace(SPEC, service_rate_per_s=None), 300, 50.0, "late with the maximum of 5 replicas"),
    ],
)
def test_at_the_maximum_it_says_what_would_be_needed(spec: GuardSpec, rate: int, hottest: float, said: str) -> None:
    group = Group([5], needed=9, rate=rate, spec=spec)
    for _ in range(5):
        group.tick(hottest=hottest)
    assert said in group.notes[-1]
    assert group.state.interventions == 0, "a remark changes nothing"


def test_where_late_events_are_not_counted_a_backlog_beyond_the_slo_stands_for_them() -> None:
    scaler = Guarded(Wanted([3] * 5 + [2]), SPEC)
    state, replicas, seen = scaler.start(1), 3, []
    for second in range(1, 16):
        backlog = 300 if replicas < 3 else 20  # 200 events/s: the SLO is 100 of them
        observed = FleetObservation(
            time_s=float(second),
            fleet="f",
            replicas=ReplicaCounts(joined=replicas),
            arrived=200 * second,
            completed=200 * second - backlog,
            backlog=backlog,
        )
        decision, state = scaler.decide(observed, state)
        replicas = decision.targets.get("f", replicas)
        seen.append(replicas)
    assert 2 in seen
    assert seen[-1] == 3
