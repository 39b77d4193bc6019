"""What holds for every scaler there is, whatever its paper: bounds, complete assignments, purity, restarts, and that it
holds on what is unknown.

A scaler is looked up by its name in the sources of ``controller.scalers`` and imported by the test that needs it: one
that is not there is skipped, one that cannot be imported fails alone.
"""

import dataclasses
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import controller.scalers
from penstock.contracts import (
    Decision,
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    JobStatus,
    NetworkObservation,
    PartitionObservation,
    QueueObservation,
    QueueStatus,
    ReplicaCounts,
    Scaler,
    StreamObservation,
    TopicStatus,
)
from penstock.parameters import make_parameters
from report.explain import explain

ON_ANY_FLEET = [
    "ds2",
    "flink",
    "hpa",
    "keda-rabbitmq",
    "kpa",
    "lass",
    "lass-as-coded",
    "openfaas-ce",
    "openfaas-pro",
    "provider-ramp",
    "rps",
]
ON_ITS_OWN_KIND = [
    "amesos",
    "binpack",
    "binpack-tail",
    "binscale",
    "dwp",
    "elastic-faas",
    "elastic-faas-published",
    "faas",
    "keda-kafka",
    "least-loaded",
    "linear",
    "min-cost",
    "min-time",
    "multiqueue",
    "multiqueue-damped",
    "mwf-rscore",
    "newsvendor",
    "newsvendor-function",
    "newsvendor-network",
    "newsvendor-queue",
    "overprovision",
    "random",
    "single-queue",
]
EVERY = [*ON_ANY_FLEET, *ON_ITS_OWN_KIND]

CLAIRVOYANT = {"optimal"}
"""Needs the future as a parameter; it has tests of its own."""

READS_NO_COUNTERS = {"faas", "overprovision", "random", "single-queue"}
"""Constant or by lot: nothing that a monitor could fail to read."""

FIRST_IS_GIVEN = {"provider-ramp"}
"""The first container comes whatever is observed."""

SMALL = {"max_replicas": 4, "min_replicas": 1, "service_rate_per_s": 20.0, "cap": 4}
"""Values for those parameters that a scaler has, so that bounds are met within a few ticks."""

SOURCES = Path(inspect.getfile(controller.scalers)).parent
CLASS = re.compile(r"class (\w+)")
NAME = re.compile(r'    name: ClassVar\[str\] = "([\w-]+)"')


@cache
def class_paths() -> dict[str, str]:
    """module:Class by scaler name, read from the sources without importing them."""
    paths, class_name = {}, ""
    for path in sorted(SOURCES.glob("*.py")):
        for line in path.read_text().splitlines():
            if begins := CLASS.match(line):
                class_name = begins[1]
            elif (named := NAME.match(line)) and class_name:
                paths[named[1]] = f"controller.scalers.{path.stem}:{class_name}"
        class_name = ""
    return paths


def load(name: str) -> type[Any]:
    """The class of a scaler; skips the test if there is none yet."""
    path = class_paths().get(name)
    if path is None:
        pytest.skip(f"no scaler {name} yet")
    module, _, class_name = path.partition(":")
    kind: type[Any] = getattr(importlib.import_module(module), class_name)
    return kind


def make(name: str) -> Scaler[Any, Any]:
    kind = load(name)
    known = {field.name for field in dataclasses.fields(kind.Parameters)}
    given_ = {parameter: value for parameter, value in SMALL.items() if parameter in known}
    scaler: Scaler[Any, Any] = kind(make_parameters(name, kind.Parameters, given_))
    return scaler


# --- worlds: counters that grow, replicas that follow ----------------------------------------------------------------

Tick = tuple[int, int, int, bool]
"""Arrivals per second, per cent of them that get done, replicas that are not ready yet, whether nothing can be read."""

UNREADABLE = dict.fromkeys(
    ("arrived", "completed", "backlog", "in_flight", "busy_s", "laxity_s", "partitions", "queues", "jobs"),
    "the monitor is away",
)


