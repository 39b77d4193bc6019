"""Draws docs/lag-threshold.svg: scalers on the bin-pack paper's workload, each with several settings and twenty seeds.

``python docs/examples/lag_threshold.py`` prints the medians and ranges, and writes the picture.
Simulated, with pods that join 5 s after they are requested.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.experiments.catalogue import find_experiment
from penstock.experiments.experiment import Options
from penstock.experiments.run_result import simulate
from penstock.measures import slo_share

EXPERIMENT = "binpack-workload-1"
START_UP_S = 5.0
SEEDS = range(1, 21)
SETTINGS = {
    "keda-kafka": ("lag_threshold", (5, 10, 20, 50, 100, 200)),
    "rps": ("target_per_replica_per_s", (60, 80, 100, 120, 140)),
    "binpack-tail": ("f_up", (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
    "newsvendor": ("slo_share", (0.95, 0.98, 0.99, 0.995, 0.999)),
}
COLOURS = {"keda-kafka": "#b34700", "rps": "#666666", "binpack-tail": "#1a7f37", "newsvendor": "#0060a0"}
LABELS = {
    "keda-kafka": "HPA on lag (keda-kafka)",
    "rps": "rps: a rate per replica",
    "binpack-tail": "binpack-tail",
    "newsvendor": "newsvendor",
}
LABELLED = {10: ("5, 10", 4), 20: ("20", -14), 50: ("50", 7), 100: ("100", 7), 200: ("200", 7)}
LEFT, TOP, WIDTH, HEIGHT = 70, 34, 610, 280
COST, SHARE = (15.0, 55.0), (65.0, 100.0)

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 370" role="img" font-family="sans-serif"
 font-size="13"><title>Share within the SLO against cost, by scaler and setting</title>
<rect width="720" height="370" fill="#ffffff"/>"""


class Point(NamedTuple):
    """A scaler with one setting: by seed, share within the SLO in percent and replica-minutes."""

    scaler: str
    value: float
    shares: tuple[float, ...]
    minutes: tuple[float, ...]


def run(scaler: str, value: float, seed: int) -> tuple[float, float]:
    """(share within the SLO, replica-minutes) of a simulated run."""
    experiment, name = find_experiment(EXPERIMENT), SETTINGS[scaler][0]
    settings = {name: str(value)}
    if name == "f_up":
        settings["f_down"] = str(value / 2)
    options = Options(world="sim", seed=seed, system={"start_up_s": str(START_UP_S)}, settings={scaler: settings})
    finished = simulate(experiment, scaler, options)
    return 100 * slo_share(finished.responses()[1], experiment.slo_s), finished.replica_minutes()


def points(seeds: Sequence[int]) -> list[Point]:
    """All settings of all scalers, on all cores."""
    cells = [(scaler, value) for scaler, (_, values) in SETTINGS.items() for value in values]
    jobs = [(scaler, value, seed) for scaler, value in cells for seed in seeds]
    with ProcessPoolExecutor() as pool:
        done = list(pool.map(run, *zip(*jobs, strict=True), chunksize=len(seeds)))
    found = []
    for number, (scaler, value) in enumerate(cells):
        shares, minutes = zip(*done[number * len(seeds) : (number + 1) * len(seeds)], strict=True)
        found.append(Point(scaler, value, shares, minutes))
    return found


def x_of(minutes: float) -> float:
    """Position of a cost."""
    return LEFT + WIDTH * (minutes - COST[0]) / (COST[1] - COST[0])


def y_of(share: float) -> float:
    """Position of a share."""
    return TOP + HEIGHT * (1 - (share - SHARE[0]) / (SHARE[1] - SHARE[0]))


def drawn(found: Sequence[Point]) -> str:
    """The picture: a line for each scaler through the medians, with ranges over the seeds."""
    parts = [HEAD]
    for share in (70, 80, 90, 95, 99):
        dash = ' stroke="#b00020" stroke-dasharray="5 3"' if share == 99 else ' stroke="#dddddd"'
        y = y_of(share)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"{dash}/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>')
    parts += [
        f'<text x="{x_of(minutes):.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{minutes}</text>'
        for minutes in range(int(COST[0]), int(COST[1]) + 1, 10)
    ]
    parts.append(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 42}" text-anchor="middle">replica-minutes</text>')
    parts.append(f'<text x="{LEFT}" y="18">events within 500 ms (red: 99 %)</text>')
    for scaler, colour in COLOURS.items():
        own = [point for point in found if point.scaler == scaler]
        middle = [(x_of(float(np.median(p.minutes))), y_of(float(np.median(p.shares)))) for p in own]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in middle)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point, (x, y) in zip(own, middle, strict=True):
            low, high = y_of(min(point.shares)), y_of(max(point.shares))
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            if scaler == "keda-kafka" and point.value in LABELLED:
                text, dx = LABELLED[point.value]
                parts.append(f'<text x="{x + dx:.1f}" y="{y + 15:.1f}" font-size="11" fill="{colour}">{text}</text>')
    for number, (scaler, label) in enumerate(LABELS.items()):
        y = TOP + 190 + 22 * number
        parts.append(f'<circle cx="{LEFT + 400}" cy="{y - 4}" r="5" fill="{COLOURS[scaler]}"/>')
        parts.append(f'<text x="{LEFT + 412}" y="{y}">{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Print the table and write the picture."""
    found = points(SEEDS)
    for point in found:
        shares, minutes = point.shares, point.minutes
        sys.stdout.write(
            f"{point.scaler} {SETTINGS[point.scaler][0]}={point.value:g}: {np.median(shares):.2f} % "
            f"({min(shares):.2f} to {max(shares):.2f}), {np.median(minutes):.1f} replica-minutes "
            f"({min(minutes):.1f} to {max(minutes):.1f})\n"
        )
    (Path(__file__).parents[1] / "lag-threshold.svg").write_text(drawn(found))


if __name__ == "__main__":
    main()
