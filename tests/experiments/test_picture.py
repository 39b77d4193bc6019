"""Charts as SVG: well-formed, with each value where its axis says it is."""

from math import inf, nan
from xml.etree import ElementTree

import pytest

from experiments.picture import BOTTOM, COLOURS, HEIGHT, LEFT, PRINTED, RIGHT, TOP, WIDTH, Panel, Series, draw

SVG = "{http://www.w3.org/2000/svg}"


def panel(*series: Series, **settings: object) -> Panel:
    return Panel(title="a < b", x_title="s", y_title="events", series=series, **settings)  # type: ignore[arg-type]


def paths(text: str) -> list[str]:
    """The data of all curves."""
    root = ElementTree.fromstring(text)
    return [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.get("stroke")]


def texts(text: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_a_line_goes_from_corner_to_corner_of_its_axes() -> None:
    (data,) = paths(draw([panel(Series(label="a", x=[0, 10], y=[0, 5]), y_range=(0, 5))]))
    assert data == f"M{LEFT} {HEIGHT - BOTTOM}L{WIDTH - RIGHT} {TOP}"


def test_titles_and_names_are_escaped_and_axes_are_marked() -> None:
    found = texts(draw([panel(Series(label="<b>", x=[0, 10], y=[0, 5]))]))
    assert {"a < b", "<b>", "s", "events", "0", "10", "4"} <= set(found)


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    series = Series(label="a", x=[0, 1, 2, 3, 4], y=[1.0, 2.0, nan, 1.0, 2.0])
    assert len(paths(draw([panel(series)]))) == 2
    (points,) = paths(draw([panel(Series(label="a", x=[0, 1, 2], y=[1.0, inf, 2.0], mark="points"))]))
    assert points.count("h0") == 2


def test_steps_rise_at_their_time_and_level_points_are_left_out() -> None:
    series = Series(label="a", x=list(range(11)), y=[1.0] * 10 + [2.0], mark="steps")
    (data,) = paths(draw([panel(series, y_range=(0, 2))]))
    assert (data.count("H"), data.count("V")) == (2, 2)
    assert data.endswith(f"H{WIDTH - RIGHT}V{TOP}")


def test_a_label_has_one_colour_in_all_panels_and_print_is_black() -> None:
    both = [Series(label="ours", x=[0, 1], y=[1, 2]), Series(label=PRINTED, x=[0, 1], y=[1, 2], mark="points")]
    root = ElementTree.fromstring(draw([panel(*both), panel(*both)]))
    strokes = [path.attrib["stroke"] for path in root.iter(f"{SVG}path") if path.get("stroke")]
    assert strokes == [COLOURS[0], "#000000"] * 2
    assert [text for text in texts(draw([panel(*both), panel(*both)])) if text in ("ours", PRINTED)] == [
        "ours", PRINTED,
    ]  # fmt: skip


def test_bars_stand_side_by_side_on_the_axis_with_their_range() -> None:
    names = ["x", "y"]
    bars = [
        Series(label="a", x=names, y=[1.0, 2.0], low=[0.5, 1.5], high=[1.5, 2.5], mark="bars"),
        Series(label="b", x=names, y=[2.0, nan], mark="bars"),
    ]
    root = ElementTree.fromstring(draw([panel(*bars, y_range=(0, 4))]))
    drawn = [rect for rect in root.iter(f"{SVG}rect") if rect.get("x") and rect.get("height") != "10"]
    assert [float(rect.attrib["height"]) for rect in drawn] == pytest.approx(
        [(HEIGHT - BOTTOM - TOP) * share for share in (0.25, 0.5, 0.5)], abs=0.1
    )
    left = sorted(float(rect.attrib["x"]) for rect in drawn)
    assert left[0] + float(drawn[0].attrib["width"]) <= left[1]
