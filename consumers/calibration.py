"""Calibration of a worker: μ and service times under a backlog, measured from its results."""

from dataclasses import dataclass

import numpy as np

from consumers.private_run import PrivateRun, private_spec
from penstock.errors import PenstockError
from penstock.measures import Ints, percentiles_s
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from penstock.world import Progress

WARM_UP_S = 2.0
FASTEST_PER_S = 20_000
"""Bounds the backlog of a worker without a service floor: no worker is faster."""
FIRST_RESULT_S = 30.0
REPLICA = "calibrate-0"


@dataclass(frozen=True, slots=True)
class Calibration:
    """``rates_per_s``: events of each whole second. ``service_s``: percentiles ``PERCENTILES`` of the service time."""

    events: int
    seconds: float
    service_rate_per_s: float
    rates_per_s: tuple[float, ...]
    service_s: tuple[float, ...]

    @property
    def spread_per_s(self) -> tuple[float, float]:
        """10th and 90th percentile of the whole seconds' rates."""
        low, high = np.percentile(self.rates_per_s, [10, 90])
        return float(low), float(high)


def calibrate_worker(
    endpoints: Endpoints, worker: WorkerSpec, *, seconds: float, tell: Progress = lambda _: None
) -> Calibration:
    """Preload a private topic, start one worker process and measure ``seconds`` of its work after warming up.

    Raises PenstockError if a service is away or the worker does not start.
    """
    fastest_per_s = min(FASTEST_PER_S, 2 / worker.service_time_s) if worker.service_time_s else FASTEST_PER_S
    backlog = round(fastest_per_s * (seconds + WARM_UP_S))
    with PrivateRun(endpoints, private_spec("calibrate", worker, partitions=1)) as run:
        tell(f"preloading {backlog} payments")
        run.send(range(backlog))
        tell(f"one worker works for {seconds + WARM_UP_S:g} s")
        run.start(REPLICA)
        started, finished = _times(run, seconds + WARM_UP_S)
        if run.stop(REPLICA) != 0 or len(finished) == 0:
            raise PenstockError(f"the worker did not work; its log ends: {run.log(REPLICA).strip()[-500:]}")
    return measure(started, finished)


def measure(started_ns: Ints, finished_ns: Ints) -> Calibration:
    """Rates and percentiles from the results of one busy worker. The first ``WARM_UP_S`` seconds do not count."""
    order = np.argsort(finished_ns)
    started_ns, finished_ns = started_ns[order], finished_ns[order]
    warm = finished_ns >= finished_ns[0] + round(WARM_UP_S * 1e9)
    started_ns, finished_ns = started_ns[warm], finished_ns[warm]
    span_s = (finished_ns[-1] - finished_ns[0]) / 1e9 if len(finished_ns) > 1 else 0.0
    if span_s < 1:
        raise PenstockError(f"{len(finished_ns)} results in {span_s:.2f} s are too few to measure: use more seconds")
    second = (finished_ns - finished_ns[0]) // 1_000_000_000
    rates = np.bincount(second[second < int(span_s)])
    return Calibration(
        events=len(finished_ns),
        seconds=float(span_s),
        service_rate_per_s=float((len(finished_ns) - 1) / span_s),
        rates_per_s=tuple(rates.astype(float).tolist()),
        service_s=tuple(percentiles_s((finished_ns - started_ns) / 1e9).tolist()),
    )


def _times(run: PrivateRun, seconds: float) -> tuple[Ints, Ints]:
    """(started, finished) of the results of the first ``seconds`` after the first result, or of the whole backlog."""
    times: list[tuple[int, int]] = []
    for result in run.results(FIRST_RESULT_S):
        times.append((result.started_ns, result.finished_ns))
        if result.finished_ns - times[0][1] > seconds * 1e9:
            break
    table = np.array(times, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
