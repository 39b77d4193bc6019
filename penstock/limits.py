"""The limits of a cluster on the targets of a decision: one for each fleet, then one for all of them together."""

from collections.abc import Mapping

from penstock.contracts import Accepted
from penstock.errors import PenstockError


def clamp_targets(
    wanted: Mapping[str, int], sizes: Mapping[str, int], *, each: int | None, total: int | None = None
) -> Accepted:
    """Targets within the limits, and which were cut and why. ``sizes``: current sizes of all fleets; where ``total`` is
    short, fleets that want more get one replica in turns, in that order. None: no limit. PenstockError for a fleet
    without a size.
    """
    for name in wanted:
        if name not in sizes:
            raise PenstockError(f"target for {name!r}: the fleets here are {', '.join(sizes)}")
    targets, clamped = {}, {}
    for name in (name for name in sizes if name in wanted):
        targets[name] = max(0, wanted[name] if each is None else min(wanted[name], each))
        if targets[name] != wanted[name]:
            limit = f"cap {each}" if wanted[name] > 0 else "at least 0"
            clamped[name] = f"{wanted[name]} → {targets[name]}: {limit}"
    if total is None:
        return Accepted(targets, clamped)
    granted = {name: min(target, sizes[name]) for name, target in targets.items()}
    room = total - sum(granted.get(name, size) for name, size in sizes.items())
    while room > 0 and (short := [name for name, target in targets.items() if granted[name] < target]):
        for name in short[:room]:
            granted[name] += 1
        room -= len(short[:room])
    for name, target in targets.items():
        if granted[name] < target:
            clamped[name] = f"{wanted[name]} → {granted[name]}: cap {total} for all together"
    return Accepted(granted, clamped)
