"""What a cluster grants of the targets of several fleets: a cap for each, then one for all of them together."""

from collections.abc import Mapping


def grant(
    wanted: Mapping[str, int], sizes: Mapping[str, int], *, each: int | None, total: int | None
) -> tuple[dict[str, int], dict[str, str]]:
    """(targets granted, what was cut and why). ``sizes``: the fleets as they are, those without a target included; in
    their order, where room is short, those that want more get one in turns. None: no cap.
    """
    targets, clamped = {}, {}
    for name in (name for name in sizes if name in wanted):
        targets[name] = max(0, wanted[name] if each is None else min(wanted[name], each))
        if targets[name] != wanted[name]:
            cap = f"cap {each}" if wanted[name] > 0 else "at least 0"
            clamped[name] = f"{wanted[name]} → {targets[name]}: {cap}"
    if total is None:
        return targets, clamped
    granted = {name: min(target, sizes[name]) for name, target in targets.items()}
    room = total - sum(granted.get(name, size) for name, size in sizes.items())
    while room > 0 and (short := [name for name, target in targets.items() if granted[name] < target]):
        for name in short[:room]:
            granted[name] += 1
        room -= len(short[:room])
    for name, target in targets.items():
        if granted[name] < target:
            clamped[name] = f"{wanted[name]} → {granted[name]}: cap {total} for all together"
    return granted, clamped
