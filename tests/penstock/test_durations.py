"""One notation for times, whatever the option."""

import pytest
import typer

from penstock.durations import duration_s, duration_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("0.5s", 0.5), (".5s", 0.5), ("2min", 120.0), ("5m", 300.0), ("1h", 3600.0), ("7d", 604_800.0),
        ("250us", 250e-6), ("10 s", 10.0), ("1e9", 1e9), ("0", 0.0), ("12", 12.0), (0.1, 0.1),
    ],
)  # fmt: skip
def test_a_number_with_a_unit_or_in_seconds(text: str | float, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["half a second", "-5ms", "", "5 parsecs", "nan", "inf", "1e400s", "s"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="such as 500ms, 5m or 1h"):
        duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "500ms"), (0.00528, "5.28ms"), (1.2, "1.2s"), (0.0, "0s"), (3600.0, "3600s")]
)
def test_a_duration_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert duration_s(text) == pytest.approx(seconds)
