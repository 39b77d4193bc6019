"""Laws of durations (service times, interarrival times) by mean and squared coefficient of variation, from a seed.

Every choice has a stream of random numbers of its own, so that two scalers meet the same service times with the same
seed, simulated or live, and a changed function leaves the draws of the others alone. Drawing more of a stream at once
gives the same numbers first.
"""

import math

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.systems import ServiceDistribution

Floats = npt.NDArray[np.float64]

DETERMINISTIC_SCV = 1e-9
"""Below this scv a law is taken as deterministic: less than 0.003 % of the mean up or down."""

SERVICE, ARRIVALS = 100, 101
"""First part of a stream's key: what is drawn. The schedule of producers has the keys below 100."""
QUEUE_SERVICE, QUEUE_ROUTING = 110, 111
"""The same for queue fleets: service time and routing of each event, by its id."""


def stream(seed: int, purpose: int, index: int) -> np.random.Generator:
    """The generator (PCG64) for one choice of a seed: ``purpose`` and the position of the function, topic or job."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, index))))


def draw_s(law: ServiceDistribution, mean_s: float, scv: float, count: int, draws: np.random.Generator) -> Floats:
    """``count`` durations in seconds, shape (count,). ``scv`` is for gamma and pareto; 0 makes them deterministic.

    A Pareto law of scv c has the shape 1 + √(1 + 1/c) (above 2, so that its variance is finite) and the scale that
    gives the mean. Raises PenstockError for a mean or scv that no law has.
    """
    if not (math.isfinite(mean_s) and mean_s >= 0 and math.isfinite(scv) and scv >= 0):
        raise PenstockError(f"{law} law of mean {mean_s:g} s and scv {scv:g}: both have to be numbers of at least 0")
    if law == "exponential":
        return draws.exponential(mean_s, count)
    if law == "deterministic" or scv < DETERMINISTIC_SCV:
        return np.full(count, mean_s)
    if law == "gamma":
        return draws.gamma(1 / scv, mean_s * scv, count)
    shape = 1 + math.sqrt(1 + 1 / scv)
    return np.asarray(mean_s * (shape - 1) / shape * (1 + draws.pareto(shape, count)))
