"""How long a run waits for its last results."""

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
    context = SimpleNamespace(spec=spec, endpoints=None, services=None, directory=RunDirectory(directory))
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


def test_a_drain_waits_as_long_as_something_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    now_s = [0.0]
    left = {0: 3, 100: 2, 350: 1, 600: 0}

    class Rule:
        def __init__(self, _: object) -> None:
            pass

        def left(self) -> int:
            return min(count for at_s, count in left.items() if at_s <= now_s[0])

        def close(self) -> None:
            pass

    def wait(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=wait))
    run = composed(spec_of("pubsub-mintime", "min-time"), tmp_path, monkeypatch)
    run.context.check_services = lambda: None  # type: ignore[method-assign]
    run.sender = cast(Any, SimpleNamespace(wait=lambda _: None))
    run.drain_rule = Rule  # type: ignore[assignment]
    run.stall_s = 260.0
    assert run.drain() == 0
    now_s[0], run.stall_s = 0.0, 240.0
    assert run.drain() == 2
