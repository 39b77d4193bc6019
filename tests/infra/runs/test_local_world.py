"""What a local run tells the person who started it, and which services it stops."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.local.addresses import choose
from infra.local.service import PREFIX
from infra.local.services import ALL_SERVICES, LocalServices
from infra.runs import local_world
from infra.runs.kinds import COMMON
from infra.runs.local_world import LocalWorld
from penstock.adapters.process_manager import NoSupervisorError, ProgramStatus
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Folders
from tests.support.services import on_free_ports

SPEC = RunSpec(run="run-1", experiment="e", world="local", scaler=ScalerSpec(name="linear"), duration_s=60.0)


@pytest.mark.parametrize(
    ("exports", "links"),
    [({"PENSTOCK_GRAFANA": "http://127.0.0.1:27191"}, 1), ({}, 0)],
    ids=["with Grafana", "without"],
)
def test_a_run_prints_a_link_to_its_board_where_grafana_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exports: dict[str, str], links: int
) -> None:
    told: list[str] = []
    judged: list[Any] = []
    metrics = SimpleNamespace(judged=lambda *given: judged.append(given))
    run = SimpleNamespace(prepare=lambda: None, metrics=metrics)
    monkeypatch.setattr(local_world, "local_run", lambda *_: run)
    monkeypatch.setattr(local_world, "allocate_indexes", lambda *_: None)
    services = cast(LocalServices, SimpleNamespace(exports=lambda: exports, state=None))
    world = LocalWorld(told.append, services)
    world.prepare(SPEC, RunDirectory(tmp_path))
    assert [line.partition("&from=")[0] for line in told] == [
        "grafana: http://127.0.0.1:27191/d/penstock-overview?var-run=run-1"
    ] * links
    world.judged("DEGRADED", ("late",))
    assert judged == [("DEGRADED", ("late",))]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a world does to its services."""
    done: list[str] = []
    monkeypatch.setattr(local_world, "warm_up", lambda _: done.append("warm up"))
    return done


def services_with(folder: Path, running: Collection[str] | None, steps: list[str]) -> LocalServices:
    """Services that were all asked for, Grafana too, of which these run; None: there is no supervisor."""
    services = LocalServices(Folders(state=folder), on_free_ports())
    asked_for = (*ALL_SERVICES, "grafana")
    services.state.create()
    services.state.write_addresses(choose(on_free_ports(), asked_for))

    def programs(_: str = "") -> dict[str, ProgramStatus]:
        if running is None:
            raise NoSupervisorError("nothing is up")
        found = {name: 7 if name in running else None for name in asked_for}
        return {PREFIX + name: ProgramStatus(name, pid, "active" if pid else "stopped") for name, pid in found.items()}

    def up(wanted: Sequence[str] = ()) -> Any:
        assert wanted == COMMON
        steps.append("up")
        return SimpleNamespace(require=lambda name: name)

    services._supervisor = cast(Any, SimpleNamespace(programs=programs))
    services.up = up  # type: ignore[method-assign,assignment]
    services.down = lambda: steps.append("down")  # type: ignore[method-assign,assignment,return-value]
    return services


@pytest.mark.parametrize("died", ["grafana", "rabbitmq", "redis"])
def test_services_that_were_up_before_stay_up_though_one_of_them_had_died(
    state_folder: Path, steps: list[str], died: str
) -> None:
    with LocalWorld(services=services_with(state_folder, {*ALL_SERVICES, "grafana"} - {died}, steps)):
        pass
    assert steps == ["up"]


def test_a_broker_that_had_died_is_warmed_up_again_and_stays_up(state_folder: Path, steps: list[str]) -> None:
    with LocalWorld(services=services_with(state_folder, {"redis", "prometheus"}, steps)):
        pass
    assert steps == ["up", "warm up"]


@pytest.mark.parametrize("running", [None, ()], ids=["no supervisor", "a supervisor without services"])
def test_services_that_were_not_up_before_are_stopped_at_the_end(
    state_folder: Path, steps: list[str], running: Collection[str] | None
) -> None:
    with LocalWorld(services=services_with(state_folder, running, steps)):
        assert steps == ["up", "warm up"]
    assert steps == ["up", "warm up", "down"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, PenstockError])
def test_a_warm_up_that_is_broken_off_leaves_no_service_and_no_lock(
    state_folder: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch, error: Callable[[], BaseException]
) -> None:
    def broken_off(_: str) -> None:
        raise error()

    monkeypatch.setattr(local_world, "warm_up", broken_off)
    services = services_with(state_folder, None, steps)
    with pytest.raises((KeyboardInterrupt, PenstockError)), LocalWorld(services=services):
        raise AssertionError("it was entered")
    assert steps == ["up", "down"]
    with services.state.running():
        pass