class World:
    """A fleet of some kind; subclasses say how it is observed and what its fleets are called."""

    kind: type[FleetObservation] = FleetObservation
    names: Sequence[str] = ("fleet",)

    def __init__(self, period_s: float) -> None:
        self.period_s, self.time_s = period_s, 0.0
        self.replicas = dict.fromkeys(self.names, 2)
        self.arrived = self.completed = self.starting = 0
        self.blind = False

    def observe(self, tick: Tick) -> Any:
        rate, percent, self.starting, self.blind = tick
        arrivals = round(rate * self.period_s)
        self.time_s += self.period_s
        self.arrived += arrivals
        self.completed = min(self.arrived, self.completed + arrivals * percent // 100)
        return self.seen()

    def seen(self) -> Any:
        return FleetObservation(**self.common("fleet"))

    def common(self, name: str) -> dict[str, Any]:
        """Fields that each fleet has."""
        replicas = self.replicas.get(name, sum(self.replicas.values()))
        starting = min(self.starting, replicas)
        counts = ReplicaCounts(started=starting, joined=replicas - starting)
        fields: dict[str, Any] = {"time_s": self.time_s, "fleet": name, "replicas": counts}
        if self.blind:
            return {**fields, "unknown": UNREADABLE}
        waiting = self.arrived - self.completed
        return {
            **fields,
            "arrived": self.arrived,
            "completed": self.completed,
            "backlog": waiting,
            "in_flight": min(waiting, replicas - starting),
            "service_rate_per_s": 20.0,
        }

    def follow(self, decision: Decision) -> None:
        for fleet, target in decision.targets.items():
            if fleet in self.replicas:
                self.replicas[fleet] = target


class StreamWorld(World):
    """Five partitions, the first of which gets half of all."""

    kind, names = StreamObservation, ("stream",)
    partitions = (3, 4, 5, 6, 7)

    def __init__(self, period_s: float) -> None:
        super().__init__(period_s)
        self.plan: tuple[tuple[int, ...], ...] = ()
        self.ends = dict.fromkeys(self.partitions, 0)

    def seen(self) -> Any:
        parts = []
        for position, partition in enumerate(self.partitions):
            end, done = (count // (2 if position == 0 else 8) for count in (self.arrived, self.completed))
            new, self.ends[partition] = end - self.ends[partition], end
            slots = (0, new - new // 3, *(0,) * 17, new // 3)
            parts.append(
                PartitionObservation(partition, None, None)
                if self.blind
                else PartitionObservation(partition, end, done, arrivals_by_slot=slots)
            )
        fields = self.common("stream")
        fields.pop("in_flight", None)
        if not self.blind:
            fields |= {"finished": self.completed, "late": self.completed // 50}
        return StreamObservation(**fields, partitions=tuple(parts), plan=self.plan)

    def follow(self, decision: Decision) -> None:
        super().follow(decision)
        self.plan = decision.assignment or self.plan


class FunctionWorld(World):
    """A paper's pipeline of two functions."""

    kind, names = FunctionObservation, ("extract", "sort")

    def seen(self) -> Any:
        functions = []
        for index, function in enumerate(self.names):
            fields = self.common(function) | {"after": self.names[:index]}
            busy = None if self.blind else self.completed * 0.05
            functions.append(FunctionStatus(**fields, busy_s=busy, laxity_s=() if self.blind else (0.3, 0.1)))
        fields = self.common("pipeline") | {"replicas": ReplicaCounts(joined=sum(self.replicas.values()))}
        done = None if self.blind else self.completed
        return FunctionObservation(
            **fields,
            pipeline="document",
            deadline_s=0.5,
            functions=tuple(functions),
            finished=done,
            missed=None if done is None else done // 5,
        )


class NetworkWorld(World):
    """Two topics; one job visits the second one twice."""

    kind, names = NetworkObservation, ("A", "D")

    def seen(self) -> Any:
        measured = None if self.blind else 20.0
        topics = tuple(
            TopicStatus(
                **self.common(topic) | {"service_rate_per_s": measured}, service_scv=None if self.blind else 1.0
            )
            for topic in self.names
        )
        arrived = None if self.blind else self.arrived // 2
        jobs = tuple(
            JobStatus(job=job, route=route, arrived=arrived, arrival_scv=None if self.blind else 1.0)
            for job, route in (("1", ("A", "D", "D")), ("2", ("D",)))
        )
        fields = self.common("network") | {"replicas": ReplicaCounts(joined=sum(self.replicas.values()))}
        return NetworkObservation(
            **fields,
            topics=topics,
            jobs=jobs,
            response_time_s=None if self.blind else 90.0 + self.arrived % 7,
            late=None if self.blind else self.completed // 50,
        )


class QueueWorld(World):
    """A bank of two sub-queues with two more in its pool."""

    kind, names = QueueObservation, ("bank",)

    def __init__(self, period_s: float) -> None:
        super().__init__(period_s)
        self.queues, self.pool, self.routing = ["q0", "q1"], ["q2", "q3"], dict[str, float]()

    def seen(self) -> Any:
        share = len(self.queues)
        queues = tuple(
            QueueStatus(
                queue=name,
                arrived=None if self.blind else self.arrived // share,
                completed=None if self.blind else self.completed // share,
                rejected=None if self.blind else (self.arrived - self.completed) // share,
                depth=None if self.blind else 3,
                servers=None if self.blind else 1 + position,
                capacity=50,
                service_rate_per_s=None if self.blind else 10.0,
            )
            for position, name in enumerate(self.queues)
        )
        return QueueObservation(**self.common("bank"), queues=queues, pool=tuple(self.pool), routing=self.routing)

    def follow(self, decision: Decision) -> None:
        super().follow(decision)
        if decision.action == "up" and self.pool:
            self.queues.append(self.pool.pop(0))
        if decision.action == "down" and len(self.queues) > 1:
            self.pool.append(self.queues.pop())
        self.routing = {queue: 1 / len(self.queues) for queue in self.queues}
        self.replicas["bank"] = len(self.queues)


WORLDS: list[Callable[[float], World]] = [World, StreamWorld, FunctionWorld, NetworkWorld, QueueWorld]


def worlds_of(scaler: Scaler[Any, Any]) -> Iterator[World]:
    """Every world whose observations a scaler reads; a bank of queues is no single fleet to scale by a number."""
    for world in WORLDS:
        made = world(scaler.period_s)
        if issubclass(made.kind, scaler.fleets) and not (
            isinstance(made, QueueWorld) and scaler.fleets is FleetObservation
        ):
            yield made


# --- the contract ----------------------------------------------------------------------------------------------------


def check(decision: Decision, observation: Any, scaler: Scaler[Any, Any], world: World) -> None:
    """What every decision has to be."""
    assert explain(scaler.name, decision)
    assert decision.why
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision).targets == decision.targets
    current = {part.fleet: part.replicas.current for part in observation.parts()}
    most, least = (getattr(scaler.parameters, f"{edge}_replicas", None) for edge in ("max", "min"))
    for fleet, target in decision.targets.items():
        assert fleet in current
        assert target >= (least or 0)
        assert most is None or target <= most
    grows = any(target > current[fleet] for fleet, target in decision.targets.items())
    shrinks = any(target < current[fleet] for fleet, target in decision.targets.items())
    match decision.action:
        case "up":
            assert grows
        case "down":
            assert shrinks
            assert not grows
        case "hold":
            assert not decision.targets
            assert (decision.assignment, decision.routing, decision.pool) == (None, None, None)
            assert all(str(terms["reason"]) for terms in decision.why.values())
        case _:
            assert not grows
            assert not shrinks
    if decision.assignment is not None:
        assert isinstance(world, StreamWorld)
        assert sorted(p for group in decision.assignment for p in group) == sorted(world.partitions)
        assert sum(1 for group in decision.assignment if group) <= max(decision.targets.values())
    if decision.routing:
        assert math.isclose(math.fsum(decision.routing.values()), 1.0)
        assert all(share >= 0 for share in decision.routing.values())
    if decision.pool is not None:
        assert decision.pool >= 0


def written(value: object) -> Any:
    """What is there after it was written down and read."""
    return msgspec.json.decode(msgspec.json.encode(value))


def floats(value: object) -> Iterator[float]:
    """All floats within nested containers."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from floats(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from floats(each)


ticks = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 130), st.integers(0, 2), st.booleans()), min_size=1, max_size=12
)


@pytest.mark.parametrize("name", EVERY)
@hypothesis_settings(max_examples=15)
@given(timeline=ticks)
def test_decisions_are_within_bounds_repeatable_and_go_on_after_a_restart(name: str, timeline: list[Tick]) -> None:
    scaler = make(name)
    for world in worlds_of(scaler):
        state = restarted = scaler.start(7)
        for tick in timeline:
            observation = world.observe(tick)
            decision, following = scaler.decide(observation, state)
            check(decision, observation, scaler, world)
            assert scaler.decide(observation, state) == (decision, following)
            assert all(math.isfinite(value) for value in floats(msgspec.to_builtins(following)))
            # Another process goes on from what this one wrote down.
            resumed = msgspec.json.decode(msgspec.json.encode(restarted), type=scaler.State)
            same, restarted = make(name).decide(observation, resumed)
            assert written(same) == written(decision)
            state = following
            world.follow(decision)
        assert written(restarted) == written(state)


@pytest.mark.parametrize("name", EVERY)
def test_what_cannot_be_read_is_not_zero(name: str) -> None:
    scaler = make(name)
    for world in worlds_of(scaler):
        state, actions = scaler.start(7), []
        blind = {5, 6} if name in FIRST_IS_GIVEN else {0, 5, 6}
        for number in range(12):
            observation = world.observe((120, 90, 0, number in blind))
            decision, state = scaler.decide(observation, state)
            if number in blind and name not in READS_NO_COUNTERS:
                assert decision.action == "hold", world.kind
                assert not decision.targets
            actions.append(decision.action)
            world.follow(decision)
        if name != "flink":  # which holds for its first twenty minutes
            assert set(actions) != {"hold"}, world.kind


@pytest.mark.parametrize("name", EVERY)
def test_a_scaler_says_what_it_is(name: str) -> None:
    scaler = make(name)
    kind = type(scaler)
    assert kind.name == name
    assert kind.paper
    assert (kind.__doc__ or "").strip()
    assert issubclass(kind.fleets, FleetObservation)
    assert dataclasses.is_dataclass(kind.Parameters)
    assert isinstance(scaler.start(1), kind.State)
    assert scaler.period_s > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaler.parameters.decision_interval_s = 1.0


def test_no_scaler_is_left_out() -> None:
    assert set(class_paths()) - CLAIRVOYANT <= set(EVERY)
