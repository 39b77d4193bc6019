"""Pages in headless Chromium, on a desk and on a phone, light and dark. Skipped where no Chromium is installed; the
rules of axe-core are checked where PENSTOCK_AXE names its axe.min.js (`npm pack axe-core`).
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runspec import Fault
from report.analysis.run_data import RunData
from report.page import write_advice, write_index, write_report
from report.tables import Cell, HtmlTable, Number
from tests.experiments.synthetic import Toy, write_run
from tests.support.browser import CHROMIUM, Browser, browser

pytestmark = [pytest.mark.system, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]

AXE = os.environ.get("PENSTOCK_AXE", "")
WINDOWS = pytest.mark.parametrize(("width", "dark"), [(1440, False), (1440, True), (390, False), (390, True)])
SCRIPTS = Path(__file__).with_name("browser_checks.js")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    faults = (Fault("stop-broker", 5, 3), Fault("kill-worker", 9))
    toys = [Toy(scaler=name, seconds=60, per_replica=rate, faults=faults)
            for name, rate in (("binpack-tail", 72.0), ("hpa", 85.0), ("keda-kafka", 110.0))]  # fmt: skip
    toys += [Toy(scaler="linear", seconds=60, seed=seed) for seed in (1, 2, 3)]
    write_report([RunData(write_run(folder, toy)) for toy in toys], folder / "report.html", bound_minutes=2.5)
    return folder / "report.html"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        {
            "run": f"20260101T000000Z-{'long-name-' * 6}{i}",
            "link": "x",
            "verdict": "VALID",
            "slo_share": 0.9,
            "bytes": 9,
        }
        for i in range(20)
    ]
    out = tmp_path_factory.mktemp("index") / "index.html"
    write_index(rows, out)
    return out


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    setting = "behavior true, metric backlog, min_replicas 2, stabilisation_s 30.0, target_rate_per_s 120.0"
    rows: list[list[Cell]] = [
        ["keda-kafka (emulated)", "kept", setting, Number("99.4 %", 0.994), Number("+0.40", 0.4), Number("21.1", 21.1)],
        ["rps", "close", "as published", Number("99.0 %", 0.9903), Number("+0.03", 0.03), Number("24.0", 24.0)],
    ]
    headers = ("scaler", "SLO", "setting", "within SLO, proven on", "margin", "replica-minutes")
    out = tmp_path_factory.mktemp("advice") / "report.html"
    write_advice(
        out,
        title=f"Which scaler for {'long-name-' * 6}.csv?",
        sentence=f"Cheapest that meets the SLO: keda-kafka, because it keeps 99.4 % {'of the events ' * 20}.",
        context=["302 trials."],
        scalers=HtmlTable("Scalers at their best", headers, rows, "text advice", numeric_from=3),
        commands={"Deploy it": f"penstock control {'--set keda-kafka.target_per_replica=100.0 ' * 12}-- YOUR COMMAND"},
        manifests={
            "keda-kafka": ("keda-kafka, the advised scaler", "kind: ScaledObject\nspec:\n  minReplicaCount: 2\n")
        },
        emulated=True,
        close="keeps the share",
    )
    return out


def opened(chromium: Browser, page: Path, width: int, *, dark: bool = False) -> Browser:
    """With everything unfolded and drawn."""
    chromium.open(page, width=width, dark=dark)
    chromium.run(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; });"
        "new Promise((done) => { const wait = () => [...document.querySelectorAll('.chart')]"
        ".every((each) => each.querySelector('svg')) ? done() : requestAnimationFrame(wait); wait(); })"
    )
    chromium.run(SCRIPTS.read_text("utf-8"))
    return chromium


@WINDOWS
@pytest.mark.parametrize("which", ["page", "index", "advice"])
def test_nothing_lies_off_screen_nothing_overlaps_and_the_console_is_silent(
    chromium: Browser, request: pytest.FixtureRequest, which: str, width: int, dark: bool
) -> None:
    shown = opened(chromium, request.getfixturevalue(which), width, dark=dark)
    assert shown.run("document.documentElement.scrollWidth") <= width
    assert shown.run("outside()") == []
    assert shown.run("overlaps()") == []
    assert shown.run("covered()") == [], "names of lines below a point"
    assert shown.run("[...document.querySelectorAll('.tick')].filter((each) => each.textContent.includes('e+'))") == []
    assert shown.problems == []


@pytest.mark.skipif(not AXE, reason="PENSTOCK_AXE names no axe.min.js")
@WINDOWS
@pytest.mark.parametrize("which", ["page", "index", "advice"])
def test_axe_finds_no_serious_violation(
    chromium: Browser, request: pytest.FixtureRequest, which: str, width: int, dark: bool
) -> None:
    shown = opened(chromium, request.getfixturevalue(which), width, dark=dark)
    shown.run(Path(AXE).read_text("utf-8") + "; 0")
    assert shown.run("serious()") == []
    shown.run("document.querySelector('h1').style.color = 'var(--grid)'")
    assert [rule for rule, _ in shown.run("serious()")] == ["color-contrast"], "axe finds what is wrong"


@pytest.mark.parametrize("width", [1440, 390])
def test_the_name_of_the_wanted_share_gives_way_to_a_point(
    chromium: Browser, page: Path, tmp_path: Path, width: int
) -> None:
    before, text, after = re.split(r'(?<=id="figures">)(.*?)(?=</script>)', page.read_text("utf-8"), maxsplit=1)
    figures = json.loads(text)
    scatter = next(each for each in figures.values() if each.get("pick"))
    dearest = max(scatter["panels"][0]["marks"], key=lambda mark: mark["x"][0])
    dearest["y"] = [next(rule["at"] for rule in scatter["rules"] if rule["axis"] == "y")]
    dearest["across"] = None
    moved = tmp_path / "report.html"
    moved.write_text(f"{before}{json.dumps(figures)}{after}", encoding="utf-8")
    shown = opened(chromium, moved, width)
    assert shown.run("covered()") == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_of_charts_stand_out_from_the_paper(chromium: Browser, page: Path, dark: bool) -> None:
    shown = opened(chromium, page, 1440, dark=dark)
    ratios = shown.run("contrasts()")
    assert ratios["text"] >= 4.5
    assert ratios["series"] >= 3


def test_a_table_is_sorted_by_its_figures_and_saved_unrounded(chromium: Browser, page: Path) -> None:
    shown = opened(chromium, page, 1440)
    column = (
        "[...document.querySelectorAll('table.comparison tbody tr')].map((row) => Number(row.cells[2].dataset.value))"
    )
    before = shown.run(column)
    for ending in ("ascending", "descending"):
        shown.run("document.querySelectorAll('table.comparison thead button')[2].click()")
        after = shown.run(column)
        assert after == sorted(before, reverse=ending == "descending")
        assert shown.run("document.querySelectorAll('table.comparison thead th')[2].ariaSort") == ending
    csv, text = shown.run("saved(document.querySelector('.save'))")
    rows = json.loads(text)
    assert [row["slo_share"] for row in rows] == after
    header, first, *_ = csv.split("\r\n")
    assert header.startswith("scaler,verdict,slo_share,")
    assert first.split(",")[2] == repr(after[0]).removesuffix(".0")


def test_a_column_is_hidden_from_the_page_and_from_what_is_saved(chromium: Browser, page: Path) -> None:
    shown = opened(chromium, page, 1440)
    table = "document.querySelector('table.comparison')"
    widths = f"[...{table}.rows].map((row) => [...row.cells].filter((cell) => cell.getClientRects().length).length)"
    (columns,) = set(shown.run(widths))
    box = "document.querySelector('.columns input')"
    assert shown.run(f"{box}.closest('label').textContent") == "verdict"
    shown.run(f"{box}.click()")
    assert set(shown.run(widths)) == {columns - 1}
    csv, text = shown.run("saved(document.querySelector('.save'))")
    assert csv.startswith("scaler,slo_share,") and "verdict" not in json.loads(text)[0]
    shown.run(f"{box}.click()")
    assert set(shown.run(widths)) == {columns}


def test_a_chart_is_read_by_keyboard_zoomed_and_its_lines_are_hidden(chromium: Browser, page: Path) -> None:
    shown = opened(chromium, page, 1440)
    chart = 'document.querySelector(`.chart[data-figure="together"]`)'
    press = f"{chart}.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'ArrowRight', bubbles: true }}))"
    for _ in range(5):
        shown.run(press)
    said = shown.run(f"{chart}.querySelector('.said').textContent")
    assert said.startswith("5 s; needed: ") and "binpack-tail: " in said
    lines = f"{chart}.querySelectorAll('svg svg path').length"
    before = shown.run(lines)
    shown.run(f"{chart}.previousElementSibling.querySelectorAll('button')[1].click()")
    assert shown.run(lines) == before - 1
    last = f"[...{chart}.querySelectorAll('.tick')].at(-1).textContent"
    assert shown.run(last) == "60"
    shown.run(f"drag({chart}, 300, 600)")
    assert 20 < int(shown.run(last)) < 40
    shown.run(f"{chart}.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'Escape' }}))")
    assert shown.run(last) == "60"
