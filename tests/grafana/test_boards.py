"""The boards as they are committed: what the code says, and nothing that a reader could not read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

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
OWN = {value for name, value in vars(metrics).items() if name.isupper()}
DECLARED = OWN | OF_ANY_PROCESS | RABBITMQ | {"ALERTS"}
HISTOGRAMS = (metrics.SEND_DELAY, metrics.SERVICE_TIME, metrics.STAGE_LATENCY, metrics.TICK_DURATION)
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
    assert len(BOARDS) == 9


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
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
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
        query = query.replace(', "process", "$1", "process", "$run-(.+)")', "").replace("${shift}", "$shift ")
        brokers_own = query.count("rabbitmq_")
        of_runs = query.count("$run") + query.count("$beside")
        assert of_runs + brokers_own == len(re.findall(r"\{", query)), f"of any run: {query}"
        assert set(re.findall(r"\$(\w+)", query)) <= {*known, "__rate_interval", "__interval", "__range"}, query


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


# --- as Grafana reads them ------------------------------------------------------------------------------------------


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """As Grafana before 11 keeps them: by id, else by name; the last one of an id replaces the others."""
    return {variable.get("id") or variable["name"]: variable for variable in board["templating"]["list"]}


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_every_variable_is_known_by_its_name_in_every_version(file: Path) -> None:
    board = read(file)
    assert {key: variable["name"] for key, variable in variables(board).items()} == {
        variable["name"]: variable["name"] for variable in board["templating"]["list"]
    }


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_the_data_source_is_a_choice_and_everything_asks_it(file: Path) -> None:
    board = read(file)
    source = variables(board)["datasource"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    asking = [
        *panels(board),
        *board["annotations"]["list"],
        *(variable for variable in board["templating"]["list"] if variable["type"] == "query"),
    ]
    assert {each["datasource"]["uid"] for each in asking} == {"${datasource}"}


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_an_open_board_follows_the_newest_run_unless_one_is_chosen(file: Path) -> None:
    by_name = variables(read(file))
    assert by_name["newest"]["query"].startswith("query_result(topk(1, ")
    assert re.search(by_name["newest"]["regex"].strip("/"), '{run="20261123T1-a"} 17 1700')[1] == "20261123T1-a"  # type: ignore[index]
    run = by_name["run"]
    assert (run["allValue"], run["current"]["value"], run.get("multi", False)) == ("$newest", "$__all", False)
    assert "$newest" in run["query"], "Grafana resolves variables in the order in which queries name them"
    assert all(each["refresh"] == 2 for each in by_name.values() if each["type"] == "query")


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_links_to_the_other_boards_are_one_menu(file: Path) -> None:
    (link,) = read(file)["links"]
    assert (link["asDropdown"], link["includeVars"], link["keepTime"]) == (True, True, True)


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_lines_have_their_values_in_the_legend_and_limits_are_dashed_red(file: Path) -> None:
    for panel in panels(read(file)):
        if panel["type"] != "timeseries":
            continue
        assert panel["options"]["legend"]["calcs"] == ["lastNotNull", "max"], panel["title"]
        limits = [
            override
            for override in panel["fieldConfig"]["overrides"]
            if any(each["id"] == "custom.lineStyle" for each in override["properties"])
        ]
        (dashed,) = limits
        drawn = {each["id"]: each["value"] for each in dashed["properties"]}
        assert drawn["custom.lineStyle"]["fill"] == "dash" and drawn["color"]["fixedColor"] == "red"
        names = re.compile(dashed["matcher"]["options"].strip("/"))
        assert [bool(names.search(name)) for name in ("SLO", "payments at most", "limit", "a p99")] == [
            True,
            True,
            True,
            False,
        ]


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_units_have_no_space_of_their_own(file: Path) -> None:
    assert not [panel for panel in panels(read(file)) if ": " in panel["fieldConfig"]["defaults"]["unit"]]


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_marks_of_reassignments_are_off_and_those_of_actions_and_faults_differ(file: Path) -> None:
    marks = {each["name"]: each for each in read(file)["annotations"]["list"]}
    shown = {name: mark["enable"] for name, mark in marks.items()}
    assert "{{change}}" in marks["up"]["titleFormat"]
    assert shown == {"up": True, "down": True, "reassign": False, "fault": True}
    assert len({mark["iconColor"] for mark in marks.values()}) == 4
    assert all(f'action="{name}"' in mark["expr"] for name, mark in marks.items() if name != "fault")
    assert all(mark["useValueForTime"] and mark["expr"].startswith("1000 * ") for mark in marks.values())


def panel(board: str, title: str) -> dict[str, Any]:
    (found,) = (each for each in panels(read(generate.FOLDER / f"{board}.json")) if each["title"] == title)
    return found


def test_names_of_processes_are_without_the_run() -> None:
    for title in ("Up", "CPU", "Memory", "Time of a scrape"):
        (target,) = panel("health", title)["targets"]
        assert '"$run-(.+)"' in target["expr"], title


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_rows_of_panels_have_no_holes(file: Path) -> None:
    places = [panel["gridPos"] for panel in panels(read(file))]
    for top in {place["y"] for place in places}:
        beside = [place for place in places if place["y"] == top]
        assert sum(place["w"] for place in beside) == 24
        assert len({place["h"] for place in beside}) == 1


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_board_opens_on_five_minutes_and_an_empty_tile_is_neutral(file: Path) -> None:
    board = read(file)
    assert (board["time"], board["refresh"]) == ({"from": "now-5m", "to": "now"}, "5s")
    for tile in panels(board):
        if tile["type"] == "stat":
            (mapping,) = tile["fieldConfig"]["defaults"]["mappings"]
            assert mapping["options"]["match"] == "null+nan"
            assert mapping["options"]["result"]["color"] == "text"
            assert mapping["options"]["result"]["text"] == tile["fieldConfig"]["defaults"]["noValue"]


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_states_have_a_legend_of_their_colours(file: Path) -> None:
    """With a mode of continuous colours, which is the default, Grafana draws none."""
    for band in panels(read(file)):
        if band["type"] == "state-timeline":
            assert band["fieldConfig"]["defaults"]["color"]["mode"] == "fixed"
            assert band["options"]["legend"]["showLegend"]


def test_steps_of_whole_numbers_have_no_fractions_on_their_axis() -> None:
    for file in BOARDS:
        for drawn in panels(read(file)):
            own = drawn["fieldConfig"]["defaults"]
            if own.get("custom", {}).get("lineInterpolation") == "stepAfter":
                assert own["custom"]["axisSoftMax"] == 1, drawn["title"]
                if own["unit"] in {"none", "suffix:replicas"}:
                    assert own["decimals"] == 0, drawn["title"]


@pytest.mark.parametrize(
    ("board", "title", "limit"),
    [
        ("streams", "Utilisation by replica", 1),
        ("functions", "Lowest laxity by function", 0),
        ("health", "Ticks off their phase", 0.02),
    ],
)
def test_a_fixed_limit_is_a_dashed_red_line(board: str, title: str, limit: float) -> None:
    drawn = panel(board, title)["fieldConfig"]["defaults"]
    assert drawn["custom"]["thresholdsStyle"]["mode"] == "dashed"
    assert drawn["thresholds"]["steps"][-1] == {"value": limit, "color": "red"}


def test_send_delay_and_cpu_have_their_limit_and_the_cap_is_one() -> None:
    for board, title in (("health", "Send delay"), ("health", "CPU of the machine")):
        assert "limit" in [target["legendFormat"] for target in panel(board, title)["targets"]], title
    wanted = panel("overview", "Replicas, wanted and allowed")
    assert any(target["legendFormat"].endswith("at most") for target in wanted["targets"])


def test_running_totals_are_drawn_as_what_was_added() -> None:
    for board, title in (
        ("streams", "Assignments received"),
        ("streams", "Assigned by range"),
        ("why", "Decisions that change something"),
    ):
        drawn = panel(board, title)
        assert drawn["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "bars"
        assert all("offset $__interval" in target["expr"] for target in drawn["targets"]), title


def test_what_belongs_to_no_run_offers_none() -> None:
    hidden = {name: each["hide"] for name, each in variables(read(generate.FOLDER / "rabbitmq.json")).items()}
    assert (hidden["run"], hidden["fleet"]) == (2, 2)


def test_terms_of_several_fleets_are_not_in_one_picture() -> None:
    assert panel("why", "Terms of the acting scaler")["repeat"] == "fleet"


def test_the_second_run_is_the_newest_other_one_and_begins_with_the_first() -> None:
    by_name = variables(read(generate.FOLDER / "two-runs.json"))
    assert list(by_name).index("shift") > list(by_name).index("beside") > list(by_name).index("previous")
    assert (by_name["beside"]["allValue"], by_name["beside"]["current"]["value"]) == ("$previous", "$__all")
    shift = re.compile(by_name["shift"]["regex"].strip("/"))
    for text, seconds in (("{} 45 1700000000000", "45"), ("{} -3600 1700000000000", "-3600")):
        found = shift.search(text)
        assert found is not None and found[1] == seconds
    for drawn in panels(read(generate.FOLDER / "two-runs.json")):
        first, second, *_ = (target["expr"] for target in drawn["targets"])
        assert second.replace(" offset ${shift}ms", "").replace("$beside", "$run") == first
        assert second.count("offset ${shift}ms") == second.count("$beside") == first.count("$run")


def test_the_newest_terms_are_there_when_the_run_is_over() -> None:
    found = panel("why", "Newest terms")
    assert all(target["range"] and not target.get("instant") for target in found["targets"])
    assert found["transformations"][0]["options"]["reducers"] == ["lastNotNull"]


def test_the_overview_is_of_the_whole_and_says_how_old_its_figures_are() -> None:
    assert variables(read(generate.FOLDER / "overview.json"))["fleet"]["query"].startswith(
        f"label_values({metrics.TICKS}"
    )
    assert panel("overview", "Newest tick")["targets"][0]["instant"]
    assert [each["title"] for each in panels(read(generate.FOLDER / "overview.json")) if " now" in each["title"]] == []


@pytest.mark.parametrize("board", [file.stem for file in BOARDS])
def test_a_cluster_is_given_the_board(board: str) -> None:
    made = yaml.safe_load((generate.FOLDER.parent / "kustomization.yaml").read_text())["configMapGenerator"]
    (name,) = (each["name"] for each in made if each.get("files") == [f"dashboards/{board}.json"])
    manifests = (ROOT / "infra" / "kubernetes" / "grafana" / "grafana.yaml").read_text()
    (deployment,) = (each for each in yaml.safe_load_all(manifests) if each["kind"] == "Deployment")
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {"configMap": {"name": name}} in volumes["boards"]["projected"]["sources"]
    # `kubectl apply` keeps the object once more, as text within text, among annotations of 256 KiB at most
    assert len(json.dumps(json.dumps((generate.FOLDER / f"{board}.json").read_text()))) < 2**18
