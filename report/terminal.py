"""The comparison as a table of 80 columns in the terminal: figures and words of report.html, without the money."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.rundir import Verdict
from report.analysis.summary import RunSummary
from report.groups import EMULATED, group_runs
from report.tables import MEASURES, ups_and_downs

STYLES: dict[Verdict, str] = {"VALID": "green", "DEGRADED": "yellow", "INVALID": "bold red"}
SHOWN = ("within SLO", "p50", "p95", "p99", "replica-minutes")


def plain_table(title: str) -> Table:
    """Without lines, as narrow as its cells allow; ``title`` is markup."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )


def comparison_table(summaries: Sequence[RunSummary]) -> Table:
    """One row a scaler; repetitions as their mean with its 95 % bootstrap interval below."""
    groups = group_runs(summaries)
    shown = [measure for measure in MEASURES if measure.title in SHOWN]
    title = ""
    if groups:
        first = groups[0].first
        slo = f"{first.slo_s:g} s" if first.slo_s >= 10 else f"{1000 * first.slo_s:g} ms"
        title = f"{first.experiment}: {first.duration_s:g} s, {first.world} world, SLO {slo}"
    table = plain_table(escape(title))
    table.add_column("scaler", overflow="fold")
    for title in ("within\nSLO", "p50", "p95", "p99", "replica-\nminutes", "ups\n(repl.)", "downs\n(repl.)"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for group in groups:
        verdict = group.verdict
        times = f" ×{len(group.summaries)}" if len(group.summaries) > 1 else ""
        table.add_row(
            escape(group.label.replace(EMULATED, "*")) + times,
            *("\n".join(filter(None, measure.written(group))) for measure in shown),
            *ups_and_downs(group),
            Text(verdict, style=STYLES[verdict]),
        )
    notes = [
        f"{group.label}: {reason}" for group in groups for summary in group.summaries for reason in summary.reasons
    ]
    if any(len(group.summaries) > 1 for group in groups):
        notes.insert(0, "Repetitions: mean, and below it the 95 % bootstrap interval of the mean.")
    if any(EMULATED in group.label for group in groups):
        notes.append("* emulated: our own version of another system's scaler, not that system")
    if notes:
        table.caption = Text("\n".join(dict.fromkeys(notes)))
    return table
