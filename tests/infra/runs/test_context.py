"""A service that has died ends a run; one that is being started, or was stopped by a fault, does not."""

import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from infra.runs.context import RunContext
from penstock.adapters.process_manager import Program, ProgramStatus, UnknownProgramError
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec


class Services:
    """Says at each check what the script says."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)

    def check(self, _: Collection[str]) -> None:
        if said := self.script.pop(0):
            raise PenstockError(said)


def context_on(services: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[RunContext, list[bool]]:
    context = RunContext.__new__(RunContext)
    context.services, context._next_check_s, context._seen_dead, context._needed = services, 0.0, False, ()
    context.directory = RunDirectory(Path("/nowhere"))
    context.service_lost, context._refused = False, False
    killed: list[bool] = []
    monkeypatch.setattr(context, "_kill_all", lambda: killed.append(True))
    return context, killed


def test_a_service_that_stays_dead_ends_the_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.runs.context.CHECK_S", 0.0)
    context, killed = context_on(Services("", "kafka has died", "kafka has died"), monkeypatch)
    context.check_services()
    context.check_services()
    assert killed == []
    with pytest.raises(PenstockError, match="kafka has died"):
        context.check_services()
    assert killed == [True]


def test_a_service_that_is_dead_for_a_moment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.runs.context.CHECK_S", 0.0)
    context, killed = context_on(Services("kafka has died", "", "kafka has died", ""), monkeypatch)
    for _ in range(4):
        context.check_services()
    assert killed == []


def test_services_are_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    services = Services("", "")
    context, _ = context_on(services, monkeypatch)
    for _ in range(100):
        context.check_services()
    assert len(services.script) == 1


def test_a_run_that_is_refused_while_it_runs_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = context_on(Services("", ""), monkeypatch)
    context.directory = RunDirectory(tmp_path)
    context.check_services()
    context._next_check_s = 0.0
    context.directory.refusal_file.write_text("gateway g: pdf: another client has deployed it")
    with pytest.raises(PenstockError, match=r"^gateway g: pdf: another client has deployed it$"):
        context.check_services()
    context._next_check_s = 0.0
    context.check_services()  # the end of the run is not disturbed by it


# --- parts that end while the run is being started -------------------------------------------------------------------


class Script:
    """A supervisor that has a pid of each part by the number of the question."""

    def __init__(self, **pids: list[int | None]) -> None:
        self.pids = pids

    def add(self, program: Program) -> None: ...

    def programs(self, prefix: str) -> dict[str, ProgramStatus]:
        pids = self.pids[prefix.partition(":")[2]]
        return {prefix: ProgramStatus(prefix, pids.pop(0) if len(pids) > 1 else pids[0], "active")}


def starting(folder: Path, **pids: list[int | None]) -> RunContext:
    context = RunContext.__new__(RunContext)
    context.services = Services(*[""] * 100)  # type: ignore[assignment]
    context._next_check_s, context._seen_dead, context._processes, context.environment = 0.0, False, {}, {}
    context.service_lost, context._refused, context._needed = False, False, ()
    context.spec = RunSpec(run="r", experiment="e", world="local", scaler=ScalerSpec(name="linear"), duration_s=9)
    context.directory = RunDirectory(folder)
    context.supervisor = Script(**pids)  # type: ignore[assignment]
    context.directory.logs_folder.mkdir()
    for part in pids:
        context.log(part).write_text(f"Traceback\nValueError: {part} cannot\n")
        context.add(part, "any.module", respawn=True, grace_s=1)
    return context


@pytest.mark.parametrize("after", [None, 8], ids=["ended", "started again"])
def test_a_part_that_ends_while_it_starts_ends_the_run_by_name_with_its_log(tmp_path: Path, after: int | None) -> None:
    context = starting(tmp_path, controller=[7, 7, 7, after])
    with pytest.raises(PenstockError, match=r"(?s)^controller ended unexpectedly.*ValueError: controller cannot"):
        context.await_file("controller", tmp_path / "ready")


def test_one_that_ended_before_anybody_looked_ends_the_run(tmp_path: Path) -> None:
    context = starting(tmp_path, controller=[None, 8])
    with pytest.raises(PenstockError, match="controller ended unexpectedly"):
        context.await_file("controller", tmp_path / "ready")


def test_another_part_than_the_one_that_is_waited_for_ends_the_run_too(tmp_path: Path) -> None:
    context = starting(tmp_path, pipelines=[3, 3, 4], controller=[7])
    with pytest.raises(PenstockError, match="pipelines ended unexpectedly"):
        context.await_file("controller", tmp_path / "ready")


def test_parts_that_stay_are_waited_for(tmp_path: Path) -> None:
    context = starting(tmp_path, pipelines=[3], controller=[7])
    (tmp_path / "ready").touch()
    context.await_file("controller", tmp_path / "ready")


# --- a service that dies, whatever a run waits for -------------------------------------------------------------------


class Dying:
    """Services, of which kafka dies at the check with this number, and a supervisor whose programs end on SIGKILL only.
    ``ended``: one that has ended by itself and is gone.
    """

    def __init__(self, after: int, *programs: str, ended: str = "") -> None:
        self.after, self.running, self.ended = after, set(programs), ended
        self.asked: list[str] = []

    def check(self, needed: Collection[str]) -> None:
        assert needed == ("kafka",)
        self.after -= 1
        if self.after < 0:
            raise PenstockError("kafka has died")

    def answers(self, name: str) -> bool:
        self.asked.append(name)
        return name != "kafka"

    def programs(self, prefix: str) -> dict[str, ProgramStatus]:
        return {name: ProgramStatus(name, 1, "active") for name in sorted(self.running) if name.startswith(prefix)}

    def remove(self, name: str, *, wait: bool) -> None:
        assert not wait, "the supervisor waits for the program's grace"

    def signal(self, name: str, number: int) -> None:
        assert number == signal.SIGKILL
        self.running.discard(name)
        if name == self.ended:
            raise UnknownProgramError(name)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECK_S", "NOTICED_S"):
        monkeypatch.setattr(f"infra.runs.context.{name}", 0.001)


def context_with(world: Dying, folder: Path) -> RunContext:
    context = RunContext.__new__(RunContext)
    context.services = context.supervisor = world  # type: ignore[assignment]
    context._next_check_s, context._seen_dead, context._needed = 0.0, False, ("kafka",)
    context.service_lost, context._refused = False, False
    context.spec = RunSpec(run="r", experiment="e", world="local", scaler=ScalerSpec(name="linear"), duration_s=9)
    context.directory = RunDirectory(folder)
    return context


def test_any_wait_of_a_run_ends_when_a_service_dies(fast: None, tmp_path: Path) -> None:
    context = context_with(Dying(2), tmp_path)
    with pytest.raises(PenstockError, match="kafka has died"):
        context.wait_until(lambda: False, "replicas", timeout_s=60)


def test_a_part_that_is_being_stopped_is_killed_when_a_service_dies(fast: None, tmp_path: Path) -> None:
    world = Dying(2, "r:controller", "r:pipelines", "r:sender", "other:sender", ended="r:controller")
    with pytest.raises(PenstockError, match="kafka has died"):
        context_with(world, tmp_path).remove("pipelines")
    assert world.running == {"other:sender"}


def test_a_run_that_ends_without_a_service_is_not_ended_again(fast: None, tmp_path: Path) -> None:
    world = Dying(0, "r:sender")
    context = context_with(world, tmp_path)
    assert context.answers("kafka")
    assert not world.asked, "services are asked only when one has died"
    with pytest.raises(PenstockError, match="kafka has died"):
        context.wait_until(lambda: False, "replicas", timeout_s=60)
    context.remove_all()
    assert not context.answers("kafka")
    assert context.answers("redis")


def test_an_error_is_told_as_that_of_the_service_that_has_died(fast: None, tmp_path: Path) -> None:
    context = context_with(Dying(0), tmp_path)
    with pytest.raises(PenstockError, match="kafka has died"), context.blaming():
        raise PenstockError("topic r.results: Connection refused")


@pytest.mark.parametrize("after", [1, 100])
def test_an_error_beside_services_that_live_stays(fast: None, tmp_path: Path, after: int) -> None:
    context = context_with(Dying(after), tmp_path)
    with pytest.raises(PenstockError, match="controller ended unexpectedly"), context.blaming():
        raise PenstockError("controller ended unexpectedly")
    assert not context.service_lost
