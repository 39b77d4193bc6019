"""A fleet that does at once what its scaler says: for decision timelines of the scalers that run on any fleet."""

from typing import Any

from penstock.contracts import Decision, FleetObservation, ReplicaCounts, Scaler
from penstock.parameters import make_parameters

FLEET = "documents"


def make(kind: type[Any], **parameters: Any) -> Scaler[Any, Any]:
    """A scaler with these parameters, the others by default."""
    scaler: Scaler[Any, Any] = kind(make_parameters(kind.name, kind.Parameters, parameters))
    return scaler


def seen(time_s: float, replicas: int, *, starting: int = 0, **counts: Any) -> FleetObservation:
    """An observation of ``replicas`` of which ``starting`` are not ready yet."""
    phases = ReplicaCounts(started=starting, joined=replicas - starting)
    return FleetObservation(time_s=time_s, fleet=FLEET, replicas=phases, **counts)


class Fleet:
    """A fleet with its scaler; ``tick`` tells it what is observed and returns what was decided."""

    def __init__(self, scaler: Scaler[Any, Any], replicas: int = 1) -> None:
        self.scaler, self.state, self.replicas = scaler, scaler.start(1), replicas

    def tick(self, time_s: float, *, starting: int = 0, **counts: Any) -> Decision:
        """One decision, which is carried out."""
        decision, self.state = self.scaler.decide(seen(time_s, self.replicas, starting=starting, **counts), self.state)
        self.replicas = decision.targets.get(FLEET, self.replicas)
        return decision

    def why(self, decision: Decision) -> dict[str, Any]:
        """The arithmetic of a decision."""
        return dict(decision.why[FLEET])
