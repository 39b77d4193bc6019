"""Makes the two trace files of ``experiments/amesos/data``: ``python -m tests.producers.workloads.sample_traces``.
Seeded, so always the same.

They have the format of Azure's traces, not their content: hashes are of made-up names, the rates a day's wave with
noise.
"""

import hashlib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[3] / "experiments" / "amesos" / "data"
SEED = 2022
FUNCTIONS = (("shop", "checkout", "http", 40.0), ("shop", "receipt", "queue", 25.0), ("mail", "digest", "timer", 1.0))
"""App, function, trigger, mean invocations a minute."""

MINUTES = 1440
INVOCATIONS = 200


def text_2019() -> str:
    """A day of the 2019 format: a wave with its peak in the afternoon, Poisson counts."""
    draws = np.random.default_rng([SEED, 2019])
    rows: list[list[object]] = [["HashOwner", "HashApp", "HashFunction", "Trigger", *range(1, MINUTES + 1)]]
    wave = 1 + 0.8 * np.sin(2 * np.pi * (np.arange(MINUTES) / MINUTES - 0.4))
    for app, function, trigger, mean in FUNCTIONS:
        counts = draws.poisson(mean * np.where(trigger == "timer", 1.0, wave))
        rows.append([_hash("owner"), _hash(app), _hash(function), trigger, *counts.tolist()])
    return _as_csv(rows)


def text_2021() -> str:
    """Some three minutes of the 2021 format, in order of the invocations' ends, durations lognormal."""
    draws = np.random.default_rng([SEED, 2021])
    arrival_s = np.cumsum(draws.exponential(1.0, INVOCATIONS))
    which = draws.choice(len(FUNCTIONS), INVOCATIONS, p=[0.6, 0.35, 0.05])
    duration_s = np.round(draws.lognormal(-2.0, 0.8, INVOCATIONS), 6)
    end_s = np.round(arrival_s + duration_s, 6)
    rows: list[list[object]] = [["app", "func", "end_timestamp", "duration"]]
    for i in np.argsort(end_s, kind="stable"):
        app, function, _, _ = FUNCTIONS[which[i]]
        rows.append([_hash(app), _hash(function), float(end_s[i]), float(duration_s[i])])
    return _as_csv(rows)


def _as_csv(rows: list[list[object]]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def main() -> None:
    """Write both files."""
    (FOLDER / "azure-2019.csv").write_text(text_2019(), encoding="utf-8")
    (FOLDER / "azure-2021.csv").write_text(text_2021(), encoding="utf-8")


if __name__ == "__main__":
    main()
