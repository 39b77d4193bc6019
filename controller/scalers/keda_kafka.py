"""KEDA's Kafka trigger: total lag of the group against a threshold per replica, capped at the number of partitions.

Read from KEDA's source after 2.20.2, in 2026. A trap comes with it: with the metric capped at P · L the HPA's ratio is
at most P / n, so that its tolerance of 0.1 holds every fleet of n ≥ P / 1.1, whatever the lag.
"""

from dataclasses import dataclass
from math import floor
from typing import ClassVar, Literal

from controller.scalers.keda import KedaParameters, KedaState, Trigger, keda_step
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.stream import CannotDecide
from penstock.contracts import Decision, PartitionObservation, StreamObservation, Term, hold
from penstock.plan import range_groups

OffsetReset = Literal["latest", "earliest"]

NO_COMMIT = "no commit yet"
"""What a monitor says of a committed offset that was read and is not there."""

LAG_WITHOUT_COMMIT = 1
"""KEDA's lag of such a partition under the reset policy latest: enough to start one replica, which then commits."""


def trigger_lag(p: PartitionObservation, unknown: str | None, offset_reset: OffsetReset) -> int:
    """Lag of a partition as KEDA reckons it. Raises CannotDecide where an offset could not be read."""
    if p.end_offset is None:
        raise CannotDecide(f"lag of partition {p.partition} is unknown: no end offset{_said(unknown)}")
    if p.lag is not None:
        return p.lag
    if unknown not in (None, NO_COMMIT):
        raise CannotDecide(f"lag of partition {p.partition} is unknown: no committed offset{_said(unknown)}")
    return LAG_WITHOUT_COMMIT if offset_reset == "latest" else p.end_offset


def capped_lag(
    lags: list[int],
    threshold: int,
    *,
    allow_idle_consumers: bool = False,
    limit_to_partitions_with_lag: bool = False,
    ensure_even_distribution: bool = False,
) -> int:
    """S for the HPA: no more than the partitions (or those with lag) can use, or a number that divides them evenly."""
    total, partitions = sum(lags), len(lags)
    if allow_idle_consumers and not (limit_to_partitions_with_lag or ensure_even_distribution):
        return total
    if ensure_even_distribution:
        total = even_replicas(total, partitions, threshold) * threshold
    most = sum(lag > 0 for lag in lags) if limit_to_partitions_with_lag else partitions
    return most * threshold if floor(total / threshold) > most else total


def even_replicas(total: int, partitions: int, threshold: int) -> int:
    """The smallest divisor d of the number of partitions with d · L ≥ S, the number itself if there is none."""
    divisors = (d for d in range(1, partitions + 1) if partitions % d == 0)
    return next((d for d in divisors if d * threshold >= total), partitions)


@dataclass(frozen=True, kw_only=True)
class KedaKafkaParameters(KedaParameters):
    """``lag_threshold`` is L, events per replica. The three switches are KEDA's, off by default; so is its way with
    partitions that never had a commit.
    """

    lag_threshold: int = 10
    activation_lag_threshold: int = 0
    allow_idle_consumers: bool = False
    limit_to_partitions_with_lag: bool = False
    ensure_even_distribution: bool = False
    offset_reset: OffsetReset = "latest"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(lag_threshold=self.lag_threshold)
        require_not_negative(activation_lag_threshold=self.activation_lag_threshold)
        if self.allow_idle_consumers and self.limit_to_partitions_with_lag:
            raise ValueError("allow_idle_consumers and limit_to_partitions_with_lag: KEDA takes one of them only")


class KedaKafka:
    """Lag-driven scaling of a consumer group; partitions as Kafka's range assignor gives them."""

    name: ClassVar[str] = "keda-kafka"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "KEDA, Kafka trigger"
    emulates: ClassVar[str] = "KEDA"
    Parameters: ClassVar[type[KedaKafkaParameters]] = KedaKafkaParameters
    State: ClassVar[type[KedaState]] = KedaState

    def __init__(self, parameters: KedaKafkaParameters) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The HPA's sync period."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> KedaState:  # noqa: ARG002 - nothing is drawn
        """Never polled."""
        return KedaState()

    def decide(self, observation: StreamObservation, state: KedaState) -> tuple[Decision, KedaState]:
        """Lags, the cap, then KEDA's step."""
        p = self.parameters
        try:
            lags = _lags(observation, p.offset_reset)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), state
        capped = capped_lag(
            lags,
            p.lag_threshold,
            allow_idle_consumers=p.allow_idle_consumers,
            limit_to_partitions_with_lag=p.limit_to_partitions_with_lag,
            ensure_even_distribution=p.ensure_even_distribution,
        )
        trigger = Trigger(capped, p.lag_threshold, active=sum(lags) > p.activation_lag_threshold)
        wanted, following, terms = keda_step(trigger, observation.time_s, observation.replicas, p, state)
        why: dict[str, Term] = {
            "partitions": [each.partition for each in observation.partitions],
            "lag": list(lags),
            "total_lag_of_group": sum(lags),
            **terms,
        }
        return _decision(observation, wanted, why), following


def _lags(observation: StreamObservation, offset_reset: OffsetReset) -> list[int]:
    if not observation.partitions:
        raise CannotDecide("no partitions known")
    lags = []
    for p in observation.partitions:
        field = "end_offset" if p.end_offset is None else "committed_offset"
        said = observation.unknown.get(f"partitions.{p.partition}.{field}", observation.unknown.get("partitions"))
        lags.append(trigger_lag(p, said, offset_reset))
    return lags


def _said(unknown: str | None) -> str:
    return f" ({unknown})" if unknown else ""


def _decision(observation: StreamObservation, wanted: int, why: dict[str, Term]) -> Decision:
    fleet, current = observation.fleet, observation.replicas.current
    if wanted == current:
        return Decision(action="none", why={fleet: {**why, "action": "none"}})
    return Decision(
        action="up" if wanted > current else "down",
        targets={fleet: wanted},
        assignment=range_groups((each.partition for each in observation.partitions), wanted),
        why={fleet: {**why, "action": "up" if wanted > current else "down"}},
    )
