from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from penstock.errors import PenstockError
from penstock.records import Result
from penstock.rundir import RunDirectory
from pipelines.command import register


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return app


@pytest.fixture
def run(tmp_path: Path, make_directory: Callable[..., RunDirectory], make_result: Callable[..., Result]) -> Path:
    directory = make_directory(tmp_path / "a-run", "test")
    rows = [msgspec.structs.asdict(make_result(i, 10**18, (i + 1) * 100_000_000)) for i in range(10)]
    rows.append(msgspec.structs.asdict(make_result(3, 10**18, 1, run="another")))
    pq.write_table(pa.Table.from_pylist(rows), directory.results_folder / "part-0.parquet")
    return directory.path


def test_measures_are_printed_as_a_table(app: typer.Typer, run: Path) -> None:
    answer = CliRunner().invoke(app, ["measures", str(run)], env={"COLUMNS": "100"})
    assert answer.exit_code == 0, answer.output
    assert "10 events completed, 50.00 % of them within 500 ms; 0 redelivered, 1 external" in answer.output
    assert "queueing" in answer.output


def test_measures_are_printed_as_json(app: typer.Typer, run: Path) -> None:
    answer = CliRunner().invoke(app, ["measures", str(run), "--json"])
    measures = msgspec.json.decode(answer.output)
    assert measures["completed"] == 10
    assert measures["parts"]["latency"]["p50_s"] == 0.5
    assert sum(measures["histogram"].values()) == 10


def test_a_folder_that_is_no_run_is_refused(app: typer.Typer, tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["measures", str(tmp_path)])
    assert isinstance(answer.exception, PenstockError)
    assert "not a run directory (no run.json)" in str(answer.exception)


def test_a_run_without_results_is_refused(app: typer.Typer, run: Path) -> None:
    (run / "results" / "part-0.parquet").unlink()
    answer = CliRunner().invoke(app, ["measures", str(run)])
    assert isinstance(answer.exception, PenstockError)
    assert "incomplete run directory, no results/*.parquet" in str(answer.exception)
