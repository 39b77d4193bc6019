"""docs/watch.svg: what ``penstock watch`` shows, and small."""

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

from docs.examples.watch_picture import LINES, OPTIONS, frames, picture, recorded_run

DOCS = Path(__file__).parents[2] / "docs"
TEXT, GROUP = "{http://www.w3.org/2000/svg}text", "{http://www.w3.org/2000/svg}g"


def shown(svg: str) -> list[list[str]]:
    """The lines of each frame."""
    return [["".join(line.itertext()) for line in frame.iter(TEXT)] for frame in ET.fromstring(svg).iter(GROUP)]


def test_the_committed_picture_is_small_and_replays_a_run_to_its_verdict() -> None:
    svg = (DOCS / "watch.svg").read_text("utf-8")
    assert len(svg.encode()) < 300_000
    first, *_, last = found = shown(svg)
    assert all(len(lines) <= LINES for lines in found)
    assert ", 1 of 110 s" in first[0] and "the run has ended: VALID" in last[-1]
    assert any(line.startswith("latency of the run: p50 ") for line in last)


def test_a_frame_has_the_lines_of_watch_at_that_second(tmp_path: Path) -> None:
    run = recorded_run(tmp_path, dataclasses.replace(OPTIONS, seconds=6.0))
    first, *between, last = shown(picture(list(frames(run, tmp_path / "watched"))))
    assert [lines[0].rpartition(", ")[2] for lines in (first, *between)] == ["1 of 6 s", "3 of 6 s", "5 of 6 s"]
    assert any(line.startswith("linear ") for line in first), "a shadow"
    assert "the run has ended" in last[-1]
