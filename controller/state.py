"""What a restarted controller goes on from: written after every tick and every step in a replica's life."""

import threading

import msgspec

from controller.loop import LoopState
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory


class ControllerState(msgspec.Struct, frozen=True, kw_only=True):
    """Scalers and last scale action; what the fleet wrote of its replicas (its ``snapshot``)."""

    loop: LoopState
    fleet: msgspec.Raw


class StateFile:
    """``controller-state.json`` of a run directory; replaced as a whole, so that a killed writer leaves the one
    before.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._file = directory.controller_state_file
        self._lock = threading.Lock()
        self._written: ControllerState | None = None

    def read(self) -> ControllerState | None:
        """The predecessor's state, None if there was none. Raises PenstockError if it can't be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=ControllerState)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PenstockError(
                f"{self._file}: not a controller's state ({error}); remove it and the controller starts from what runs"
            ) from None

    def write(self, state: ControllerState) -> None:
        """Write if something has changed. Safe to call from several threads."""
        with self._lock:
            if state != self._written:
                self._directory.write(self._file, state)
                self._written = state
