"""Benchmarks of two checkouts in one run, to see what a change costs.

Each benchmark runs in turn in the base checkout and in this one, in every other round in the other order, so that the
rest of the machine's load meets both alike.

Run as ``make bench-beside BASE=COMMIT``, or as ``python tests/bench/side_by_side.py FOLDER [BENCHMARK …]`` where
FOLDER is a checkout with its own ``.venv``. Benchmarks that need services take them from the environment (`penstock
env`).

Lines of the outputs that are equal but for their numbers belong together. Each number gets a ratio, this checkout over
base: the median over rounds, with the least and the greatest.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parents[2]
NUMBER: Final = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
BENCHMARKS: Final = ("simulator", "binpack", "sender", "gateway", "forwarder")

Numbers = dict[tuple[str, int], list[float]]
"""(a line without its numbers, its occurrence) → its numbers."""


def numbers_of(output: str) -> Numbers:
    """The numbers of each line that has some."""
    found: Numbers = {}
    seen: dict[str, int] = {}
    for line in output.splitlines():
        values = [float(each.replace(",", "")) for each in NUMBER.findall(line)]
        if values:
            words = " ".join(NUMBER.sub("#", line).split())
            seen[words] = seen.get(words, 0) + 1
            found[words, seen[words]] = values
    return found


def measured(checkout: Path, benchmark: str) -> Numbers:
    """The numbers that one run of a benchmark prints. Ends the program with the output if the run fails."""
    command = [str(checkout / ".venv/bin/python"), f"tests/bench/bench_{benchmark}.py"]
    began_s = time.monotonic()
    # The checkout first: a rival of the simulator installs a package `tests`, too.
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        print(ended.stdout, ended.stderr, sep="\n", file=sys.stderr)
        sys.exit(f"{checkout}: {' '.join(command)} ended with exit code {ended.returncode}")
    print(f"  {benchmark}: {checkout.name}, {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return numbers_of(ended.stdout)


def compared(base: list[Numbers], mine: list[Numbers]) -> Iterator[str]:
    """A line for each line that both print in every round."""
    for key, first in mine[0].items():
        rounds = [(theirs.get(key, []), ours.get(key, [])) for theirs, ours in zip(base, mine, strict=True)]
        if any(len(theirs) != len(first) or len(ours) != len(first) for theirs, ours in rounds):
            continue
        yield f"  {key[0]}"
        for column in range(len(first)):
            pairs = [(theirs[column], ours[column]) for theirs, ours in rounds]
            if all(theirs == ours for theirs, ours in pairs) or any(theirs == 0 for theirs, _ in pairs):
                continue
            ratios = [ours / theirs for theirs, ours in pairs]
            values = " ".join(f"{theirs:g} → {ours:g}" for theirs, ours in pairs)
            yield f"    {statistics.median(ratios):6.2f} [{min(ratios):.2f} – {max(ratios):.2f}]   {values}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmarks of two checkouts, side by side.")
    parser.add_argument("base", type=Path, help="the other checkout, with its own .venv")
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    for benchmark in arguments.benchmarks:
        print(f"== {benchmark}: this checkout over {arguments.base.name}, {arguments.rounds} rounds", flush=True)
        base: list[Numbers] = []
        mine: list[Numbers] = []
        for number in range(arguments.rounds):
            turns = [(arguments.base.resolve(), base), (HERE, mine)]
            for checkout, results in turns if number % 2 == 0 else turns[::-1]:
                results.append(measured(checkout, benchmark))
        print("\n".join(compared(base, mine)), flush=True)


if __name__ == "__main__":
    main()
