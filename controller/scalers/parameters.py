"""Checks that the scalers' parameters share: a wrong value is told when a scaler is built, not in mid-run."""

from math import isfinite


def require_positive(**values: float) -> None:
    """Raise ValueError for a value that is not finite and above zero."""
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name}={value:g}: expected a number above 0")


def require_not_negative(**values: float) -> None:
    """Raise ValueError for a value that is not finite and at least zero."""
    for name, value in values.items():
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value:g}: expected a number of at least 0")


def require_thresholds(f_up: float, f_down: float) -> None:
    """Raise ValueError unless 0 < f_down < f_up < 1, as the bin-pack paper asks for."""
    if not 0 < f_down < f_up < 1:
        raise ValueError(f"f_up={f_up:g}, f_down={f_down:g}: expected 0 < f_down < f_up < 1")


def require_share(**values: float) -> None:
    """Raise ValueError for a value that is not strictly between zero and one."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name}={value:g}: expected a number between 0 and 1")


def require_replicas(max_replicas: int | None) -> None:
    """Raise ValueError for a cap below one replica; None is no cap."""
    if max_replicas is not None and max_replicas < 1:
        raise ValueError(f"max_replicas={max_replicas}: expected at least 1")


def require_bounds(min_replicas: int, max_replicas: int | None, *, least: int = 0) -> None:
    """Raise ValueError unless ``least`` ≤ min_replicas ≤ max_replicas, at least one at most."""
    if min_replicas < least:
        raise ValueError(f"min_replicas={min_replicas}: expected at least {least}")
    if max_replicas is not None and max_replicas < max(1, min_replicas):
        raise ValueError(f"max_replicas={max_replicas}: expected at least {max(1, min_replicas)}")
