"""The schedule of a run: when each event is intended to be sent, and to which partition. Made before the run.

Row number = event id. Times are offsets from the run's start, so that one schedule serves several runs and worlds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """``intended_offset_ns``: int64, shape (events,), ascending. ``partition``: int16, shape (events,).

    ``description`` says how it was made (workload, seed, slice, speed); it is stored with it.
    """

    intended_offset_ns: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int16]
    duration_s: float
    description: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.intended_offset_ns)

    def arrivals_per_second(self) -> npt.NDArray[np.int64]:
        """Events in each whole second of the run, shape (ceil(duration_s),)."""
        seconds = int(np.ceil(self.duration_s))
        return np.bincount(self.intended_offset_ns // NANOS_PER_SECOND, minlength=seconds).astype(np.int64)

    def write(self, path: Path) -> None:
        """Parquet; the same schedule always gives the same bytes."""
        metadata = {
            "penstock.duration_s": repr(self.duration_s),
            "penstock.description": msgspec.json.encode(self.description, order="deterministic").decode(),
        }
        columns = {"intended_offset_ns": self.intended_offset_ns, "partition": self.partition}
        pq.write_table(pa.table(columns, metadata=metadata), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> "Schedule":
        """Read what ``write`` wrote. Raises PenstockError if the file is missing or is not a schedule."""
        with _reading(path):
            table = pq.read_table(path)
        metadata = table.schema.metadata or {}
        if b"penstock.duration_s" not in metadata:
            raise PenstockError(f"{path}: not a schedule of Penstock (no duration in its metadata)")
        return cls(
            intended_offset_ns=table["intended_offset_ns"].to_numpy(),
            partition=table["partition"].to_numpy(),
            duration_s=float(metadata[b"penstock.duration_s"]),
            description=msgspec.json.decode(metadata[b"penstock.description"]),
        )


def events_scheduled(path: Path) -> int:
    """Number of events of the schedule in ``path``, from the file's footer. PenstockError if there is none."""
    with _reading(path):
        return int(pq.read_metadata(path).num_rows)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    if not path.is_file():
        raise PenstockError(f"{path}: no schedule there; a run directory has one once its run was prepared")
    try:
        yield
    except pa.ArrowInvalid:
        raise PenstockError(f"{path}: not a Parquet file; make it again with `penstock schedule`") from None
