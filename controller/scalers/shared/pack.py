"""Least-Loaded by the version that suits the number of partitions."""

from controller.scalers.shared.packing import Bin, Load, Packing, least_loaded

FEW_PARTITIONS = 64
"""Up to here the readable version answers within about a millisecond and nothing has to be compiled."""


def pack(load: Load, size: Bin, *, most: int | None = None, fewer_than: int | None = None) -> Packing | None:
    """Least-Loaded in the recommended reading (B1 to B4).

    For many partitions, None if ``fewer_than`` bins or more are needed: that is known before they are packed.
    """
    if len(load.rates_per_s) <= FEW_PARTITIONS:
        return least_loaded(load, size, most=most)
    # Importing the compiled version takes a second; fleets of ordinary size do not need it.
    from controller.scalers.shared.packing_fast import least_loaded_fast

    return least_loaded_fast(load, size, most=most, fewer_than=fewer_than)
