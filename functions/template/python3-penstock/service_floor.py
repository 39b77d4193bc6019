"""The service time of a function: a floor under its real work, waited out to an absolute deadline.

Environment: ``floor_s`` (mean in seconds; 0 or unset: real work only), ``service_law`` (deterministic, exponential,
gamma, pareto), ``service_scv`` (squared coefficient of variation, for the last two), ``seed``.
"""

import random
import time
from collections.abc import Callable, Mapping

LAST_NS = 200_000
"""Of a wait, what is not slept but counted down: a sleep ends some 0.1 ms late."""
LAWS = ("deterministic", "exponential", "gamma", "pareto")


class Floor:
    """Draws service times. ``stream`` tells the draws of one replica from another's; same seed and stream, same draws.
    Raises ValueError that names the variable.
    """

    def __init__(self, environment: Mapping[str, str], stream: str = "") -> None:
        mean_s = _number(environment, "floor_s", 0.0, lowest=0.0)
        scv = _number(environment, "service_scv", 1.0, lowest=1e-9)
        law = environment.get("service_law", "deterministic")
        if law not in LAWS:
            raise ValueError(f"service_law={law}: expected one of {', '.join(LAWS)}")
        self._draw = _draws(law, mean_s, scv, random.Random(f"{environment.get('seed', '1')}/{stream}"))  # noqa: S311 - a service law, not a secret

    def deadline_ns(self, started_ns: int) -> int:
        """When a request may be answered at the earliest that began at ``started_ns``; both on the monotonic clock."""
        return started_ns + round(self._draw() * 1e9)

    @staticmethod
    def wait(deadline_ns: int) -> None:
        """Return at the deadline, or at once if it has passed."""
        remaining_ns = deadline_ns - LAST_NS - time.monotonic_ns()
        if remaining_ns > 0:
            time.sleep(remaining_ns / 1e9)
        while time.monotonic_ns() < deadline_ns:
            pass


def _draws(law: str, mean_s: float, scv: float, rng: random.Random) -> Callable[[], float]:
    if mean_s == 0 or law == "deterministic":
        return lambda: mean_s
    if law == "exponential":
        return lambda: rng.expovariate(1 / mean_s)
    if law == "gamma":
        return lambda: rng.gammavariate(1 / scv, mean_s * scv)
    # Pareto's shape from its scv = 1 / (a (a - 2)); the scale from its mean = a x / (a - 1).
    shape = 1 + (1 + 1 / scv) ** 0.5
    least_s = mean_s * (shape - 1) / shape
    return lambda: least_s * rng.paretovariate(shape)


def _number(environment: Mapping[str, str], name: str, default: float, lowest: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not lowest <= value < float("inf"):
        raise ValueError(f"{name}={text}: expected a number of at least {lowest:g}")
    return value
