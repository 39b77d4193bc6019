"""A kind of fleet takes one folder and one registration: a toy kind in the sim world."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

KIND = '''
"""Counters: replicas that serve one event at a time, in order of arrival."""

from penstock.contracts import FleetObservation
from penstock.fleet_kinds import FleetKind
from penstock.systems import System


class ToySystem(System, frozen=True, kw_only=True, tag="toy"):
    service_time_s: float


class ToyObservation(FleetObservation, frozen=True, kw_only=True, tag="toy"):
    longest_wait_s: float | None = None


KIND = FleetKind(
    name="toy",
    title="counters",
    system="toy_fleet:ToySystem",
    observation="toy_fleet:ToyObservation",
    engine="toy_fleet.engine:make_engine",
    faults="toy_fleet.engine:FAULTS",
)
'''

ENGINE = """
import numpy as np

from penstock.contracts import Accepted, ReplicaCounts, ReplicaEvent
from simulator.clock import nanos
from simulator.engine import EventTable, unsupported
from toy_fleet import ToyObservation

FAULTS = ()


class ToyEngine:
    def __init__(self, spec, schedule):
        self.spec, self.now_s = spec, 0.0
        self.arrivals_s = schedule.intended_offset_ns / 1e9
        self.free_s = [0.0] * spec.initial_replicas
        self.rows = []
        self.happened = [ReplicaEvent(spec.fleet, f"toy-{n}", "joined", 0) for n in range(spec.initial_replicas)]
        self.monitor = self.actuator = self

    def advance(self, until_s):
        while len(self.rows) < len(self.arrivals_s) and self.arrivals_s[len(self.rows)] <= until_s:
            arrival_s = self.arrivals_s[len(self.rows)]
            replica = int(np.argmin(self.free_s))
            start_s = max(arrival_s, self.free_s[replica])
            self.free_s[replica] = start_s + self.spec.system.service_time_s
            self.rows.append((arrival_s, start_s, self.free_s[replica], replica))
        self.now_s = max(self.now_s, until_s)

    def done(self):
        return [row for row in self.rows if row[2] <= self.now_s]

    def observe(self):
        arrived, completed = len(self.rows), len(self.done())
        return ToyObservation(
            time_s=self.now_s, fleet=self.spec.fleet, replicas=ReplicaCounts(joined=len(self.free_s)),
            arrived=arrived, completed=completed, backlog=arrived - completed,
            longest_wait_s=float(max((start - at for at, start, _, _ in self.rows), default=0.0)),
        )

    def apply(self, decision):
        wanted = decision.targets[self.spec.fleet]
        for number in range(len(self.free_s), wanted):
            self.free_s.append(self.now_s)
            self.happened.append(ReplicaEvent(self.spec.fleet, f"toy-{number}", "joined", nanos(self.now_s)))
        return Accepted({self.spec.fleet: len(self.free_s)})

    def events(self):
        taken, self.happened = self.happened, []
        return taken

    def replicas(self):
        return {f"toy-{number}": "joined" for number in range(len(self.free_s))}

    def inject(self, fault):
        raise unsupported(fault, FAULTS)

    def left(self):
        return len(self.arrivals_s) - len(self.done())

    def results(self):
        at, start, end, worker = (np.array(column) for column in zip(*self.done()))
        zeros = np.zeros(len(at), np.int32)
        return EventTable(
            id=np.arange(len(at)), intended_s=at, sent_s=at, received_s=start, started_s=start, finished_s=end,
            worker=worker.astype(np.int32), queue=zeros, outcome=zeros.astype(np.int8), stage=zeros,
            attempt=zeros + 1, workers=tuple(self.replicas()), queues=("toys",), stages=("count",),
        )


make_engine = ToyEngine
"""

SCALER = """
from dataclasses import dataclass

import msgspec

from penstock.contracts import Decision
from toy_fleet import ToyObservation


@dataclass(frozen=True)
class ByWaitParameters:
    limit_s: float = 0.5


class NoState(msgspec.Struct):
    pass


