"""The command line of the simulation."""

import argparse
import gc
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.faults.bugs import BUGS, FOUND_BY
from tests.faults.fault import Fault
from tests.faults.kernel import Violation

FLEETS = ("stream", "pods", "queue", "network", "function")
CHUNK = 10
PROGRESS_S = 10.0
CPU_S = 10.0
"""A seed that takes longer runs without end."""


def worlds() -> dict[str, Any]:
    """Every kind of fleet; the simulated parts are installed."""
    from tests.faults.install import install

    install()
    from tests.faults.function import FunctionWorld
    from tests.faults.network_fleet import NetworkWorld
    from tests.faults.pods import PodWorld
    from tests.faults.queue import QueueWorld
    from tests.faults.stream import StreamWorld

    found = (StreamWorld, PodWorld, QueueWorld, NetworkWorld, FunctionWorld)
    return {world.KIND: world for world in found}


WORLDS: dict[str, Any] = {}


def play(
    fleet: str, seed: int, faults: Sequence[Fault] | None = None, *, traced: bool = False, bug: str = ""
) -> tuple[Any, str]:
    """Play one seed, with a planted bug or without: the world, and its violation or an empty text."""
    if not WORLDS:
        WORLDS.update(worlds())
    if bug:
        with BUGS[bug][1]():
            return play(fleet, seed, faults, traced=traced)
    played = WORLDS[fleet](seed, faults, traced=traced)
    found = ""
    signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        played.play()
    except Violation as violation:
        found = str(violation)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return played, found


def _too_long(*_: object) -> None:
    raise TimeoutError(f"a seed has taken {CPU_S:g} s of CPU time")


def shrink(fleet: str, seed: int, bug: str = "") -> list[int]:
    """The fewest faults of a failing seed that still make it fail, by their places."""
    played, _ = play(fleet, seed, bug=bug)
    every = played.faults
    kept = list(range(len(every)))
    size = max(1, len(kept) // 2)
    while kept:
        for at in range(0, len(kept), size):
            fewer = kept[:at] + kept[at + size :]
            if play(fleet, seed, [every[place] for place in fewer], bug=bug)[1]:
                kept = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
    return kept


def _unraisable(found: Any, told: Callable[[Any], object] = sys.unraisablehook) -> None:
    """Say nothing of the coroutines of killed processes, whose ``finally`` awaits when they are collected."""
    if str(found.exc_value) != "coroutine ignored GeneratorExit":
        told(found)


def _chunk(work: tuple[str, int, int]) -> list[tuple[str, int, str]]:
    fleet, first, last = work
    failed = [(fleet, seed, found) for seed in range(first, last) if (found := play(fleet, seed)[1])]
    gc.collect()
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 without a violation, 1 with one."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--fleet", default="all", help="stream, pods, queue, network, function; all of them otherwise")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--keep", help="of its faults, those at these places only, as 0,2")
    parser.add_argument("--plant", choices=BUGS, default="", help="replay with a planted bug")
    parser.add_argument("--shrink", action="store_true", help="find the fewest faults of the seed")
    parser.add_argument("--trace", action="store_true", help="print its history")
    parser.add_argument("--seeds", type=int, default=1000, help="how many, over all kinds")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--planted", action="store_true", help="print what each planted bug's seed finds, as JSON")
    parser.add_argument("--bug", choices=(*BUGS, "all"), help="plant a bug and find the first seed that shows it")
    options = parser.parse_args(arguments)
    if options.planted:
        print(json.dumps({bug: planted(bug) for bug in BUGS}))
        return 0
    if options.bug:
        return find(list(BUGS) if options.bug == "all" else [options.bug], options.seeds)
    if options.seed is not None:
        return replay(options)
    fleets = list(FLEETS) if options.fleet == "all" else [options.fleet]
    each = -(-options.seeds // len(fleets))
    work = [
        (fleet, first, min(first + CHUNK, options.first + each))
        for first in range(options.first, options.first + each, CHUNK)
        for fleet in fleets
    ]
    began_s = time.perf_counter()
    failed = []
    sys.unraisablehook = _unraisable
    WORLDS.update(worlds())  # before the processes part: they need not import it all
    gc.collect()
    gc.freeze()  # nor look at all of it for garbage after each chunk
    with multiprocessing.Pool(options.processes) as pool:
        told_s = began_s
        for done, found in enumerate(pool.imap_unordered(_chunk, work), 1):
            if time.perf_counter() - told_s > PROGRESS_S:
                told_s = time.perf_counter()
                print(f"{done / len(work):.0%} of the seeds", file=sys.stderr, flush=True)
            for fleet, seed, reason in found:
                failed.append((fleet, seed))
                print(f"python -m tests.faults --fleet {fleet} --seed {seed}: {reason}", flush=True)
    took_s = time.perf_counter() - began_s
    print(f"{each * len(fleets)} seeds, {len(failed)} violations, {took_s:.1f} s")
    if failed:
        fleet, seed = min(failed, key=lambda each: each[1])
        with suppress(Violation):
            kept = shrink(fleet, seed)
            print(f"fewest faults: python -m tests.faults --fleet {fleet} --seed {seed} --keep {_text(kept)}")
    return 1 if failed else 0


def planted(bug: str) -> dict[str, str]:
    """What the seed of a bug finds with it and without it."""
    fleet, seed = BUGS[bug][0], FOUND_BY[bug]
    return {"with": play(fleet, seed, bug=bug)[1], "without": play(fleet, seed)[1]}


def find(bugs: Sequence[str], seeds: int) -> int:
    """The first seed that shows each bug. Exit code 1 if there is none."""
    missed = 0
    for bug in bugs:
        fleet = BUGS[bug][0]
        for seed in range(seeds):
            if found := play(fleet, seed, bug=bug)[1]:
                print(f'    ("{bug}", {seed}),  # {fleet}: {found}', flush=True)
                break
        else:
            missed += 1
            print(f"{bug}: not found within {seeds} seeds", flush=True)
    return int(missed > 0)


def _text(places: Sequence[int]) -> str:
    return ",".join(map(str, places)) or "none"


def replay(options: argparse.Namespace) -> int:
    """One seed, its faults and its history."""
    faults = None
    if options.shrink:
        options.keep = _text(shrink(options.fleet, options.seed, options.plant))
        print(f"fewest faults: --keep {options.keep}")
    if options.keep is not None:
        every = play(options.fleet, options.seed)[0].faults
        faults = [] if options.keep == "none" else [every[int(place)] for place in options.keep.split(",")]
    played, found = play(options.fleet, options.seed, faults, traced=options.trace, bug=options.plant)
    for line in played.kernel.trace:
        print(line)
    for place, fault in enumerate(played.faults):
        print(f"fault {place}: {fault}")
    print(f"history {played.kernel.digest:08x}, {played.kernel.seconds:.2f} virtual seconds")
    print(found or "no violation")
    return 1 if found else 0
