"""A scaler to start from: keeps pace with the arrivals, works backlogs off, and lets go of replicas slowly."""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import msgspec

from penstock.contracts import FleetObservation, Term
from penstock.controller.scalers.shared.base import CannotDecide, check_known, resize
from penstock.controller.scalers.shared.parameters import Count, OpenShare, Parameters, Positive
from penstock.controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate


@dataclass(frozen=True)
class SteadyPaceParameters(Parameters):
    """Replicas are to be busy for a share ``rho`` of the time; a backlog is to be gone after ``catch_up_s``.

    The fleet shrinks only to what was enough for all of the last ``patience_s``. ``service_rate_per_s`` is that of one
    replica; None: as measured.
    """

    service_rate_per_s: Positive | None = None
    rho: OpenShare = 0.8
    catch_up_s: Positive = 5.0
    patience_s: Positive = 20.0
    max_replicas: Count | None = None


class SteadyPaceState(msgspec.Struct, frozen=True):
    """Readings of the arrivals, and the needs of the last ``patience_s`` as (time in s, replicas)."""

    arrivals: Window = Window()
    needs: tuple[tuple[float, int], ...] = ()


class SteadyPace(SingleFleetScaler[SteadyPaceParameters, SteadyPaceState]):
    """Grows at once, shrinks with patience."""

    name: ClassVar[str] = "steady-pace"
    paper: ClassVar[str] = "none: the example of docs/your-own-scaler.md"

    def read(self, part: FleetObservation, state: SteadyPaceState, _: FleetObservation) -> SteadyPaceState:
        """The count of arrivals."""
        arrivals = state.arrivals.add(part.time_s, part.arrived, self.period_s)
        return msgspec.structs.replace(state, arrivals=arrivals)

    def decide_part(self, part: FleetObservation, state: SteadyPaceState, _: FleetObservation) -> Step[SteadyPaceState]:
        """⌈(λ + backlog / catch-up time) / (ρ·μ)⌉ replicas, or more if that was needed a moment ago."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        rate = known_rate(part, "arrived", state.arrivals, self.period_s)
        check_known(part, "backlog")
        mu = p.service_rate_per_s or part.service_rate_per_s
        if mu is None:
            raise CannotDecide("service rate is unknown: set one")
        load = rate + (part.backlog or 0) / p.catch_up_s
        needed = max(1, ceil(load / (p.rho * mu)))
        recent = (each for each in state.needs if now_s - each[0] < p.patience_s)
        needs = (*recent, (now_s, needed))
        lately = max(replicas for _, replicas in needs)
        wanted = max(needed, min(current, lately))
        wanted = min(wanted, p.max_replicas or wanted)
        why: dict[str, Term] = {
            "arrival_rate_per_s": rate,
            "backlog": part.backlog,
            "load_per_s": load,
            "service_rate_per_s": mu,
            "rho": p.rho,
            "replicas": current,
            "needed": needed,
            "needed_lately": lately,
            "wanted": wanted,
        }
        return resize(part, wanted, why), msgspec.structs.replace(state, needs=needs)
