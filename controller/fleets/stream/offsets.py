"""Offsets of a consumer group's partitions at one instant."""

from collections.abc import Mapping
from typing import Final

import msgspec

NO_COMMIT: Final = "no commit yet"


class OffsetReading(msgspec.Struct, frozen=True):
    """Offsets by partition at one instant; a partition that could not be read is missing and ``unknown`` says why.

    ``arrivals`` by partition, ``finished``, ``late`` and ``busy_s``: see ``StreamObservation``; empty and None unless
    asked for.
    """

    at_s: float
    end: Mapping[int, int]
    committed: Mapping[int, int]
    unknown: Mapping[str, str]
    arrivals: Mapping[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    finished: int | None = None
    late: int | None = None
    busy_s: float | None = None
