"""The report: one file that needs nothing else, in which no text of a run can become markup."""

import re
from html import unescape
from io import StringIO
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import Fault
from report import charts
from report.analysis.measurement import analyse, summary_of
from report.analysis.run_data import RunData
from report.groups import group_runs
from report.page import page as document
from report.page import write_advice, write_report
from report.tables import HtmlTable, Number
from report.terminal import comparison_table
from report.wording import duration, share, written_interval
from tests.experiments.synthetic import START_NS, Toy, write_run

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    runs = tmp_path_factory.mktemp("runs")
    tail = Toy(scaler="binpack-tail", per_replica=72, shadows=("linear",), seconds=40)
    return [write_run(runs, tail), write_run(runs, Toy(seconds=40))]


def page_of(directories: list[RunDirectory], tmp_path: Path) -> str:
    out = tmp_path / "report.html"
    write_report(list(map(RunData, directories)), out)
    return out.read_text("utf-8")


def without_libraries(page: str) -> str:
    """The page without its scripts, in which addresses are text."""
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_the_report_is_one_file_that_loads_nothing(pair: list[RunDirectory], tmp_path: Path) -> None:
    page = page_of(pair, tmp_path)
    assert "Content-Security-Policy" in page
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", without_libraries(page))
    assert not re.search(r"@import|url\(", without_libraries(page))
    assert re.findall(r"<script[^>]*\ssrc=", page) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "report.html"]


def test_names_and_reasons_of_a_run_are_never_markup(tmp_path: Path) -> None:
    toy = Toy(scaler=EVIL, seconds=10, shadows=(EVIL + "2",), experiment=EVIL, name="evil")
    page = page_of([write_run(tmp_path, toy)], tmp_path)
    assert EVIL not in page
    assert EVIL in unescape(without_libraries(page))
    assert page.count("</script>") == 3, "the figures, and one script each for tables and charts"


