"""What is said of each scaler: proven, close, or missed."""

import shlex

from rich.console import Console

from experiments.advise.advice import Advice, Row, table_of, why_yaml
from experiments.advise.page import on_lines


def row(scaler: str, share: float, *, met: bool) -> Row:
    return Row(
        scaler=scaler,
        published=False,
        setting={},
        met=met,
        first_share=share + 0.001,
        rest_share=share,
        p99_s=0.4,
        replica_minutes=3.0,
        replica_minutes_range=(3.0, 3.0),
        money=0.002,
        seeds=3,
    )


ROWS = [row("rps", 0.995, met=True), row("linear", 0.9903, met=False), row("hpa", 0.98, met=False)]


def test_a_scaler_that_keeps_the_share_without_the_margin_is_close_and_not_missed() -> None:
    assert [each.outcome(0.99) for each in ROWS] == ["kept", "close", "missed"]
    console = Console(width=200, record=True, force_terminal=False)
    console.print(table_of(ROWS, 0.99))
    text = console.export_text()
    assert "✓ 99.5" in text and "≈ 99.0" in text and "✗ 98.0" in text
    assert "≈: keeps the share, but not" in text
    console.print(table_of([ROWS[0], ROWS[2]], 0.99))
    assert "≈" not in console.export_text()


def test_the_yaml_of_the_advised_scaler_is_not_introduced_as_dearer() -> None:
    advice = Advice(
        sentence="", best=ROWS[0], best_published=None, closest=None, constant_fleet=None, saved=None, needs=None
    )
    assert why_yaml("rps", advice) == "rps, the advised scaler, with exactly these settings"
    assert "at most a tenth more" in why_yaml("hpa", advice)


def test_a_command_of_the_page_is_on_several_lines_and_the_same_for_a_shell() -> None:
    command = "penstock replay 'my trace.csv' --slo 500ms --set rps.rho=0.4 -- YOUR COMMAND"
    lines = on_lines(command)
    assert lines.splitlines()[1] == "  --slo 500ms \\"
    assert shlex.split(lines.replace("\\\n", "")) == shlex.split(command)
