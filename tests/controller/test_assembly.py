"""The live clocks keep what every world's clock must; what a restarted controller finds."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from controller import assembly
from controller.assembly import ControllerState, RunController, StateFile, StoppableClock
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.fleet import StreamFleetState
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from controller.loop import LoopState
from penstock.clock import Clock, WallClock
from penstock.errors import PenstockError
from penstock.plan import MemberReport, Plan
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from tests.conformance.ports import ClockConformance


class TestWallClock(ClockConformance):
    def make_clock(self) -> Clock:
        return WallClock()


class TestStoppableClock(ClockConformance):
    def make_clock(self) -> Clock:
        return StoppableClock()


def test_a_sleep_ends_at_once_when_the_controller_is_told_to_stop() -> None:
    clock = StoppableClock()
    threading.Timer(0.05, clock.stop).start()
    clock.sleep_until(time.time() + 3600)
    assert clock.stopped
    clock.sleep_until(time.time() + 3600)


def state(tick: int = 7) -> ControllerState:
    replicas = ConsumerReplicaSet(fleet="pay")
    replicas.request(2, 5)
    loop = LoopState(tick=tick, last_scale_s=3.1, scalers={"binpack": msgspec.Raw(b'{"offsets":{"0":10}}')})
    board = AssignmentPlanner(
        join_timeout_s=5,
        serial=4,
        current=Plan(epoch=2, groups=((0, 1), (2,)), members=("pay-1", "pay-2")),
        members={"pay-1": MemberReport("joined", 9, (0, 1), epoch=2)},
        highest_epoch=2,
    )
    fleet = msgspec.Raw(msgspec.json.encode(StreamFleetState(replicas=replicas, plans=board)))
    return ControllerState(loop=loop, fleet=fleet)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert StateFile(directory).read() is None
    StateFile(directory).write(state())
    read = StateFile(directory).read()
    assert read is not None
    assert msgspec.json.decode(read.fleet, type=StreamFleetState) == msgspec.json.decode(
        state().fleet, type=StreamFleetState
    )
    assert (read.loop.tick, read.loop.last_scale_s) == (7, 3.1)
    assert msgspec.json.decode(read.loop.scalers["binpack"]) == {"offsets": {"0": 10}}


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    file = StateFile(directory)
    file.write(state())
    directory.controller_state_file.unlink()
    file.write(state())
    assert not directory.controller_state_file.exists()
    file.write(state(8))
    assert directory.controller_state_file.exists()


def test_a_file_that_is_no_state_is_named_with_the_way_out(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.controller_state_file.write_text('{"loop": 1}')
    with pytest.raises(PenstockError, match=r"controller-state\.json: not a controller's state .*remove it"):
        StateFile(directory).read()


def test_a_fleet_that_cannot_be_controlled_any_more_refuses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = SimpleNamespace(replicas=lambda _: None)
    monkeypatch.setattr(assembly, "ControllerMetrics", lambda *_: metrics)
    fleet = SimpleNamespace(actuator=SimpleNamespace(events=tuple), snapshot=lambda: msgspec.Raw(b"{}"), refusal="")
    spec = RunSpec(run="r", experiment="e", world="local", scaler=ScalerSpec(name="rps"), duration_s=9)
    directory = RunDirectory(tmp_path)
    controller = RunController(directory, spec, Endpoints(), cast(Any, fleet), [], StoppableClock())
    controller.after_step()
    assert not directory.refusal_file.exists()
    fleet.refusal = "pdf: another client has deployed it"
    controller.after_step()
    assert directory.refusal_file.read_text() == fleet.refusal
    controller.close()
