"""The common part of the monitors of function apps: what the actuator knows, and what waits at the broker."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from controller.fleets.apps.app import AppView
from penstock.adapters.amqp import Depths
from penstock.clock import Clock
from penstock.contracts import BLINDED, FleetObservation
from penstock.errors import PenstockError
from penstock.runspec import RunSpec

ViewT = TypeVar("ViewT", bound=AppView)
ObservationT = TypeVar("ObservationT", bound=FleetObservation)


class AppMonitor(ABC, Generic[ViewT, ObservationT]):
    """Monitor port on the fleet of ``spec``. While ``blind()``, all is unknown (fault ``blind-monitor``)."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        clock: Clock,
        origin_s: float,
        view: Callable[[], ViewT],
        depths: Depths,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spec, self._clock, self._origin_s = spec, clock, origin_s
        self._view, self._depths, self._blind = view, depths, blind

    def observe(self) -> ObservationT:
        """The fleet now. While a source is away, every value is None, with the reason."""
        time_s, view = self._clock.now() - self._origin_s, self._view()
        reason = BLINDED if self._blind() else f"Redis is away: {view.away}" if view.away else ""
        if not reason:
            try:
                return self._seen(time_s, view)
            except PenstockError as error:
                reason = str(error)
        return self._unseen(time_s, view, reason)

    @abstractmethod
    def _seen(self, time_s: float, view: ViewT) -> ObservationT:
        """The observation. PenstockError with the reason while a source is away."""

    @abstractmethod
    def _unseen(self, time_s: float, view: ViewT, reason: str) -> ObservationT: ...
