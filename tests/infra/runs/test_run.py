"""How long a run waits for its last results, and what becomes of it when a service dies."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.catalogue import EXPERIMENTS
from experiments.experiment import Options, run_spec
from infra.runs import run as run_module
from infra.runs.kinds import local_run
from infra.runs.run import DRAIN_STALL_S, Run
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.systems import NetworkSystem


def spec_of(name: str, scaler: str, speed: float = 1.0) -> RunSpec:
    return run_spec(EXPERIMENTS[name], scaler, Options(world="local", speed=speed), run="r")


def composed(spec: RunSpec, directory: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    context = SimpleNamespace(
        spec=spec, endpoints=None, services=None, directory=RunDirectory(directory), blaming=nullcontext
    )
    monkeypatch.setattr("infra.runs.kinds.RunContext", lambda *_: context)
    for part in ("ControllerProgram", "ProgramReplicas", "SenderProgram", "FunctionReplicas"):
        monkeypatch.setattr(f"infra.runs.kinds.{part}", lambda *_: SimpleNamespace())
    for part in ("Faults", "RunMetrics", "ProgramCpu", "MachineSampler"):
        where = "infra.runs.kinds" if part == "Faults" else "infra.runs.run"
        monkeypatch.setattr(f"{where}.{part}", lambda *_: SimpleNamespace())
    context.supervisor = SimpleNamespace(programs=None)
    return local_run(cast(Any, SimpleNamespace(state=None)), spec, RunDirectory(directory))


def test_jobs_that_take_minutes_are_waited_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = spec_of("pubsub-mintime", "min-time")
    assert isinstance(slow.system, NetworkSystem)
    # job type 1: A, B and D, 4.2, 3.7 and 5.1 a minute
    assert slow.system.longest_job_s == pytest.approx(60 / 4.2 + 60 / 3.7 + 60 / 5.1)
    assert composed(slow, tmp_path, monkeypatch).stall_s == pytest.approx(5 * slow.system.longest_job_s)
    fast = spec_of("pubsub-mintime", "min-time", speed=20)
    assert composed(fast, tmp_path, monkeypatch).stall_s == DRAIN_STALL_S
    assert composed(spec_of("binpack-workload-1", "linear"), tmp_path, monkeypatch).stall_s == DRAIN_STALL_S


def test_jobs_may_wait_for_as_long_as_their_limit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert composed(spec_of("pubsub-growing", "newsvendor-network"), tmp_path, monkeypatch).stall_s == 600


def test_missing_jars_of_spark_end_a_run_before_anything_is_made(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "none"))
    made: list[bool] = []
    spec = spec_of("binpack-workload-1", "linear")
    assert spec.analytics
    run = composed(spec, tmp_path, monkeypatch)
    run.channels = cast(Any, SimpleNamespace(make=lambda: made.append(True)))
    with pytest.raises(PenstockError, match=r"^no jars in .*none/spark: fetch them with `penstock setup`"):
        run.prepare()
    assert not made


def draining(
    experiment: str, scaler: str, left: Callable[[float], int | None], monkeypatch: pytest.MonkeyPatch, folder: Any
) -> tuple[Run, list[float]]:
    """A run whose sender has ended and its clock, which waiting moves. ``left``: events at a second."""
    now_s = [0.0]

    class Rule:
        def __init__(self, _: object) -> None: ...

        def left(self) -> int | None:
            return left(now_s[0])

        def close(self) -> None: ...

    def wait(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=wait))
    run = composed(spec_of(experiment, scaler), folder, monkeypatch)
    run.context.check_services = lambda: None  # type: ignore[method-assign]
    run.sender = cast(Any, SimpleNamespace(wait=lambda _: None))
    run.faults = cast(Any, SimpleNamespace(lasting=False))
    run.drain_rule = Rule  # type: ignore[assignment]
    return run, now_s


def test_a_drain_waits_as_long_as_something_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    left = {0: 3, 100: 2, 350: 1, 600: 0}

    def at(time_s: float) -> int:
        return min(count for at_s, count in left.items() if at_s <= time_s)

    run, now_s = draining("pubsub-mintime", "min-time", at, monkeypatch, tmp_path)
    run.stall_s = 260.0
    assert run.drain() == 0
    now_s[0], run.stall_s = 0.0, 240.0
    assert run.drain() == 2


def test_a_drain_that_reads_nothing_is_an_error_unless_a_fault_lasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run, now_s = draining(
        "binpack-workload-1", "linear", lambda time_s: 0 if time_s > 100 else None, monkeypatch, tmp_path
    )
    run.faults = cast(Any, SimpleNamespace(lasting=True))
    assert run.drain() == 0
    now_s[0], run.faults = 0.0, cast(Any, SimpleNamespace(lasting=False))
    with pytest.raises(PenstockError, match="Kafka has not answered within 30 s: how many events are left"):
        run.drain()


@pytest.mark.parametrize("undone_s", [5, 70])
def test_a_drain_waits_for_the_events_of_a_broker_that_a_fault_stopped(
    undone_s: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    # Four of 75 chaos seeds were given up while RabbitMQ was started again on a busy machine.
    run, now_s = draining(
        "multiqueue", "multiqueue-damped", lambda time_s: 5 if time_s < undone_s + 20 else 0, monkeypatch, tmp_path
    )

    class Lasting:
        @property
        def lasting(self) -> bool:
            return now_s[0] < undone_s

    run.faults = cast(Any, Lasting())
    assert run.drain() == 0


@pytest.mark.parametrize("dead", ["", "kafka", "rabbitmq", "redis"])
def test_a_run_asks_no_service_that_died_to_clear_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, dead: str) -> None:
    asked: list[str] = []

    class Client:
        def __init__(self, *_: object) -> None: ...

        def delete_run(self, run: str) -> None:
            asked.append("rabbitmq")

        def scan_iter(self, **_: object) -> list[str]:
            asked.append("redis")
            return []

        def close(self) -> None: ...

        def __enter__(self) -> "Client":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(run_module, "delete_topics", lambda *_: asked.append("kafka"))
    monkeypatch.setattr(run_module, "Management", Client)
    monkeypatch.setattr(run_module, "redis_client", Client)
    run = composed(spec_of("multiqueue", "multiqueue-damped"), tmp_path, monkeypatch)
    context = cast(Any, run.context)
    context.answers, context.admin = (lambda name: name != dead), None
    context.endpoints = SimpleNamespace(require=lambda name: name)
    run.channels.clear()
    run._delete_keys()
    assert set(asked) == {"kafka", "rabbitmq", "redis"} - {dead}


@pytest.mark.parametrize("phase", ["prepare", "start", "wait_until", "inject", "drain", "stop", "collect"])
def test_an_error_of_any_phase_is_looked_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, phase: str) -> None:
    run = composed(spec_of("binpack-workload-1", "linear"), tmp_path, monkeypatch)

    def looked_into() -> Any:
        raise PenstockError("redis has died")

    run.context.blaming = looked_into  # type: ignore[method-assign]
    with pytest.raises(PenstockError, match="redis has died"):
        getattr(run, phase)(*([0.0] if phase in ("wait_until", "inject") else []))
