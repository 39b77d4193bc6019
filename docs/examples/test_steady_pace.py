"""What steady-pace promises."""

from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts import Decision, FleetObservation, ReplicaCounts
from penstock.registry import make_scaler
from penstock.runspec import ScalerSpec

FILE = f"{Path(__file__).parent / 'steady_pace.py'}:SteadyPace"

SCALER = make_scaler(ScalerSpec(name="steady-pace", file=FILE))


def seen(time_s: float, arrived: int | None, *, backlog: int = 0, replicas: int = 2) -> FleetObservation:
    """A fleet whose replicas do 20 events a second each."""
    counts = ReplicaCounts(joined=replicas)
    return FleetObservation(
        time_s=time_s, fleet="f", replicas=counts, arrived=arrived, backlog=backlog, service_rate_per_s=20.0
    )


def follow(*observations: FleetObservation) -> tuple[Decision, Any]:
    """The decision on the last of them, and the state after it; in between the state is written down and read."""
    state = SCALER.start(1)
    for observation in observations:
        decision, state = SCALER.decide(observation, msgspec.json.decode(msgspec.json.encode(state), type=SCALER.State))
    return decision, state


def test_replicas_keep_pace_and_work_the_backlog_off() -> None:
    """(100/s + 50 events / 5 s) / (0.8 · 20/s) = 6.9."""
    decision, _ = follow(seen(0, 0), seen(1, 100, backlog=50))
    assert (decision.action, decision.targets) == ("up", {"f": 7})
    assert decision.why["f"]["load_per_s"] == 110


def test_it_shrinks_only_when_less_was_enough_for_the_whole_patience() -> None:
    """Seven are needed at second 1 and one from second 2 on: nothing is let go before second 21."""
    timeline = [seen(0, 0), *(seen(second, 100, replicas=7) for second in range(1, 22))]
    timeline[1] = seen(1, 100, backlog=50, replicas=7)
    assert {follow(*timeline[:end])[0].action for end in range(2, 22)} == {"none"}
    assert follow(*timeline)[0].targets == {"f": 1}


def test_unknown_is_not_zero() -> None:
    """A monitor that could not read must not shrink the fleet."""
    decision, state = follow(seen(0, 0), seen(1, 100), seen(2, None))
    assert (decision.action, decision.targets) == ("hold", {})
    assert state.by_fleet["f"].needs, "what was known before is not forgotten"
