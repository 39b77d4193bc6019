"""The boards as they are committed: what the code says, and nothing that a reader could not read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from grafana import generate
from penstock import metrics

ROOT = Path(generate.__file__).resolve().parents[1]
BOARDS = sorted(generate.FOLDER.glob("*.json"))

OF_ANY_PROCESS = {"up", "scrape_duration_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""Of Prometheus itself and of every Python process that uses its client library."""
RABBITMQ = {
    f"rabbitmq_{name}"
    for name in (
        "queue_messages_ready",
        "queue_messages_unacked",
        *(f"global_messages_{what}_total" for what in ("received", "confirmed", "delivered", "acknowledged")),
        "connections",
        "channels",
        "consumers",
        "queues",
        "process_resident_memory_bytes",
        "resident_memory_limit_bytes",
        "alarms_memory_used_watermark",
        "disk_space_available_bytes",
        "disk_space_available_limit_bytes",
    )
}
"""Of RabbitMQ's own exporter, version 3.10."""
OWN = set(get_args(metrics.MetricName))
DECLARED = OWN | OF_ANY_PROCESS | RABBITMQ | {"ALERTS"}
HISTOGRAMS = (metrics.SEND_DELAY, metrics.SERVICE_TIME, metrics.TICK_DURATION)
OF_HISTOGRAMS = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}


def read(file: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(file.read_text())
    return board


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        for target in panel["targets"]:
            yield target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["expr"]


def names_in(query: str) -> set[str]:
    return set(re.findall(r"([A-Za-z_]\w*)\{", query))


def test_what_is_committed_is_what_the_code_says() -> None:
    assert generate.differences(generate.FOLDER, generate.generated()) == []
    assert len(BOARDS) == 8


def test_the_check_names_every_file_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = generate.generated()
    generate.write(tmp_path, wanted)
    (tmp_path / "overview.json").write_text("{}")
    (tmp_path / "why.json").unlink()
    (tmp_path / "old.json").write_text("{}")
    assert generate.differences(tmp_path, wanted) == [
        "why.json: is missing",
        "old.json: belongs to no board",
        "overview.json: is not what the code says",
    ]
    generate.write(tmp_path, wanted)
    assert generate.differences(tmp_path, wanted) == []
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_every_panel_has_a_unit_and_says_how_to_read_it(file: Path) -> None:
    board = read(file)
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles) > 0
    for panel in panels(board):
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert re.fullmatch(r"[A-Z1].{30,}[.]", panel["description"]), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "penstock-prometheus"}
        assert all(target["legendFormat"] and target["refId"] for target in panel["targets"])


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_every_query_asks_for_metrics_that_somebody_declares(file: Path) -> None:
    for query in queries(read(file)):
        names = names_in(query)
        assert names, query
        assert names <= DECLARED | OF_HISTOGRAMS, query


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_every_query_is_of_the_chosen_run_and_uses_known_variables(file: Path) -> None:
    board = read(file)
    known = {variable["name"] for variable in board["templating"]["list"]}
    assert {"run", "fleet"} <= known
    for query in queries(board):
        brokers_own = query.count("rabbitmq_")
        assert query.count("$run") + brokers_own == len(re.findall(r"\{", query)), f"of any run: {query}"
        assert set(re.findall(r"\$(\w+)", query)) <= {*known, "__rate_interval"}, query


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_no_two_panels_lie_on_each_other(file: Path) -> None:
    taken: set[tuple[int, int]] = set()
    identities = [panel["id"] for panel in read(file)["panels"]]
    for panel in read(file)["panels"]:
        place = panel["gridPos"]
        cells = {
            (column, row)
            for column in range(place["x"], place["x"] + place["w"])
            for row in range(place["y"], place["y"] + place["h"])
        }
        assert max(column for column, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len(set(identities)) == len(identities)


def test_every_metric_of_a_run_is_on_some_board() -> None:
    asked = {name for file in BOARDS for query in queries(read(file)) for name in names_in(query)}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert OWN - shown == set()


def test_the_data_source_is_the_one_that_is_provisioned() -> None:
    provisioned = (ROOT / "grafana" / "provisioning" / "datasources" / "penstock.yaml").read_text()
    assert "uid: penstock-prometheus\n" in provisioned


def test_every_alert_asks_for_metrics_that_somebody_declares() -> None:
    rules = (ROOT / "infra" / "prometheus" / "rules" / "penstock.yml").read_text()
    named = set(re.findall(r"\bpenstock_\w+", rules))
    assert len(named) > 8
    assert named <= DECLARED | OF_HISTOGRAMS
