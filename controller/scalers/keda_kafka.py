"""KEDA's Kafka trigger: total lag of the group against a threshold per replica, limited by the number of partitions.

Read from KEDA's source after 2.20.2, in 2026. Known problem: with the metric limited to P · L the HPA's ratio is at
most P / n, so that its tolerance of 0.1 holds every fleet of n ≥ P / 1.1, at any lag.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import ClassVar, Literal

import msgspec

from controller.scalers.shared.base import BaseScaler, CannotDecide, resize
from controller.scalers.shared.keda import KedaParameters, KedaState, Trigger, keda_step
from controller.scalers.shared.parameters import Candidates, Count, CountOrZero
from penstock.contracts import Decision, PartitionObservation, StreamObservation, Term, hold
from penstock.plan import range_groups

OffsetReset = Literal["latest", "earliest"]

NO_COMMIT = "no commit yet"
"""The monitor's reason for a committed offset that was read and does not exist."""


def trigger_lag(
    p: PartitionObservation,
    unknown: Mapping[str, str],
    offset_reset: OffsetReset,
    *,
    scale_to_zero_on_invalid_offset: bool = False,
) -> int:
    """KEDA's lag of a partition. Raises CannotDecide for an offset that could not be read; KEDA itself takes a missing
    end offset for a lag of 0.
    """
    if p.lag is not None:
        return p.lag
    field = "end_offset" if p.end_offset is None else "committed_offset"
    said = unknown.get(f"partitions.{p.partition}.{field}", unknown.get("partitions"))
    if p.end_offset is None or said not in (None, NO_COMMIT):
        reason = f" ({said})" if said else ""
        raise CannotDecide(f"lag of partition {p.partition} is unknown: no {field.replace('_', ' ')}{reason}")
    if scale_to_zero_on_invalid_offset:
        return 0
    return 1 if offset_reset == "latest" else p.end_offset  # 1 starts one replica, which then commits


def capped_lag(
    lags: list[int],
    threshold: int,
    *,
    allow_idle_consumers: bool = False,
    limit_to_partitions_with_lag: bool = False,
    ensure_even_distribution: bool = False,
) -> int:
    """S for the HPA: at most what the partitions (or those with lag) can use, or a number that divides them evenly."""
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
    """``lag_threshold`` is L, events per replica. The five switches and ``offset_reset`` are KEDA's: with
    ``exclude_persistent_lag`` the HPA does not see the lag of partitions that have committed nothing since the reading
    before; ``scale_to_zero_on_invalid_offset`` takes a partition without a commit for one without lag. KEDA's
    ``partitionLimitation`` is not emulated.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        **KedaParameters.candidates,
        "lag_threshold": Candidates((0.01, 0.03, 0.1, 0.3, 1.0), ("service_rate_per_s", "slo_s")),
    }
    lag_threshold: Count = 10
    activation_lag_threshold: CountOrZero = 0
    allow_idle_consumers: bool = False
    limit_to_partitions_with_lag: bool = False
    ensure_even_distribution: bool = False
    exclude_persistent_lag: bool = False
    scale_to_zero_on_invalid_offset: bool = False
    offset_reset: OffsetReset = "latest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.allow_idle_consumers and self.limit_to_partitions_with_lag:
            raise ValueError("allow_idle_consumers and limit_to_partitions_with_lag: KEDA takes one of them only")


class KedaKafkaState(msgspec.Struct, frozen=True):
    """That of KEDA and the HPA, and the committed offset of each partition at the reading before."""

    keda: KedaState = KedaState()
    committed: Mapping[int, int] = {}


class KedaKafka(BaseScaler[KedaKafkaParameters, KedaKafkaState]):
    """Scaling of a consumer group by its lag; partitions as Kafka's range assignor gives them."""

    name: ClassVar[str] = "keda-kafka"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "KEDA, Kafka trigger"
    emulates: ClassVar[str] = "KEDA"

    def decide(self, observation: StreamObservation, state: KedaKafkaState) -> tuple[Decision, KedaKafkaState]:
        """Lags, their limit, then KEDA's step."""
        p = self.parameters
        try:
            lags = [
                trigger_lag(
                    each,
                    observation.unknown,
                    p.offset_reset,
                    scale_to_zero_on_invalid_offset=p.scale_to_zero_on_invalid_offset,
                )
                for each in observation.partitions
            ]
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), state
        if not lags:
            return hold(observation.fleet, "no partitions known"), state
        committed = {each.partition: each.committed_offset for each in observation.partitions}
        seen_by_hpa = [
            0 if p.exclude_persistent_lag and before is not None and before == committed[each.partition] else lag
            for each, lag in zip(observation.partitions, lags, strict=True)
            for before in (state.committed.get(each.partition),)
        ]
        capped = capped_lag(
            seen_by_hpa,
            p.lag_threshold,
            allow_idle_consumers=p.allow_idle_consumers,
            limit_to_partitions_with_lag=p.limit_to_partitions_with_lag,
            ensure_even_distribution=p.ensure_even_distribution,
        )
        trigger = Trigger(capped, p.lag_threshold, active=sum(lags) > p.activation_lag_threshold)
        wanted, keda, terms = keda_step(trigger, observation.time_s, observation.replicas, p, state.keda)
        partitions = [each.partition for each in observation.partitions]
        why: dict[str, Term] = {"partitions": partitions, "lag": lags, "total_lag_of_group": sum(lags), **terms}
        if p.exclude_persistent_lag:
            why["lag_without_persistent"] = seen_by_hpa
        known = {partition: offset for partition, offset in committed.items() if offset is not None}
        following = KedaKafkaState(keda, {**state.committed, **known} if p.exclude_persistent_lag else {})
        return resize(observation, wanted, why, range_groups(partitions, wanted)), following
