"""KEDA's RabbitMQ trigger: messages in a queue, or the time it will take to consume them, per replica.

Read from KEDA's source after 2.20.2, in 2026. A trap comes with the second mode: a queue from which nothing is
delivered has no consumption time, and KEDA then tells the HPA its activation value, 0 by default. To the HPA a stuck
fleet is an idle one, however much waits.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import msgspec

from controller.scalers.demand import in_system, unknown_in_system
from controller.scalers.keda import KedaParameters, KedaState, Trigger, keda_step
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    Window,
    hold_part,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, Term

Mode = Literal["queue-length", "consumption-time"]


class QueueRates(NamedTuple):
    """Messages per second into the queue, and out of it to consumers."""

    publish_per_s: float
    deliver_per_s: float


def queue_length(messages: int, target: float, activation: float) -> Trigger:
    """Mode QueueLength: ready and unacknowledged messages."""
    return Trigger(messages, target, active=messages > activation)


def consumption_time(messages: int, rates: QueueRates, target_s: float, activation: float) -> Trigger:
    """Mode ExpectedQueueConsumptionTime, with its first term without a unit, as it is coded.

    Without deliveries it is the activation value: the trigger stays active while there are messages, but the HPA is
    told that nothing is to be done. An empty queue takes no time.
    """
    publish, deliver = rates
    if messages == 0:
        expected = 0.0
    elif deliver == 0:
        expected = activation
    else:
        expected = (publish - deliver) / deliver + messages / deliver
    return Trigger(expected, target_s, active=expected > activation or (deliver == 0 and messages > 0))


@dataclass(frozen=True, kw_only=True)
class KedaRabbitmqParameters(KedaParameters):
    """``queue_length``: messages per replica. ``consumption_time_s``: KEDA has no default for it. ``activation``: of
    the mode's metric; more than this is work.
    """

    mode: Mode = "queue-length"
    queue_length: float = 20.0
    consumption_time_s: float = 30.0
    activation: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(queue_length=self.queue_length, consumption_time_s=self.consumption_time_s)
        require_not_negative(activation=self.activation)


class KedaRabbitmqState(msgspec.Struct, frozen=True):
    """Readings for the two rates, and KEDA's own state."""

    published: Window = Window()
    delivered: Window = Window()
    keda: KedaState = KedaState()


class KedaRabbitmq(SingleFleetScaler[KedaRabbitmqParameters, KedaRabbitmqState]):
    """Scaling by what waits in front of a fleet."""

    name: ClassVar[str] = "keda-rabbitmq"
    paper: ClassVar[str] = "KEDA, RabbitMQ trigger"
    emulates: ClassVar[str] = "KEDA"
    Parameters: ClassVar[type[KedaRabbitmqParameters]] = KedaRabbitmqParameters
    State: ClassVar[type[FleetStates[KedaRabbitmqState]]] = states_by_fleet(KedaRabbitmqState)

    def start_part(self) -> KedaRabbitmqState:
        """Never polled."""
        return KedaRabbitmqState()

    def decide_part(
        self,
        part: FleetObservation,
        state: KedaRabbitmqState,
        observation: FleetObservation,  # noqa: ARG002 - a part is enough
    ) -> tuple[PartDecision, KedaRabbitmqState]:
        """The trigger of the mode, then KEDA's step."""
        p = self.parameters
        # Delivered is what was acknowledged, and what consumers hold without having acknowledged it.
        delivered = None if part.completed is None else part.completed + (part.in_flight or 0)
        seen = msgspec.structs.replace(
            state,
            published=state.published.add(part.time_s, part.arrived, p.decision_interval_s),
            delivered=state.delivered.add(part.time_s, delivered, p.decision_interval_s),
        )
        unknown = unknown_in_system(part)
        if unknown is not None:
            return unknown, seen
        messages = in_system(part)
        why: dict[str, Term] = {"mode": p.mode, "messages": messages}
        trigger = queue_length(messages, p.queue_length, p.activation)
        if p.mode == "consumption-time":
            rates = self._rates(part, seen)
            if isinstance(rates, PartDecision):
                return rates, seen
            trigger = consumption_time(messages, rates, p.consumption_time_s, p.activation)
            why |= rates._asdict()
        wanted, keda, terms = keda_step(trigger, part.time_s, part.replicas, p, state.keda)
        return resize_part(part, wanted, why | terms), msgspec.structs.replace(seen, keda=keda)

    def _rates(self, part: FleetObservation, seen: KedaRabbitmqState) -> QueueRates | PartDecision:
        unknown = unknown_part(part, "arrived", "completed")
        if unknown is not None:
            return unknown
        over_s = self.parameters.decision_interval_s
        publish, deliver = seen.published.rate_per_s(over_s), seen.delivered.rate_per_s(over_s)
        if publish is None or deliver is None:
            return hold_part("no rates yet: this is the first reading")
        return QueueRates(publish, deliver)
