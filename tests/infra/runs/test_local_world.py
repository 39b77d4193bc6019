"""What a local run tells the person who started it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.local.services import LocalServices
from infra.runs import local_world
from infra.runs.local_world import LocalWorld
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec

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
