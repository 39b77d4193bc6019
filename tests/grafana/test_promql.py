"""Queries of panels on series that are written down, evaluated by promtool: cases that a live run seldom has."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from grafana import generate
from penstock import metrics

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool: `make setup`"),
]

VALUES = {
    "${shift}": "30001",
    "$run": "r",
    "$beside": "b",
    "$fleet": ".+",
    "$__rate_interval": "4s",
    "$__interval": "1s",
    "$__range": "300s",
}
AT_S = 20


def expression(board: str, title: str, letter: str = "A") -> str:
    """Of a panel, with the values of the variables."""
    made = json.loads((generate.FOLDER / f"{board}.json").read_text())
    (query,) = (
        target["expr"]
        for panel in made["panels"]
        if panel["title"] == title
        for target in panel["targets"]
        if target["refId"] == letter
    )
    for variable, value in VALUES.items():
        query = query.replace(variable, value)
    return str(query)


def check(folder: Path, query: str, series: dict[str, str], wanted: dict[str, float], at_s: int = AT_S) -> None:
    """``series`` in promtool's notation, a value a second; ``wanted``: labels → value of each series of the answer."""
    test: dict[str, Any] = {
        "interval": "1s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": f"{at_s}s",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in wanted.items()],
            }
        ],
    }
    file = folder / "test.json"  # JSON is YAML
    file.write_text(json.dumps({"evaluation_interval": "1s", "rule_files": [], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_firing_alerts_have_their_names_and_without_one_a_band_says_so(tmp_path: Path) -> None:
    query = expression("overview", "Firing alerts")
    fires = {
        'ALERTS{run="r", alertname="MonitorBlind", alertstate="firing"}': "1x30",
        'ALERTS{run="r", alertname="BrokerDown", alertstate="pending"}': "1x30",
        'ALERTS{run="other", alertname="BrokerDown", alertstate="firing"}': "1x30",
    }
    check(tmp_path, query, fires, {'{alertname="MonitorBlind"}': 1})
    check(tmp_path, query, {}, {"{}": 0})
    check(tmp_path, expression("overview", "Alerts"), fires, {"{}": 1})


def test_a_share_of_two_rates_is_at_most_one(tmp_path: Path) -> None:
    series = {
        f'{metrics.QUEUE_REJECTED}{{run="r", fleet="f", queue="q"}}': "0+11x30",
        f'{metrics.QUEUE_ARRIVED}{{run="r", fleet="f", queue="q"}}': "0+10x30",
    }
    check(tmp_path, expression("queues", "Share refused by queue"), series, {'{queue="q"}': 1})


def test_a_total_is_drawn_in_whole_numbers_at_the_point_at_which_it_grew(tmp_path: Path) -> None:
    series = {f'{metrics.REBALANCES}{{run="r", fleet="f", process="{name}"}}': "1x19 2x10" for name in "ab"}
    query = expression("streams", "Assignments received")
    check(tmp_path, query, series, {'{fleet="f"}': 2}, at_s=20)
    check(tmp_path, query, series, {'{fleet="f"}': 0}, at_s=21)


def test_of_a_bank_of_queues_the_containers_cost_and_of_others_the_replicas(tmp_path: Path) -> None:
    bank = {f'{metrics.REPLICAS}{{run="r", fleet="f", phase="joined"}}': "2x61"}
    query = expression("overview", "Replica-minutes")
    check(tmp_path, query, bank, {'{fleet="f"}': 2}, at_s=59)
    for queue, servers in (("q1", 3), ("q2", 5)):
        bank[f'{metrics.QUEUE_SERVERS}{{run="r", fleet="f", queue="{queue}"}}'] = f"{servers}x61"
    check(tmp_path, query, bank, {'{fleet="f"}': 8}, at_s=59)


LATENCY = metrics.STAGE_LATENCY


@pytest.mark.parametrize(("slo_s", "letter"), [(0.5, "A"), (0.05, "B")])
def test_the_newest_p99_is_in_one_of_two_colours_also_when_the_run_is_over(
    tmp_path: Path, slo_s: float, letter: str
) -> None:
    series = {
        f'{LATENCY}_bucket{{run="r", stage="s", le="0.1"}}': "0+100x20 stale",
        f'{LATENCY}_bucket{{run="r", stage="s", le="+Inf"}}': "0+100x20 stale",
        f'{metrics.SLO}{{run="r", fleet="f"}}': f"{slo_s}x20 stale",
    }
    for each in "AB":
        wanted = {'{stage="s"}': 0.099} if each == letter else {}
        check(tmp_path, expression("overview", "p99", each), series, wanted, at_s=200)


@pytest.mark.parametrize(
    ("rule", "series"),
    [
        (
            "sender late",
            {
                f'{metrics.SEND_DELAY}_bucket{{run="r", le="0.1"}}': "0+90x30",
                f'{metrics.SEND_DELAY}_bucket{{run="r", le="1"}}': "0+100x30",
                f'{metrics.SEND_DELAY}_bucket{{run="r", le="+Inf"}}': "0+100x30",
            },
        ),
        (
            "cores busy",
            {
                f'{metrics.MACHINE_CPU}{{run="r", use="busy"}}': "0.5x16 0.8x14",
                f'{metrics.MACHINE_CPU}{{run="r", use="niced"}}': "0.2x30",
            },
        ),
        ("cores taken", {f'{metrics.MACHINE_CPU}{{run="r", use="stolen"}}': "0x10 0.3x20"}),
        (
            "ticks missed",
            {
                f'{metrics.TICKS}{{run="r", fleet="f", outcome="done"}}': "1+1x30",
                f'{metrics.TICKS}{{run="r", fleet="f", outcome="skipped"}}': "0x10 1x20",
            },
        ),
        ("ticks off", {f'{metrics.TICK_PHASE_ERROR}{{run="r", fleet="f"}}': "0.001x10 0.03 0.03 0.001x20"}),
    ],
)
def test_a_rule_of_the_verdict_that_is_broken_so_far_shows(tmp_path: Path, rule: str, series: dict[str, str]) -> None:
    query = f"({expression('overview', 'Against the verdict so far')}) == 1"
    series = {**series, f'{metrics.SLO}{{run="r", fleet="f"}}': "0.5x30"}
    check(tmp_path, query, series, {f'{{rule="{rule}"}}': 1})
    if rule != "sender late":  # it always was
        check(tmp_path, query, series, {}, at_s=5)


def test_progress_goes_on_to_the_end_and_stays_there(tmp_path: Path) -> None:
    series = {
        f'{metrics.RUN_START}{{run="r", fleet="f"}}': "10x50 stale",
        f'{metrics.RUN_DURATION}{{run="r", fleet="f"}}': "40x50 stale",
    }
    for at_s, done, left_s in ((20, 0.25, 30), (50, 1, 0), (250, 1, 0)):
        check(tmp_path, expression("overview", "Progress"), series, {'{run="r"}': done}, at_s)
        check(tmp_path, expression("overview", "Time left"), series, {'{run="r"}': left_s}, at_s)


def test_the_second_run_is_drawn_from_the_start_of_the_first(tmp_path: Path) -> None:
    series = {
        f'{metrics.FLEET_BACKLOG}{{run="b", fleet="f"}}': "_x10 0+1x20 stale",
        f'{metrics.FLEET_BACKLOG}{{run="r", fleet="f"}}': "_x40 0+2x20",
    }
    for letter, at_45 in (("A", 10), ("B", 4)):
        check(tmp_path, expression("two-runs", "Lag", letter), series, {'{fleet="f"}': at_45}, at_s=45)
        check(tmp_path, expression("two-runs", "Lag", letter), series, {}, at_s=39)