class ByWait:
    name, paper, fleets, Parameters, State, period_s = "by-wait", "none", ToyObservation, ByWaitParameters, NoState, 1.0

    def __init__(self, parameters):
        self.parameters = parameters

    def start(self, seed):
        return NoState()

    def decide(self, observation, state):
        if (observation.longest_wait_s or 0.0) <= self.parameters.limit_s or observation.replicas.current > 1:
            return Decision(action="none"), state
        return Decision(action="up", targets={observation.fleet: 2}), state
"""

RUN = """
import sys
from pathlib import Path

import numpy as np

from controller.journal import read_replica_events, read_ticks
from penstock.errors import PenstockError
from penstock.fleet_kinds import fleet_kinds
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, RunSpec, ScalerSpec
from penstock.schedule import Schedule
from simulator.world import SimWorld, check_faults
from toy_fleet import ToyObservation, ToySystem

folder = Path(sys.argv[1])
assert set(fleet_kinds()) == {"function", "network", "queue", "stream", "toy"}


def prepared(world, scaler):
    directory = RunDirectory.create(folder / "runs", "toy", scaler.name)
    spec = RunSpec(
        run=directory.name, experiment="toy", world="sim", scaler=scaler, duration_s=10.0, initial_replicas=1,
        system=ToySystem(service_time_s=0.3),
    )
    directory.write(directory.spec_file, spec)
    offsets = np.arange(50) * 200_000_000
    Schedule(offsets, np.zeros(50, np.int16), 10.0).write(directory.schedule_file)
    world.prepare(directory.spec(), directory)
    return directory


with SimWorld() as world:
    directory = prepared(world, ScalerSpec(name="by-wait", file=f"{folder / 'by_wait.py'}:ByWait"))
    world.run.start()
    world.run.wait_until(10.0)
    assert world.run.drain() == 0
    world.run.collect()
assert directory.spec().system == ToySystem(service_time_s=0.3)
ticks = list(read_ticks(directory))
assert {type(tick.observation) for tick in ticks} == {ToyObservation}
assert ticks[0].observation.longest_wait_s == 0.0
assert [tick.accepted.targets for tick in ticks if tick.accepted] == [{"payments": 2}]
assert [event.replica for event in read_replica_events(directory)] == ["toy-0", "toy-1"]

with SimWorld() as world:
    try:
        prepared(world, ScalerSpec(name="multiqueue"))
        sys.exit("a scaler of another kind was accepted")
    except PenstockError as error:
        print(error)
try:
    check_faults(ToySystem(service_time_s=1.0), [Fault("kill-worker", 1.0)])
    sys.exit("a fault that the engine does not have was accepted")
except PenstockError as error:
    print(error)
try:
    fleet_kinds()["toy"].load("fleet")
    sys.exit("a part that the kind does not have was found")
except PenstockError as error:
    print(error)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package, registration = tmp_path / "toy_fleet", tmp_path / "toy_fleet-1.0.dist-info"
    package.mkdir()
    registration.mkdir()
    (package / "__init__.py").write_text(KIND)
    (package / "engine.py").write_text(ENGINE)
    (registration / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-fleet\nVersion: 1.0\n")
    (registration / "entry_points.txt").write_text("[penstock.fleets]\ntoy = toy_fleet:KIND\n")
    (tmp_path / "by_wait.py").write_text(SCALER)
    return tmp_path


def test_registered_kind_runs_in_the_sim_world(folder: Path) -> None:
    # In a process of its own: what is installed, and the types of records, are fixed for a process.
    path = os.pathsep.join([str(folder), str(REPOSITORY)])
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        env={**os.environ, "PYTHONPATH": path}, cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wrong_scaler, wrong_fault, no_fleet = done.stdout.splitlines()
    assert "scaler 'multiqueue' reads QueueObservation, this run's fleet gives ToyObservation" in wrong_scaler
    assert "--fault kill-worker@1: this simulated fleet knows fill-disk, kill-controller" in wrong_fault
    assert no_fleet == "fleet kind 'toy' has no fleet"
