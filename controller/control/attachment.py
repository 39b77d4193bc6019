"""The base of all attachments of ``penstock control``.

Every attachment has a run directory, so that ``penstock explain`` and ``penstock watch`` read it like any other run.
"""

import dataclasses
import logging
import math
from typing import Final

import msgspec

from controller.assembly import RunController
from penstock.clock import NANOS_PER_SECOND
from penstock.registry import find_scaler
from penstock.runspec import ScalerSpec

log = logging.getLogger("control")

EXPERIMENT: Final = "control"


def with_slo(scaler: ScalerSpec, slo_s: float) -> ScalerSpec:
    """A scaler that is told the SLO in seconds, if it has a parameter for it and ``--set`` does not set that."""
    if "slo_s" not in {parameter.name for parameter in dataclasses.fields(find_scaler(scaler).Parameters)}:
        return scaler
    return msgspec.structs.replace(scaler, parameters={"slo_s": slo_s, **scaler.parameters})


class AttachedController(RunController):
    """Controls a fleet of the user's from ``run`` until ``clock.stop``; its ticks begin at once. ``of``: the fleet, for
    the log.
    """

    of: str

    def run(self) -> None:
        """Tick; at the end ``end`` the fleet and close the journals."""
        start_ns = (math.floor(self.clock.now()) + 1) * NANOS_PER_SECOND
        self.spec = msgspec.structs.replace(self.spec, start_ns=start_ns)
        self.directory.write(self.directory.spec_file, self.spec)
        try:
            super().run()
        finally:
            try:
                self.end()
            finally:
                self.close()

    def end(self) -> None:
        """Called at the end."""

    def bring_up(self) -> None:
        """Does not wait for replicas: the user's may take long to join."""
        self.fleet.bring_up()
        log.info("%s on %s; its journal is %s", self.spec.scaler.name, self.of, self.directory.path)
