"""The actuators of function apps while a service is away, and after Redis has forgotten."""

import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from controller.fleets.apps.actuator import AGAIN_S, AppActuator
from controller.fleets.network.actuator import TopicActuator
from controller.fleets.programs import RunPrograms, WorkerProgram
from controller.fleets.queue.actuator import QueueActuator
from penstock.adapters.process_manager import Program, ProgramStatus
from penstock.apps import exchange_s
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.systems import JobSpec, NetworkSystem, QueueSystem, TopicSpec

AWAY = Endpoints(
    redis="redis://:s@127.0.0.1:1/0",  # type: ignore[arg-type]
    rabbitmq="amqp://u:s@127.0.0.1:1/%2F",  # type: ignore[arg-type]
    rabbitmq_management="http://u:s@127.0.0.1:1",  # type: ignore[arg-type]
)
QUEUE = QueueSystem(service_rate_per_s=1.0, pool_initial=0)
NETWORK = NetworkSystem(
    topics=(TopicSpec(topic="A", service_rate_per_s=1.0),),
    jobs=(JobSpec(job="1", route=("A",), arrival_rate_per_s=1.0),),
)


class NoPrograms:
    """A process manager on which nothing runs."""

    def add(self, program: Program) -> None: ...

    def remove(self, name: str, *, wait: bool = True) -> None: ...

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        return {}


def actuator_of(
    kind: type[QueueActuator | TopicActuator], system: QueueSystem | NetworkSystem, folder: Path
) -> AppActuator[Any]:
    spec = RunSpec(
        run="r", experiment="test", world="local", scaler=ScalerSpec(name="none"), duration_s=1, system=system
    )
    worker = WorkerProgram(command=("app",), folder=folder, logs=folder, env={})
    return kind(spec, AWAY, RunPrograms("r", NoPrograms(), worker))


@pytest.mark.parametrize(("kind", "system"), [(QueueActuator, QUEUE), (TopicActuator, NETWORK)])
def test_an_absent_redis_is_told_once_for_reports_and_once_for_targets(
    kind: type[QueueActuator | TopicActuator],
    system: QueueSystem | NetworkSystem,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    actuator = actuator_of(kind, system, tmp_path)
    with caplog.at_level(logging.WARNING):
        for step in range(4):
            if step == 2:
                actuator.bring_up()  # from now on there are targets to send
            actuator.step()
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert (said.count("Redis"), said.count("Redis, targets")) == (1, 1)
    assert actuator.trouble("Redis") and actuator.trouble("Redis, targets")
    actuator.stop()


def test_targets_that_redis_has_lost_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actuator, sent = actuator_of(TopicActuator, NETWORK, tmp_path), []
    monkeypatch.setattr(actuator, "_apps", SimpleNamespace(want=lambda *target: sent.append(target)))
    actuator._want({"app": 3})
    actuator._want({"app": 3})
    assert sent == [("app", 3)]
    later_s = time.monotonic() + AGAIN_S
    monkeypatch.setattr("controller.fleets.apps.actuator.time.monotonic", lambda: later_s)
    actuator._want({"app": 3})
    assert sent == [("app", 3)] * 2


def test_a_faster_run_is_looked_at_as_often_as_its_apps_report(tmp_path: Path) -> None:
    actuator = actuator_of(TopicActuator, NETWORK, tmp_path)
    assert actuator.step_s == AppActuator.STEP_S
    actuator._spec = msgspec.structs.replace(actuator._spec, speed=20.0)
    assert actuator.step_s == exchange_s(20.0) < AppActuator.STEP_S
