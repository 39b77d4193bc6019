"""Time of one bin-pack decision: five partitions in µs, thousands in ms, and the fast packing against the readable one.

Run as ``python tests/bench/bench_binpack.py``. Figures are CPU time: medians with the 5th and 95th
percentile, loads drawn anew each time; what is compared is compared in one run on the same loads.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from controller.scalers.binpack import Binpack, BinpackParameters
from controller.scalers.binpack_tail import BinpackTail, BinpackTailParameters
from controller.scalers.shared.packing import Load, bin_size, least_loaded
from controller.scalers.shared.packing_fast import least_loaded_fast
from penstock.contracts import Decision, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.plan import range_groups

UP, DOWN = bin_size(200, 0.5, 0.9), bin_size(200, 0.5, 0.4)
MIXES: dict[str, Callable[[np.random.Generator, int], tuple[Any, Any]]] = {
    "rates U(0,20), lags U(0,10)": lambda draw, n: (draw.uniform(0, 20, n), draw.uniform(0, 10, n)),
    "rates U(0,20), no lag": lambda draw, n: (draw.uniform(0, 20, n), np.zeros(n)),
    "rates 10, lags 5": lambda draw, n: (np.full(n, 10.0), np.full(n, 5.0)),
    "exponential, means 10 and 5": lambda draw, n: (draw.exponential(10, n), draw.exponential(5, n)),
    "half the partitions idle": lambda draw, n: (draw.uniform(0, 20, n) * (np.arange(n) % 2), np.zeros(n)),
    "after an outage: lags U(0,40)": lambda draw, n: (draw.uniform(0, 20, n), draw.uniform(0, 40, n)),
}
SLOW = {"after an outage: lags U(0,40)"}
AnyBinpack = Binpack | BinpackTail


def spread(seconds: Sequence[float], unit: float) -> str:
    """Median with 5th and 95th percentile."""
    low, middle, high = np.percentile(seconds, [5, 50, 95]) / unit
    return f"{middle:8.1f} [{low:.1f} – {high:.1f}]"


def timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """CPU seconds that ``work`` took in this thread, and its answer. Other work on the machine does not count."""
    began = time.thread_time()
    answer = work(*arguments, **options)
    return time.thread_time() - began, answer


def observations(rates: Any, lags: Any, replicas: int) -> tuple[StreamObservation, StreamObservation]:
    """Two ticks, one second apart."""
    partitions = len(rates)

    def at(time_s: float, ends: Any) -> StreamObservation:
        return StreamObservation(
            time_s=time_s,
            fleet="payments",
            replicas=ReplicaCounts(joined=replicas),
            partitions=tuple(
                PartitionObservation(p, int(end), int(end) - int(lag))
                for p, (end, lag) in enumerate(zip(ends, lags, strict=True))
            ),
            plan=range_groups(range(partitions), replicas),
        )

    start = np.full(partitions, 1_000_000)
    return at(0.1, start), at(1.1, start + np.rint(rates).astype(int))


def time_decide(scaler: AnyBinpack, rates: Any, lags: Any, replicas: int) -> tuple[float, Decision]:
    """Seconds of one decision with rates known."""
    first, second = observations(rates, lags, replicas)
    _, state = scaler.decide(first, scaler.start(1))
    seconds, (decision, _) = timed(scaler.decide, second, state)
    return seconds, decision


def bench_few(scalers: Sequence[AnyBinpack], draws: int = 3000) -> None:
    """Five partitions, as in the paper's experiments."""
    draw = np.random.default_rng(1)
    print(f"decide, 5 partitions, µs ({draws} draws: rates U(0,90), lags U(0,60), 1 to 5 replicas)")
    took: dict[str, list[float]] = {scaler.name: [] for scaler in scalers}
    for _ in range(draws):
        rates, lags, replicas = draw.uniform(0, 90, 5), draw.uniform(0, 60, 5), int(draw.integers(1, 6))
        for scaler in scalers:
            took[scaler.name].append(time_decide(scaler, rates, lags, replicas)[0])
    for name, seconds in took.items():
        print(f"  {name:14s} {spread(seconds, 1e-6)}")


def bench_many(scalers: Sequence[AnyBinpack], partitions: int = 10_000) -> None:
    """Ten thousand partitions: far too few replicas, about right, and one for each."""
    print(f"decide, {partitions} partitions, ms")
    for mix, make in MIXES.items():
        draw = np.random.default_rng(2)
        for replicas in (5, 600, partitions) if mix not in SLOW else (5,):
            for scaler in scalers:
                took, actions = [], set()
                for _ in range(2 if mix in SLOW else 9):
                    rates, lags = make(draw, partitions)
                    seconds, decision = time_decide(scaler, rates, lags, replicas)
                    took.append(seconds)
                    actions.add(decision.action)
                said = "/".join(sorted(actions))
                print(f"  {mix:30s} |G|={replicas:<6d} {scaler.name:13s} {spread(took, 1e-3)}  {said}")


def bench_packing(partitions: int = 10_000) -> None:
    """The fast packing alone, on rates as they are drawn (measured ones are whole numbers of events)."""
    print(f"one fast packing of {partitions} partitions, ms")
    for mix, make in MIXES.items():
        for label, size in (("f_up", UP), ("f_down", DOWN)):
            if mix in SLOW and size is DOWN:
                continue
            draw = np.random.default_rng(4)
            took, bins = [], []
            for _ in range(3 if mix in SLOW else 15):
                rates, lags = make(draw, partitions)
                seconds, packing = timed(least_loaded_fast, Load(lags.tolist(), rates.tolist()), size)
                took.append(seconds)
                bins.append(packing.bins)
            print(f"  {mix:30s} {label:7s} {spread(took, 1e-3)}  {min(bins)} to {max(bins)} bins")


def bench_ratio(partitions: int = 1000) -> None:
    """The readable packing against the fast one on the same loads, both from the volume bound on."""
    print(f"one packing of {partitions} partitions at f_up: readable over fast, ratio")
    for mix, make in MIXES.items():
        if mix in SLOW:
            continue
        draw = np.random.default_rng(3)
        ratios = []
        for _ in range(5):
            rates, lags = make(draw, partitions)
            load = Load(lags.tolist(), rates.tolist())
            readable, expected = timed(least_loaded, load, UP)
            fast, answer = timed(least_loaded_fast, load, UP)
            assert answer == expected
            ratios.append(readable / fast)
        print(f"  {mix:30s} {statistics.median(ratios):8.1f} [{min(ratios):.1f} – {max(ratios):.1f}]")


def main() -> None:
    """Print all figures."""
    scalers: list[AnyBinpack] = [Binpack(BinpackParameters()), BinpackTail(BinpackTailParameters())]
    compiled, _ = timed(least_loaded_fast, Load([1.0] * 100, [1.0] * 100), UP)
    print(f"first use of the compiled packing: {compiled:.2f} s (compiled code is cached between processes)")
    bench_few(scalers)
    bench_many(scalers)
    bench_packing()
    bench_ratio()


if __name__ == "__main__":
    main()
