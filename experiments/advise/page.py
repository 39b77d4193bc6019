"""The advice as a page: ``report.html`` in its folder."""

import shlex

from experiments.advise.advice import CLOSE_MEANS, Row, conditions, setting_text, why_yaml
from experiments.advise.session import Found, Session
from report.groups import EMULATED, is_emulated
from report.page import write_advice
from report.tables import Cell, HtmlTable, Number, number
from report.wording import duration, money, one_decimal, share

HEADERS = (
    "scaler", "SLO", "setting", "within SLO, where chosen", "within SLO, where proven", "margin", "p99",
    "replica-minutes", "cost",
)  # fmt: skip
NAMES = ("scaler", "met", "setting", "first_share", "rest_share", "margin", "p99_s", "replica_minutes", "money")


def write_page(session: Session, found: Found) -> None:
    """Write the sentence, the table of scalers, the commands and the YAML."""
    request, advice, trace = session.request, found.advice, session.plan.trace
    minutes = session.parts["rest"].minutes
    cells = [_cells(row, request.share) for row in found.rows]
    wanted = f"{share(request.share)} of events within {duration(request.slo)}"
    write_advice(
        session.folder / "report.html",
        title=f"Which scaler for {trace.path.name}?",
        sentence=_sentence(advice.sentence),
        context=(
            f"{trace.rate_per_s.sum():,.0f} events in {trace.seconds:,} s; wanted: {wanted}.",
            f"{found.trials} trials, {conditions(session.plan, request, minutes, advice.best)}.",
            *(f"Warning: {warning}" for warning in (*session.plan.warnings, session.plan.hopeless) if warning),
        ),
        scalers=HtmlTable("Scalers at their best", HEADERS, cells, "text advice", numeric_from=3, names=NAMES),
        commands={
            name: on_lines(line) for name, line in (("Play it", advice.replay), ("Deploy it", advice.control)) if line
        },
        deployed=_sentence(advice.deployed) if advice.deployed else "",
        manifests={name: (why_yaml(name, advice), text) for name, text in advice.manifests.items()},
        close=CLOSE_MEANS if any(row.outcome(request.share) == "close" for row in found.rows) else "",
        emulated=any(is_emulated(row.scaler) for row in found.rows),
    )


def _sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def on_lines(command: str) -> str:
    """The same for a shell, with each option on a line."""
    words = (("\\\n  " if word.startswith("--") else "") + shlex.quote(word) for word in shlex.split(command))
    return " ".join(words)


def _cells(row: Row, wanted_share: float) -> list[Cell]:
    margin = row.lower_share - wanted_share
    return [
        row.scaler + (EMULATED if is_emulated(row.scaler) else ""),
        row.outcome(wanted_share),
        setting_text(row),
        number(row.first_share, share),
        number(row.rest_share, share),
        Number(f"{100 * margin:+.2f}", margin),
        number(row.p99_s, duration),
        number(row.replica_minutes, one_decimal),
        number(row.money, money),
    ]
