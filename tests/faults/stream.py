"""A consumer group: controller, plan service, workers and assignor on a simulated broker."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from consumers.worker import Worker
from controller.fleets.stream.fleet import StreamFleet
from penstock.adapters.process_manager import Program
from penstock.contracts import Action, Decision, FleetObservation, StreamObservation
from penstock.plan import range_groups, same_grouping
from penstock.runspec import RunSpec, ScalerSpec, WorkerSpec
from tests.faults.fault import Menu
from tests.faults.kernel import EPOCH_NS, SECOND, Process
from tests.faults.world import ENDPOINTS, RUN, START_S, World, event

PARTITIONS = 6
MOST = 4
FLEET = "payments"
STRANGERS = (f"{FLEET}-9", f"{FLEET}-copy")
"""Programs that somebody else adds."""


class StreamWorld(World):
    """Workers ``payments-1``, ``payments-2``, … on six partitions."""

    KIND = "stream"
    MENU: ClassVar[Menu] = Menu(
        parts=("controller", "worker"),
        services=("kafka", "redis", "supervisor"),
        links=(
            ("controller", "kafka"),
            ("controller", "supervisor"),
            ("worker", "kafka"),
            ("worker", "redis"),
            ("worker", "plans"),
        ),
        foreign=("kill", "stop", "remove", "add", "twin"),
        weights={
            "crash": 6,
            "freeze": 2,
            "away": 3,
            "link": 5,
            "clock": 1,
            "no-start": 1,
            "foreign": 2,
            "stale": 1,
            "blind": 1,
            "full": 1,
        },
    )

    def make_spec(self) -> RunSpec:
        """Two kinds of commits, eager notices or the leader's."""
        rng = self.random
        return RunSpec(
            run=RUN,
            experiment="faults",
            world="local",
            scaler=ScalerSpec(name="scripted"),
            seed=self.seed,
            fleet=FLEET,
            partitions=PARTITIONS,
            duration_s=60,
            start_ns=EPOCH_NS + START_S * SECOND,
            initial_replicas=rng.randint(1, 3),
            max_replicas=MOST,
            join_timeout_s=2.0,
            worker=WorkerSpec(
                service_time_s=rng.choice((0.0, 0.005, 0.05)),
                commit_every=rng.choice((1, 1, 5)),
                heartbeat_s=0.4,
                session_timeout_s=1.5,
                directed_rebalance=rng.random() < 0.8,
            ),
        )

    def _begin(self) -> None:
        self.broker.create(self.spec.events_topic, PARTITIONS)
        self.broker.committed = self._committed
        self.broker.assigned = self._assigned
        super()._begin()

    def decide(self, observation: FleetObservation, rng: random.Random) -> Decision:
        """Now and then more than there may be."""
        assert isinstance(observation, StreamObservation)
        target = rng.choice((1, 2, 3, 4, 6)) if rng.random() < 0.9 else 0
        partitions = list(range(PARTITIONS))
        rng.shuffle(partitions)
        groups = range_groups(range(PARTITIONS), max(1, min(target, MOST)))
        if rng.random() < 0.7:
            groups = tuple(tuple(sorted(partitions[each] for each in group)) for group in groups)
        target = max(1, target)
        if target == observation.replicas.current and same_grouping(groups, observation.plan):
            return Decision(action="none")
        action: Action = "up" if target > observation.replicas.current else "down"
        return Decision(action=action, targets={FLEET: target}, assignment=groups)

    def kind_of(self, program: str) -> str:
        return "controller" if program == f"{RUN}:controller" else "worker"

    def launch_part(self, program: Program, process: Process) -> Callable[[], Any]:
        name = program.command[program.command.index("--replica") + 1]

        def main() -> None:
            worker = Worker(self.spec, name, ENDPOINTS)
            process.on_term = worker.stop
            worker.run()

        return main

    def send(self, number: int) -> bool:
        self.broker.append(self.spec.events_topic, number % PARTITIONS, event(number))
        return True

    def foreign(self, what: str) -> None:
        process = self.victim("worker")
        name = process.name if process is not None else ""
        if what == "kill" and process is not None:
            process.kill()
        elif what == "stop" and process is not None:
            self.manager.stop(name)
        elif what == "remove" and process is not None:
            self.manager.remove(name)
        elif what in ("add", "twin") and f"{RUN}:{STRANGERS[0]}" not in self.manager.programs and process is not None:
            program = self.manager.programs[name].program
            other = STRANGERS[what == "twin"]
            command = (*program.command[:-1], other)
            if f"{RUN}:{other}" not in self.manager.programs:
                self.manager.add(msgspec.structs.replace(program, name=f"{RUN}:{other}", command=command))

    # --- checks ------------------------------------------------------------------------------------------------------

    def _assigned(self, given: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Each partition has one owner."""
        owners: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        for member, topics in given.items():
            for partition in topics.get(self.spec.events_topic, ()):
                owners.setdefault(partition, []).append(member)
        for partition, members in owners.items():
            if len(members) != 1:
                self.kernel.violate(f"partition {partition} is owned by {members or 'nobody'}")

    def _committed(self, group: str, partition: int, offset: int) -> None:
        """What is committed is finished."""
        log = self.broker.logs[self.spec.events_topic][partition]
        before = self.broker.commits.get((group, self.spec.events_topic, partition), 0)
        for record in log[before:offset]:
            number = record.offset * PARTITIONS + partition
            if number not in self.results:
                self.kernel.violate(f"event {number} is committed without a result")

    def check(self) -> None:
        """Bounds of what runs."""
        if self.controller is None:
            return
        assert isinstance(self.controller.fleet, StreamFleet)
        phases = self.controller.fleet.actuator.replicas()
        current = [name for name, phase in phases.items() if phase != "draining"]
        if len(current) > max(MOST, self.most_adopted(len(current))):
            self.kernel.violate(f"{len(current)} replicas are current, {MOST} may be")
        plan = self.controller.fleet.plans.snapshot().current
        if plan is not None and sorted(p for group in plan.groups for p in group) != list(range(PARTITIONS)):
            self.kernel.violate(f"plan {plan.epoch} has groups {plan.groups}")

    def most_adopted(self, current: int) -> int:
        """A program that somebody has added is adopted, until the next decision."""
        return MOST + 2 if any(fault.kind == "foreign" for fault in self.faults) else MOST

    def standing(self) -> set[str]:
        """The replicas that have a program. One that somebody else added and that does not stay up is no replica."""
        programs = {name.partition(":")[2]: managed for name, managed in self.manager.programs.items()}
        ended = {name for name in STRANGERS if name in programs and programs[name].state in ("failed", "stopped")}
        return set(programs) - ended - {"controller"}

    def unsettled(self) -> str:
        assert self.controller is not None
        fleet = self.controller.fleet
        assert isinstance(fleet, StreamFleet)
        phases = fleet.actuator.replicas()
        plans = fleet.plans.snapshot()
        if FLEET in self.targets and len(phases) != self.targets[FLEET]:
            return f"replicas {dict(phases)}, {self.targets[FLEET]} were decided"
        if waiting := [name for name, phase in phases.items() if phase not in ("joined", "first-event")]:
            return f"{waiting[0]} is {phases[waiting[0]]}"
        if (standing := self.standing()) != set(phases):
            return f"standing are {sorted(standing)}, replicas {sorted(phases)}"
        if plans.pending is not None or plans.current is None:
            return f"plan {plans.pending} is pending"
        if set(plans.current.members) != set(phases):
            return f"the plan is for {plans.current.members}, replicas are {sorted(phases)}"
        coordinator = self.broker.group(self.spec.group)
        if coordinator.state != "Stable":
            return f"the group is {coordinator.state}"
        held = [
            [partition for _, partitions in assignment.assigned_partitions for partition in partitions]
            for assignment in coordinator.assignments.values()
        ]
        if not same_grouping(held, plans.current.groups):
            return f"members hold {held}, the plan has {plans.current.groups}"
        if len(coordinator.members) != len(phases):
            return f"members {list(coordinator.members)}, replicas {sorted(phases)}"
        for partition, log in enumerate(self.broker.logs[self.spec.events_topic]):
            done = self.broker.commits.get((self.spec.group, self.spec.events_topic, partition), 0)
            if done < len(log):
                return f"partition {partition} is committed up to {done} of {len(log)}"
        return ""

    def left_behind(self) -> str:
        members = self.broker.group(self.spec.group).members
        return f"members {list(members)} are left" if members else ""
