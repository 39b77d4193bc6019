"""Every scaler brings the values from which its search starts, and the search goes on from there."""

import pytest

from experiments.advise.settings import AROUND, FIRST, TICK_PHASE, Space, space_of
from experiments.replay.plan import MADE_FOR_OTHER_FLEETS
from penstock.contracts import StreamObservation
from penstock.parameters import make_parameters
from penstock.registry import ScalerClass, is_clairvoyant, scaler_classes

FACTS = {
    "service_rate_per_s": 200.0,
    "slo_s": 0.5,
    "slo_share": 0.99,
    "max_replicas": 10,
    "peak_rate_per_s": 900.0,
    "wait_s": 0.495,
}
TRIED = {
    name: kind
    for name, kind in scaler_classes().items()
    if issubclass(StreamObservation, kind.fleets) and not is_clairvoyant(kind) and name not in MADE_FOR_OTHER_FLEETS
}


@pytest.mark.parametrize(("name", "kind"), TRIED.items())
def test_a_scaler_of_consumer_groups_takes_most_settings_of_its_space(name: str, kind: ScalerClass) -> None:
    candidates = getattr(kind.Parameters, "candidates", {})
    space = space_of(name, kind, FACTS, tick_phase=False)
    assert set(space.values) == set(candidates), "a candidate without a parameter, or of an unknown fact"
    settings = space.first(1)
    assert settings[0] == () and len(settings) == len(set(settings)) <= FIRST + 1
    taken = 0
    for setting in settings:
        try:
            make_parameters(name, kind.Parameters, dict(setting))
        except Exception:
            continue
        taken += 1
    assert taken > len(settings) / 2


def test_values_follow_the_facts() -> None:
    space = space_of("rps", TRIED["rps"], FACTS, tick_phase=True)
    assert space.values["target_per_replica_per_s"] == pytest.approx((60, 80, 100, 120, 140, 160, 180))
    assert TICK_PHASE in space.values
    slower = space_of("rps", TRIED["rps"], {**FACTS, "service_rate_per_s": 20.0}, tick_phase=False)
    assert slower.values["target_per_replica_per_s"] == pytest.approx((6, 8, 10, 12, 14, 16, 18))
    assert "target_per_replica_per_s" not in space_of("rps", TRIED["rps"], {}, tick_phase=False).values


def test_nobody_chooses_the_ticks_of_a_system_that_is_emulated() -> None:
    assert TICK_PHASE not in space_of("hpa", TRIED["hpa"], FACTS, tick_phase=True).values


def test_refinement_tries_between_and_beyond_and_each_other_choice() -> None:
    space = Space("any", {"share": (0.4, 0.9), "count": (1, 4), "mode": ("a", "b")}, {"count"})
    base = (("count", 1), ("mode", "a"), ("share", 0.4))
    found = space.around([base], {base: None})
    changed = [{name: value for name, value in each if (name, value) not in base} for each in found]
    assert all(len(each) == 1 for each in changed)
    assert {"mode": "b"} in changed and {"share": 0.9} in changed and {"share": 0.6} in changed
    assert {"count": 4} in changed and {"count": 2} in changed
    assert len(found) <= AROUND
    assert not set(found) & set(space.around([base], {base, *found})), "what was tried is not tried again"


def test_nothing_is_tried_that_the_emulated_system_refuses() -> None:
    """Knative: windows from 6 s on, in whole seconds; percentages up to 100."""
    space = space_of("kpa", TRIED["kpa"], FACTS, tick_phase=False)
    base = (("panic_window_percentage", 100.0), ("stable_window_s", 6.0))
    found = space.around([base], {base})
    values = {name: {dict(each)[name] for each in found} for name, _ in base}
    assert 15.0 in values["stable_window_s"] and 40.0 in values["panic_window_percentage"]
    assert min(values["stable_window_s"]) == 6.0 and max(values["panic_window_percentage"]) == 100.0
    assert all(value == round(value) for value in values["stable_window_s"])


def test_nothing_is_tried_between_settings_that_did_the_same() -> None:
    space = Space("any", {"share": (0.4, 0.9), "idle": (1.0, 2.0)}, ())
    base, other = (("idle", 1.0), ("share", 0.4)), (("idle", 2.0), ("share", 0.4))
    found = space.around([base], {base, other}, lambda one, another: {one, another} == {base, other})
    assert found and all(dict(each)["idle"] == 1.0 for each in found)
    assert any(dict(each)["idle"] not in (1.0, 2.0) for each in space.around([base], {base, other}))


def test_refinement_takes_turns() -> None:
    space = Space("any", {name: tuple(map(float, range(1, 20, 2))) for name in "abcdef"}, ())
    first, second = (tuple((name, value) for name in "abcdef") for value in (5.0, 15.0))
    near_first = [
        sum(abs(value - 5) for _, value in each) < 30 for each in space.around([first, second], {first, second})
    ]
    assert len(near_first) == AROUND and sum(near_first) == AROUND / 2


def test_the_published_setting_is_the_start_of_no_refinement() -> None:
    assert Space("any", {"share": (0.4, 0.9)}, ()).around([()], [()]) == []


def test_no_parameter_comes_first_in_every_round() -> None:
    space = Space("any", {name: tuple(map(float, range(1, 20, 2))) for name in "abcdef"}, ())
    base = tuple((name, 5.0) for name in "abcdef")
    tried = {base}
    first = set()
    for _ in range(4):
        found = space.around([base], tried)[:6]
        first.add(next(name for name, value in found[0] if value != 5.0))
        tried |= set(found)
    assert len(first) > 1


def test_settings_between_two_good_ones_differ_in_several_parameters() -> None:
    space = Space("any", {"share": (0.4, 0.9), "hold_s": (1.0, 4.0), "mode": ("a", "b")}, ())
    one = (("hold_s", 1.0), ("mode", "a"), ("share", 0.4))
    other = (("--tick-phase", 0.1), ("hold_s", 4.0), ("mode", "b"), ("share", 0.9))
    found = space.joint([(), one, other], {one, other})
    assert len(found) > 6 and not set(found) & {one, other}
    assert {dict(each)["hold_s"] for each in found} == {1.0, 2.0, 4.0}, "of numbers also the middle"
    assert {dict(each)["mode"] for each in found} == {"a", "b"}
    assert all(dict(each)["--tick-phase"] == 0.1 for each in found)
    assert space.joint([one], {one}) == []
