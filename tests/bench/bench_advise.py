"""How good `penstock advise` is, over drawn loads: `python -m tests.bench.bench_advise --loads 50`.

Each load is a wave, spikes, steps, on-off or like Azure's functions (a rate that changes every minute, here of 10 s, by
a lognormal factor, and timers), drawn by its number. `--first` and `--loads` choose the numbers, so that a long
evaluation can be done in parts. The advised setting is simulated on the held-out part
with seeds that neither chose nor proved it, beside the best in hindsight: the same search on the held-out part itself.
Now and then a load is three times what the largest fleet serves: nobody can meet it, and the advice has to say so.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from experiments.advise.request import AdviceRequest
from experiments.advise.search import Search
from experiments.advise.session import carry_out, prepare, space_for, workers
from experiments.advise.trials import Trials, Wanted
from experiments.replay.trace import Floats

KINDS = ("wave", "spikes", "steps", "on-off", "azure")
SERVICE_RATE_PER_S = 200.0
PARTITIONS = 5
TOO_MUCH = 11
"""Every so many loads, one that nobody can serve."""


class Result(NamedTuple):
    """``ratio``: cost over the best in hindsight. ``shares``: by fresh seeds. None where none was advised."""

    number: int
    kind: str
    scaler: str
    met: bool
    possible: bool
    ratio: float | None
    shares: tuple[float, ...]
    seconds: float


def rates(number: int, seconds: int) -> tuple[str, bool, Floats]:
    """(kind, whether a fleet can serve it, events per second)."""
    rng = np.random.default_rng([17, number])
    kind, time_s = KINDS[number % len(KINDS)], np.arange(seconds)
    base, top = rng.uniform(50, 250), rng.uniform(400, 800)
    if kind == "wave":
        period_s = rng.uniform(60, seconds / 2)
        rate = base + (top - base) * (1 + np.sin(2 * np.pi * time_s / period_s)) / 2
    elif kind == "spikes":
        every_s, lasts_s = int(rng.integers(60, 150)), int(rng.integers(5, 30))
        rate = np.where(time_s % every_s >= every_s - lasts_s, top, base)
    elif kind == "steps":
        levels = rng.uniform(50, 800, seconds // 30 + 1)
        rate = levels[time_s // 30]
    elif kind == "azure":
        minute_s, timer_s = 10, int(rng.integers(60, 180))
        minutes = seconds // minute_s + 1
        noise = np.zeros(minutes)
        for minute in range(1, minutes):
            noise[minute] = 0.7 * noise[minute - 1] + rng.normal(0, 0.3)
        wave = 1 + 0.5 * np.sin(2 * np.pi * time_s / seconds + rng.uniform(0, 6))
        rate = np.minimum(base * wave * np.exp(noise[time_s // minute_s]), 800)
        rate = np.where(time_s % timer_s < minute_s, np.maximum(rate, top), rate)
    else:
        on_s, off_s = (int(rng.integers(20, 90)) for _ in range(2))
        rate = np.where(time_s % (on_s + off_s) < on_s, top, rng.uniform(0, 30))
    possible = number % TOO_MUCH != TOO_MUCH - 1
    return kind, possible, np.asarray(rate if possible else 3 * SERVICE_RATE_PER_S * PARTITIONS * rate / rate.mean())


def evaluate(number: int, seconds: int, jobs: int, scalers: str) -> Result:
    """One load."""
    kind, possible, rate_per_s = rates(number, seconds)
    with TemporaryDirectory() as name:
        folder = Path(name)
        trace = folder / f"{kind}.csv"
        trace.write_text("rate_per_s\n" + "".join(f"{rate!r}\n" for rate in rate_per_s.tolist()), encoding="utf-8")
        request = AdviceRequest(trace=trace, slo=0.5, jobs=jobs, scalers=scalers)
        began_s = time.perf_counter()
        session = prepare(request, folder)
        found = carry_out(session, lambda _: None, lambda _: None)
        took_s = time.perf_counter() - began_s
        best = found.advice.best
        if best is None:
            return Result(number, kind, "", False, possible, None, (), took_s)
        # The same search where the held-out part is both what it chooses on and what it proves on.
        rest = session.parts["rest"]
        hindsight = Trials({"first": rest, "rest": rest}, session.options, folder / "hindsight.jsonl")
        known = Trials(session.parts, session.options, folder / "trials.jsonl")
        fresh = dataclasses.replace(request, seed=101)
        again = dataclasses.replace(prepare(fresh, _sub(folder)), options=session.options)
        fresh_trials = Trials(again.parts, session.options, folder / "fresh.jsonl")
        setting = tuple(sorted(best.setting.items()))
        wanted = [Wanted(best.scaler, setting, "rest", seed) for seed in range(101, 104)]
        with workers(request, known, Wanted(best.scaler, setting, "rest", 1)) as run_trials:
            search = Search(hindsight, run_trials, wanted_share=request.share, seeds=range(1, 4))
            spaces = [space_for(session, scaler) for scaler in session.options]
            search.choose(spaces)
            costs = [proof.cost for proof in search.prove(spaces) if proof.met]
            fresh_trials.measure(wanted, run_trials)
        shares = tuple(fresh_trials.outcomes[each].slo_share for each in wanted)
        lowest = min([*costs, best.replica_minutes])
        return Result(number, kind, best.scaler, True, possible, best.replica_minutes / lowest, shares, took_s)


def _sub(folder: Path) -> Path:
    (sub := folder / "fresh").mkdir()
    return sub


def summary(results: Sequence[Result], share: float) -> str:
    """The figures of all loads."""
    could = [each for each in results if each.possible]
    advised = [each for each in could if each.ratio is not None]
    ratios = sorted(each.ratio for each in advised if each.ratio is not None)
    within = sum(ratio <= 1.03 for ratio in ratios)
    kept = sum(float(np.mean(each.shares)) >= share for each in advised)
    refused = [each for each in results if not each.possible]
    lost = sorted(
        (each for each in could if each.ratio is None or each.ratio > 1.03 or float(np.mean(each.shares)) < share),
        key=lambda each: -(each.ratio or np.inf),
    )
    told = (f"{each.number} ({each.kind}) {each.ratio or np.inf:.3f}" for each in lost)
    return (
        f"lost, by cost over the best in hindsight: {', '.join(told) or 'none'}\n"
        f"{len(could)} loads that can be served, {len(advised)} advised; within 3 % of the best in hindsight {within}; "
        f"share kept by fresh seeds {kept}; "
        f"cost over hindsight: median {np.median(ratios):.3f}, worst {ratios[-1]:.3f}\n"
        f"{len(refused)} that cannot: said so {sum(not each.met for each in refused)}"
    )


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=50, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seconds", type=int, default=600, help="length of a load")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--scalers", default="", help="comma-separated names (default: all)")
    given = parser.parse_args()
    results = []
    for number in range(given.first, given.first + given.loads):
        results.append(result := evaluate(number, given.seconds, given.jobs, given.scalers))
        ratio = "none" if result.ratio is None else f"{result.ratio:.3f}"
        shares = " ".join(f"{share:.4f}" for share in result.shares)
        print(f"{number:3} {result.kind:7} {result.scaler:14} {ratio:6} {shares} {result.seconds:.0f} s", flush=True)
        if any(each.ratio for each in results):
            print(summary(results, 0.99), flush=True)


if __name__ == "__main__":
    main()
