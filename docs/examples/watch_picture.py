"""Draws docs/watch.svg: `penstock watch` beside a run, second by second. The run is simulated, its frames are replayed.

``python docs/examples/watch_picture.py`` writes the picture; ``picture`` makes one of any finished run.
"""

import sys
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from rich.console import Console
from rich.segment import Segment

from experiments.catalogue import find_experiment
from experiments.driver import carry_out, describe
from experiments.experiment import Options
from experiments.progress import RunProgress
from penstock.rundir import RunDirectory
from report.watch import WatchedRun, frame
from simulator.world import SimWorld

EXPERIMENT, SCALER = "binpack-workload-1", "binpack-tail"
OPTIONS = Options(world="sim", from_s=420.0, seconds=110.0, shadows=("linear", "hpa"))
NAME: Final = "20260101T120000Z-binpack-workload-1-binpack-tail"
COLUMNS, LINES = 96, 30
EVERY: Final = 2
"""Ticks from one frame to the next."""
FRAME_S, LAST_S = 0.25, 4.0
"""How long a frame is shown, and the last one."""
WIDE, HIGH, MARGIN = 7.83, 17, 14
"""Pixels of a character in 13 px, and around all."""
COLOURS: Final = {"green": "#7ee787", "red": "#ff7b72", "yellow": "#e3b341"}

HEAD: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" xml:space="preserve"
aria-label="penstock watch beside a run of {scaler}: rates, lag, replicas and decisions, second by second">
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>"""
STYLE: Final = """<style>
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre }}
.b {{ font-weight: 700 }} .d {{ fill: #8b949e }}
@keyframes frame {{ 0% {{ visibility: visible }} {frame:.4f}% {{ visibility: hidden }} }}
@keyframes last {{ 0% {{ visibility: visible }} {last:.4f}% {{ visibility: hidden }} }}
.f {{ visibility: hidden; animation: frame {whole_s}s step-end infinite }} .l {{ animation-name: last }}
@media (prefers-reduced-motion) {{ .f {{ animation: none }} .l {{ visibility: visible }} }}
</style>"""

Lines = Sequence[Sequence[Segment]]


def frames(recorded: RunDirectory, folder: Path) -> Iterator[Lines]:
    """What `penstock watch` shows while the recorded run's journal grows, and after its end."""
    directory = RunDirectory(folder / NAME)
    directory.metrics_folder.mkdir(parents=True)
    directory.write(directory.spec_file, msgspec.structs.replace(recorded.spec(), run=NAME))
    watched = WatchedRun(directory)
    lines = recorded.decisions_file.read_bytes().splitlines(keepends=True)
    for at in range(0, len(lines), EVERY):
        with directory.decisions_file.open("ab") as journal:
            journal.writelines(lines[at : at + EVERY])
        watched.look()
        yield _rendered(watched)
    copy(recorded.summary_file, directory.summary_file)
    copy(recorded.manifest_file, directory.manifest_file)
    watched.look()
    yield _rendered(watched)


def _rendered(watched: WatchedRun) -> Lines:
    console = Console(file=StringIO(), width=COLUMNS, force_terminal=True, highlight=False)
    return console.render_lines(frame(watched), pad=False)[:LINES]


def picture(shown: Sequence[Lines]) -> str:
    """An animated SVG: each frame is visible in its turn."""
    whole_s = FRAME_S * (len(shown) - 1) + LAST_S
    width, height = round(2 * MARGIN + WIDE * COLUMNS), 2 * MARGIN + HIGH * max(map(len, shown))
    parts = [
        HEAD.format(width=width, height=height, scaler=SCALER),
        STYLE.format(frame=100 * FRAME_S / whole_s, last=100 * LAST_S / whole_s, whole_s=whole_s),
    ]
    for number, lines in enumerate(shown):
        last = " l" if number == len(shown) - 1 else ""
        parts.append(f'<g class="f{last}" style="animation-delay:{FRAME_S * number:g}s">')
        parts += [_line(line, MARGIN + HIGH * (row + 0.75)) for row, line in enumerate(lines) if line]
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _line(line: Sequence[Segment], y: float) -> str:
    spans = "".join(_span(segment) for segment in line)
    return f'<text x="{MARGIN}" y="{y:g}">{spans.rstrip()}</text>'


def _span(segment: Segment) -> str:
    text, style = escape(segment.text, quote=False), segment.style
    if style is None or not text.strip():
        return text
    kinds = " ".join(name[0] for name in ("bold", "dim") if getattr(style, name))
    colour = COLOURS.get(style.color.name, "") if style.color is not None else ""
    given = {"class": kinds, "fill": colour}
    attributes = "".join(f' {name}="{value}"' for name, value in given.items() if value)
    return f"<tspan{attributes}>{text}</tspan>" if attributes else text


def recorded_run(folder: Path, options: Options = OPTIONS) -> RunDirectory:
    """The run that the picture shows."""
    experiment = find_experiment(EXPERIMENT)
    directory, _ = describe(experiment, SCALER, options, folder)
    with RunProgress(Console(quiet=True), runs=1) as progress:
        carry_out(SimWorld(), experiment, options, directory, progress)
    return directory


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        made = picture(list(frames(recorded_run(Path(scratch)), Path(scratch) / "watched")))
    out = Path(__file__).parents[1] / "watch.svg"
    out.write_text(made, encoding="utf-8")
    sys.stdout.write(f"{out}: {len(made.encode()) / 1000:.0f} kB\n")
