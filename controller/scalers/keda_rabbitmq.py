"""KEDA's RabbitMQ trigger: messages in a queue, or the time it will take to consume them, per replica.

Read from KEDA's source after 2.20.2, in 2026. Known problem of the second mode: without deliveries there is no
consumption time, and KEDA reports its activation value, 0 by default. The HPA then takes a stuck fleet for an idle one.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import msgspec

from controller.scalers.shared.base import resize
from controller.scalers.shared.demand import in_system
from controller.scalers.shared.keda import KedaParameters, KedaState, Trigger, keda_step
from controller.scalers.shared.parameters import NotNegative, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate
from penstock.contracts import FleetObservation, Term


class QueueRates(NamedTuple):
    """Messages per second into the queue, and out of it to consumers."""

    publish_per_s: float
    deliver_per_s: float


def queue_length(messages: int, target: float, activation: float) -> Trigger:
    """Mode QueueLength: ready and unacknowledged messages."""
    return Trigger(messages, target, active=messages > activation)


def consumption_time(messages: int, rates: QueueRates, target_s: float, activation: float) -> Trigger:
    """Mode ExpectedQueueConsumptionTime; its first term has no unit, as coded.

    Without deliveries the metric is the activation value, and the trigger is active while there are messages.
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

    mode: Literal["queue-length", "consumption-time"] = "queue-length"
    queue_length: Positive = 20.0
    consumption_time_s: Positive = 30.0
    activation: NotNegative = 0.0


class KedaRabbitmqState(msgspec.Struct, frozen=True):
    """Readings for the two rates, and KEDA's own state."""

    published: Window = Window()
    delivered: Window = Window()
    keda: KedaState = KedaState()


class KedaRabbitmq(SingleFleetScaler[KedaRabbitmqParameters, KedaRabbitmqState]):
    """Scaling by the queue of a fleet."""

    name: ClassVar[str] = "keda-rabbitmq"
    paper: ClassVar[str] = "KEDA, RabbitMQ trigger"
    emulates: ClassVar[str] = "KEDA"

    def read(self, part: FleetObservation, state: KedaRabbitmqState, _: FleetObservation) -> KedaRabbitmqState:
        """Messages published and delivered: acknowledged, or held by consumers that have not acknowledged them."""
        delivered = None if part.completed is None else part.completed + (part.in_flight or 0)
        return msgspec.structs.replace(
            state,
            published=state.published.add(part.time_s, part.arrived, self.period_s),
            delivered=state.delivered.add(part.time_s, delivered, self.period_s),
        )

    def decide_part(
        self, part: FleetObservation, state: KedaRabbitmqState, _: FleetObservation
    ) -> Step[KedaRabbitmqState]:
        """The trigger of the mode, then KEDA's step."""
        p, messages = self.parameters, in_system(part)
        why: dict[str, Term] = {"mode": p.mode, "messages": messages}
        trigger = queue_length(messages, p.queue_length, p.activation)
        if p.mode == "consumption-time":
            publish = known_rate(part, "arrived", state.published, self.period_s)
            rates = QueueRates(publish, known_rate(part, "completed", state.delivered, self.period_s))
            trigger = consumption_time(messages, rates, p.consumption_time_s, p.activation)
            why |= rates._asdict()
        wanted, keda, terms = keda_step(trigger, part.time_s, part.replicas, p, state.keda)
        return resize(part, wanted, why | terms), msgspec.structs.replace(state, keda=keda)
