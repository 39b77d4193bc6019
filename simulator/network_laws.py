"""Durations as the event loop of pipelines and networks reckons with them; their laws are the kernel's."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.clock import NANOS_PER_SECOND
from penstock.laws import Floats

Ints = npt.NDArray[np.int64]


def whole_nanos(durations_s: Floats) -> list[int]:
    """Durations as whole nanoseconds: what the event loop reckons with, so that ties are ties."""
    nanos: list[int] = np.rint(durations_s * NANOS_PER_SECOND).astype(np.int64).tolist()
    return nanos


def seconds(at_ns: Sequence[int], rows: Ints) -> Floats:
    """Those ``rows`` of a list of times in nanoseconds, in seconds."""
    return np.asarray(np.asarray(at_ns, dtype=np.int64)[rows] / NANOS_PER_SECOND)
