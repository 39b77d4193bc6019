"""What even-load promises."""

from pathlib import Path
from typing import Any

from penstock.contracts import Decision, Groups, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.registry import make_scaler
from penstock.runspec import ScalerSpec

FILE = f"{Path(__file__).parent / 'even_load.py'}:EvenLoad"

SCALER = make_scaler(ScalerSpec(name="even-load", file=FILE, parameters={"service_rate_per_s": 100.0}))


def seen(time_s: float, ends: tuple[int | None, ...], plan: Groups, *, lag: int = 0) -> StreamObservation:
    """A group that has read all but ``lag`` events of each partition."""
    partitions = tuple(
        PartitionObservation(number, end, None if end is None else end - lag) for number, end in enumerate(ends)
    )
    counts = ReplicaCounts(joined=len(plan))
    return StreamObservation(time_s=time_s, fleet="f", replicas=counts, partitions=partitions, plan=plan)


def decide(first: StreamObservation, second: StreamObservation) -> Decision:
    """The decision on the second of two readings."""
    _, state = SCALER.decide(first, SCALER.start(1))
    decision: Any = SCALER.decide(second, state)[0]
    return decision


def test_it_scales_to_the_total_load_with_even_groups() -> None:
    """200/s in all: ⌈200 / (0.7 · 100)⌉ = 3 replicas, the heaviest partition alone."""
    decision = decide(seen(0, (0, 0, 0, 0), ((0, 1, 2, 3),)), seen(2, (200, 80, 60, 60), ((0, 1, 2, 3),)))
    assert (decision.action, decision.targets) == ("up", {"f": 3})
    assert decision.assignment == ((0,), (1,), (2, 3))


def test_it_regroups_only_if_one_replica_is_much_heavier_than_it_would_be() -> None:
    """40 + 30 against 20 + 10 becomes 40 + 10 against 30 + 20; 40 + 20 against 30 + 10 is left as it is."""
    first, second = (0, 0, 0, 0), (80, 60, 40, 20)
    uneven, tolerable = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    decision = decide(seen(0, first, uneven), seen(2, second, uneven))
    assert (decision.action, decision.assignment) == ("reassign", ((0, 3), (1, 2)))
    decision = decide(seen(0, first, tolerable), seen(2, second, tolerable))
    assert (decision.action, decision.assignment) == ("none", None)


def test_unknown_is_not_zero() -> None:
    """An end offset that could not be read must not look like a partition without load."""
    decision = decide(seen(0, (0, 0), ((0,), (1,))), seen(2, (80, None), ((0,), (1,))))
    assert (decision.action, decision.targets) == ("hold", {})
