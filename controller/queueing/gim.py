"""GI/G/m as the pub/sub paper uses it: a two-moment approximation, and how variability passes through a network.

Nguyen and Nahrstedt, "Elastic pub/sub", Eqs (1), (2), (4), (5), (6); readings G1 to G9. Variability is the squared
coefficient of variation (scv) of a time, never of a rate (G9). Overload is the value infinity (G3).
"""

from collections.abc import Iterable
from math import inf, isfinite, sqrt
from typing import NamedTuple

import msgspec

from controller.queueing.erlang import mmc
from controller.queueing.mmsk import SYMBOLS


class Gim(msgspec.Struct, frozen=True, kw_only=True, rename=SYMBOLS | {"utilisation": "rho"}):
    """The steady state: L in events, times in the unit of the rates; infinite if ``utilisation`` is 1 or more."""

    waiting: float
    in_system: float
    waiting_time: float
    response_time: float
    utilisation: float


class Stream(NamedTuple):
    """Arrivals: their rate and the scv of the time between two of them."""

    rate: float
    scv: float


def gim(arrival_rate: float, arrival_scv: float, service_rate: float, service_scv: float, servers: int) -> Gim:
    """Eq (2) without the factor λ that is printed in it (G1): the queue of M/M/m times the mean of the two scvs."""
    check_scv(arrival_scv=arrival_scv, service_scv=service_scv)
    exponential = mmc(arrival_rate, service_rate, servers)
    variability = (arrival_scv + service_scv) / 2 if exponential.waiting_time < inf else 1.0
    waiting_time = variability * exponential.waiting_time
    waiting = variability * exponential.waiting
    return Gim(
        waiting=waiting,
        in_system=arrival_rate / service_rate + waiting,
        waiting_time=waiting_time,
        response_time=1 / service_rate + waiting_time,
        utilisation=exponential.utilisation,
    )


def l_gim_as_printed(
    arrival_rate: float, arrival_scv: float, service_rate: float, service_scv: float, servers: int
) -> float:
    """Eq (2) as printed, with its further factor λ: it depends on the unit of time (erratum G1). Not for use."""
    check_scv(arrival_scv=arrival_scv, service_scv=service_scv)
    a, exponential = arrival_rate / service_rate, mmc(arrival_rate, service_rate, servers).in_system
    return a + arrival_rate * (arrival_scv + service_scv) / 2 * (exponential - a) if exponential < inf else inf


def merge_scv(streams: Iterable[Stream]) -> Stream:
    """Eq (4): streams that come together, their scvs weighted by rate (λ̃_j below the line, G4). No events: scv 1."""
    streams = list(streams)
    rate = sum(stream.rate for stream in streams)
    if rate == 0:
        return Stream(0.0, 1.0)
    return Stream(rate, sum(stream.rate / rate * stream.scv for stream in streams))


def departure_scv(arrival_scv: float, service_scv: float, utilisation: float, servers: int) -> float:
    """Eq (5): scv of the time between departures. A server cannot be busy for more than all of the time (G7)."""
    check_scv(arrival_scv=arrival_scv, service_scv=service_scv)
    if not utilisation >= 0 or servers < 1:
        raise ValueError(f"utilisation={utilisation:g}, servers={servers}: expected at least 0, and at least 1 server")
    rho = min(1.0, utilisation)
    scv = 1 + (1 - rho**2) * (arrival_scv - 1) + rho**2 / sqrt(servers) * (service_scv - 1)
    return max(0.0, scv)  # never below 0 but by rounding


def split_scv(share: float, departure_scv: float, arrival_scv: float) -> float:
    """Eq (6): scv of the part of the departures that belongs to one job, which has ``share`` p of all of them.

    ``arrival_scv`` is that job's own when it arrived.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share:g}: expected 0 to 1")
    return share * departure_scv + (1 - share) * (share + (1 - share) * arrival_scv)


def check_scv(**scvs: float) -> None:
    """Raise ValueError for a squared coefficient of variation that is not finite and at least 0."""
    for name, scv in scvs.items():
        if not (isfinite(scv) and scv >= 0):
            raise ValueError(f"{name}={scv:g}: expected a number of at least 0")