def test_the_page_of_an_advice_has_its_yaml_and_no_markup_of_others(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    scalers = HtmlTable("Scalers at their best", ("scaler", "cost"), [["<b>mine", Number("3.0", 3.0)]])
    write_advice(
        out,
        title="Which scaler for <load>.csv?",
        sentence="mine is the cheapest",
        context=["2 trials."],
        scalers=scalers,
        commands={"Play it": "penstock replay a.csv"},
        manifests={"hpa": ("hpa costs a tenth more", "kind: <HPA>")},
        emulated=False,
    )
    page = out.read_text("utf-8")
    assert "<b>mine" not in page and "<HPA>" not in page and "<load>" not in page
    assert "kind: &lt;HPA&gt;" in page and "penstock replay a.csv" in page and 'data-value="3.0"' in page


def test_every_colour_is_defined_for_light_and_for_dark(pair: list[RunDirectory], tmp_path: Path) -> None:
    page = page_of(pair, tmp_path)
    light, dark = re.findall(r":root \{(.*?)\}", page, flags=re.DOTALL)
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", without_libraries(page)))
    for name in used:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark


def test_latency_over_time_says_where_its_figures_come_from(pair: list[RunDirectory], tmp_path: Path) -> None:
    assert "Computed by Spark during the run" in page_of(pair, tmp_path)
    bare = write_run(tmp_path, Toy(seconds=10, spark=False))
    assert "Computed from the raw results after the run" in page_of([bare], tmp_path)


def test_without_spark_the_raw_results_give_the_same_series(tmp_path: Path) -> None:
    spark = RunData(write_run(tmp_path / "a", Toy(seconds=10))).latency
    raw = RunData(write_run(tmp_path / "b", Toy(seconds=10, spark=False))).latency
    assert (spark.source, raw.source) == ("Spark", "raw results")
    assert spark.second.tolist() == raw.second.tolist()
    assert spark.p99_s.tolist() == raw.p99_s.tolist()


def test_spark_figures_that_do_not_cover_the_run_are_not_shown(tmp_path: Path) -> None:
    directory = write_run(tmp_path, Toy(seconds=10))
    file = directory.per_second_file
    pq.write_table(pq.read_table(file).slice(0, 3), file)
    assert RunData(directory).latency.source == "raw results"


def test_repetitions_are_one_row_with_an_interval_and_one_bold_line(tmp_path: Path) -> None:
    directories = [write_run(tmp_path, Toy(seconds=20, seed=seed)) for seed in (1, 2, 3)]
    runs = [RunData(directory) for directory in directories]
    groups = group_runs([summary_of(run) for run in runs])
    assert [group.members for group in groups] == [(0, 1, 2)]
    lines = charts.latency_cdf(groups, runs)["panels"][0]["lines"]
    assert [line.get("faint", False) for line in lines] == [False, True, True]
    page = page_of(directories, tmp_path)
    assert "3 repetitions" in page and "Means of 3 repetitions." in page


def test_a_page_of_many_runs_stays_below_one_and_a_half_megabytes(tmp_path: Path) -> None:
    run = RunData(write_run(tmp_path, Toy(seconds=110)))
    first = summary_of(run)
    summaries = [
        msgspec.structs.replace(first, scaler=f"scaler-{scaler}", seed=seed)
        for scaler in range(8)
        for seed in range(20)
    ]
    assert len(document(group_runs(summaries), [run] * len(summaries), {}).encode()) < 1_500_000


def test_of_many_scalers_a_sentence_names_the_extremes(tmp_path: Path) -> None:
    run = RunData(write_run(tmp_path, Toy(seconds=10)))
    first = summary_of(run)
    summaries = [
        msgspec.structs.replace(
            first, scaler=f"s{i}", missed_seconds=i, latency=msgspec.structs.replace(first.latency, p99_s=1.0 + i)
        )
        for i in (3, 0, 19, 2, 1)
    ]
    page = document(group_runs(summaries), [run] * 5, {})
    assert "99 % of events were done within: s0 1.00\u00a0s to s19 20.0\u00a0s." in page
    assert "of 10: s0 0 to s19 19." in page


def test_two_runs_side_by_side_are_two_rows_even_if_they_repeat_each_other(tmp_path: Path) -> None:
    runs = [RunData(write_run(tmp_path, Toy(seconds=10, seed=seed))) for seed in (1, 2)]
    write_report(runs, tmp_path / "both.html", apart=True)
    page = (tmp_path / "both.html").read_text("utf-8")
    assert "repetitions" not in without_libraries(page).replace("repetitions</dt>", "")
    assert all(f'<a href="{run.name}/report.html">' in page for run in runs)


def test_one_scaler_under_two_conditions_is_two_rows_that_say_what_differs(tmp_path: Path) -> None:
    summaries = [summary_of(RunData(write_run(tmp_path, Toy(seconds=5))))] * 2
    late = msgspec.structs.replace(summaries[1], conditions={**summaries[1].conditions, "tick_phase_s": 0.2})
    labels = [group.label for group in group_runs([summaries[0], late])]
    assert labels == ["linear (tick_phase_s 0.1)", "linear (tick_phase_s 0.2)"]


def test_emulated_rivals_are_labelled(tmp_path: Path) -> None:
    page = page_of([write_run(tmp_path, Toy(scaler="hpa", seconds=5))], tmp_path)
    assert "hpa (emulated)" in page
    assert "our own versions of another system" in page


def test_an_invalid_run_is_named_on_top_and_never_best(tmp_path: Path) -> None:
    bad = write_run(tmp_path, Toy(scaler="binpack-tail", per_replica=60, seconds=20, lose=(3,)))
    page = page_of([bad, write_run(tmp_path, Toy(seconds=20))], tmp_path)
    assert "Not to be believed: binpack-tail" in page
    comparison = page[page.index('data-name="result-by-scaler"') :]
    row = comparison[comparison.index("binpack-tail") : comparison.index("linear")]
    assert 'class="best"' not in row


def test_faults_are_listed_with_their_time_or_as_not_injected(tmp_path: Path) -> None:
    directory = write_run(tmp_path, Toy(seconds=20, faults=(Fault("stop-broker", 5, 3), Fault("kill-worker", 9))))
    directory.faults_file.write_bytes(
        b'{"kind":"stop-broker","at_ns":%d,"seconds":3,"detail":"kafka"}\n' % (START_NS + 5_012_000_000)
    )
    page = page_of([directory], tmp_path)
    shown = page[page.index("within SLO again") :]
    assert "<td>kafka</td>" in shown
    assert ">5.0<" in shown
    assert "not injected" in shown


def test_a_report_of_an_incomplete_directory_ends_in_one_line(tmp_path: Path) -> None:
    directory = write_run(tmp_path, Toy(seconds=5))
    directory.ledger_file.unlink()
    with pytest.raises(PenstockError, match=r"missing ledger\.parquet"):
        write_report([RunData(directory)], tmp_path / "report.html")
    with pytest.raises(PenstockError, match="at least one run"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_terminal_table_fits_a_terminal_and_shows_every_scaler(pair: list[RunDirectory]) -> None:
    text = StringIO()
    Console(file=text, width=100).print(comparison_table([analyse(RunData(directory)) for directory in pair]))
    lines = text.getvalue().splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["binpack-tail", "linear"]
    assert all("VALID" in line for line in lines[-2:])


def test_markup_in_a_name_stays_text_in_the_terminal(tmp_path: Path) -> None:
    text = StringIO()
    summary = summary_of(RunData(write_run(tmp_path, Toy(scaler="[bold]loud", seconds=5, name="loud"))))
    Console(file=text, width=120).print(comparison_table([summary]))
    assert "[bold]loud" in text.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0004237, "0.424 ms"),
        (0.0053, "5.30 ms"),
        (0.5351, "535 ms"),
        (0.9999, "1.00 s"),
        (12.34, "12.3 s"),
        (None, "–"),
    ],
)
def test_durations_have_three_digits(seconds: float | None, text: str) -> None:
    assert duration(seconds).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.9789, "97.9 %"), (0.99972, "99.97 %"), (1.0, "100.0 %"), (0.0, "0.0 %"), (None, "–")]
)
def test_a_share_is_never_rounded_to_all(value: float | None, text: str) -> None:
    assert share(value).replace("\u00a0", " ") == text


def test_an_interval_names_its_unit_once() -> None:
    assert written_interval(duration, (0.521, 0.535)) == "521–535\u00a0ms"
    assert written_interval(duration, (0.9, 1.2)) == "900\u00a0ms–1.20\u00a0s"
