"""Scalers on somebody else's consumer group: what ``penstock keda`` and ``penstock control`` have in common."""

from typing import Any

from controller.loop import check_kinds
from penstock.contracts import Decision, Scaler, StreamObservation
from penstock.errors import PenstockError
from penstock.registry import find_scaler, is_clairvoyant, make_scaler
from penstock.runspec import ScalerSpec


def make_stream_scaler(spec: ScalerSpec) -> Scaler[Any, Any]:
    """PenstockError for one that does not exist, reads another kind of fleet or has to know the future."""
    if is_clairvoyant(find_scaler(spec)):
        raise PenstockError(f"scaler {spec.name!r} has to know the load beforehand: it runs in --world sim only")
    scaler = make_scaler(spec)
    check_kinds([scaler], StreamObservation)
    return scaler


def reason_of(decision: Decision, fleet: str) -> str:
    """A decision in a few words for a log: what it is, and its own reason where it has one."""
    reason = decision.why.get(fleet, {}).get("reason")
    return f"{decision.action}: {reason}" if reason else decision.action
