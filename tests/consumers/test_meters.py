"""A worker's metrics: named in one place, counted exactly."""

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from consumers.meters import Meters
from penstock import metrics
from penstock.records import Outcome, Result


def result(outcome: Outcome, service_ns: int) -> Result:
    return Result(
        1, "r", "p", "s", outcome, "q", 1, 1, received_ns=10, started_ns=10, finished_ns=10 + service_ns, worker="w"
    )


def test_what_happened_is_what_is_scraped() -> None:
    registry = CollectorRegistry()
    meters = Meters("payments", "p-0", slo_s=0.5)
    registry.register(meters)
    meters.served([result("completed", 5_000_000), result("completed", 5_000_001), result("failed", 2_000_000_000)])
    meters.rebalanced(5)
    meters.rebalanced(3)
    meters.fell_back_to_range()
    labels = {"fleet": "payments", "replica": "p-0"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, {**labels, **more})

    assert value(metrics.EVENTS_PROCESSED, outcome="completed") == 2
    assert value(metrics.EVENTS_PROCESSED, outcome="failed") == 1
    assert value(metrics.SERVICE_TIME + "_bucket", le="0.005") == 1
    assert value(metrics.SERVICE_TIME + "_bucket", le="0.0055") == 2
    assert value(metrics.SERVICE_TIME + "_count") == 3
    assert value(metrics.SERVICE_TIME + "_sum") == 2.010000001
    assert value(metrics.ASSIGNED_PARTITIONS) == 3
    assert value(metrics.REBALANCES) == 2
    assert value(metrics.RANGE_FALLBACKS) == 1


def test_a_result_is_late_above_the_slo_after_the_schedule_and_not_after_the_sender() -> None:
    meters = Meters("payments", "p-0", slo_s=0.5)
    meters.served([replace(result("completed", 499_999_990), intended_ns=0, sent_ns=400_000_000)])
    assert (meters.finished, meters.late) == (1, 0)
    meters.served([replace(result("completed", 499_999_991), intended_ns=0, sent_ns=400_000_000)])
    assert (meters.finished, meters.late) == (2, 1)
    assert meters.busy_ns == 999_999_981


def test_every_metric_has_a_name_of_the_kernel() -> None:
    names = {value for name, value in vars(metrics).items() if name.isupper()}
    for family in Meters("f", "r", slo_s=0.5).collect():
        assert family.name in names or f"{family.name}_total" in names
