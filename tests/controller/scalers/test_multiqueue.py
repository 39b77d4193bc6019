"""The multi-queue scalers: every vector of the paper's algorithms, their properties, and how they behave in a loop."""

import json
from collections.abc import Callable
from math import fsum
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.queueing.pool import queues_to_create
from controller.scalers.multiqueue import Multiqueue
from controller.scalers.multiqueue_damped import MultiqueueDamped, MultiqueueDampedParameters, damped_ratios
from controller.scalers.shared.multiqueue_algorithms import (
    Limits,
    SubQueue,
    forward,
    lambda_ratios,
    routing_shares,
    scaler_cycle,
)
from controller.scalers.shared.parameters import Parameters
from controller.scalers.shared.queue_scaler import MultiqueueParameters, QueueState
from controller.scalers.single_queue import SingleQueue
from penstock.contracts import Decision, QueueObservation, QueueStatus, ReplicaCounts
from report.explain import explain
from tests.controller.scalers.queue_world import FLEET, Bank

Given = dict[str, Any]

PRINTED = Limits(max_p_k=0.7, min_p_k=0.4, min_arrival_rate_per_s=100, max_servers=10)

GOLDEN = Path(__file__).parents[2] / "golden" / "mmsk.json"
VECTORS = [
    vector
    for vector in json.loads(GOLDEN.read_text())["derived"]
    if vector["fn"] in ("mmsk.scaler", "mmsk.forward", "mmsk.lambda_ratio", "mmsk.pool_monitor")
]


# --- vectors ---------------------------------------------------------------------------------------------------------


def sub_queue(given: Given) -> SubQueue:
    return SubQueue(
        queue=given["id"],
        p_k=float(given.get("Pk", 0)),
        servers=given.get("S", 0),
        arrival_rate_per_s=float(given["lam"]),
        removable=given["removable"],
        ratio=given.get("ratio"),
    )


def cycle(given: Given) -> Any:
    done = scaler_cycle(
        [sub_queue(q) for q in given["queues"]], given["pool"], PRINTED, printed=given["variant"] == "published"
    )
    queues = [
        {"id": q.queue, "Pk": q.p_k, "S": q.servers, "lam": q.arrival_rate_per_s, "removable": q.removable}
        | ({} if q.ratio is None else {"ratio": q.ratio})
        for q in done.queues
    ]
    return {"action": done.action, "queues": queues, "pool": list(done.pool)}


FUNCTIONS: dict[str, Callable[[Given], Any]] = {
    "mmsk.scaler": cycle,
    "mmsk.forward": lambda g: forward(
        g["main_lambda"], [sub_queue(q) for q in g["queues"]], printed=g["variant"] == "published"
    ),
    "mmsk.lambda_ratio": lambda g: lambda_ratios([float(p_k) for p_k in g["pks"]]),
    "mmsk.pool_monitor": lambda g: queues_to_create(g["available"]),
}


def agree(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            agree(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            agree(one, other)
    elif isinstance(found, float):
        assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-12)
    else:
        assert found == expected


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    agree(FUNCTIONS[vector["fn"]](vector["in"]), vector["out"])


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS) == 84
    assert {vector["fn"] for vector in VECTORS} == set(FUNCTIONS)


# --- ratios, forwarder, pool -----------------------------------------------------------------------------------------

p_ks = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(p_ks, st.randoms())
def test_ratios_are_shares_and_follow_their_queues(values: list[float], random: Random) -> None:
    ratios = lambda_ratios(values)
    assert all(0 <= ratio <= 1 for ratio in ratios)
    assert fsum(ratios) == pytest.approx(1)
    assert ratios[values.index(min(values))] == max(ratios)
    order = list(range(len(values)))
    random.shuffle(order)
    assert lambda_ratios([values[i] for i in order]) == pytest.approx([ratios[i] for i in order])


@given(st.lists(st.lists(st.floats(0, 1), max_size=4), min_size=1, max_size=6), st.floats(0.01, 0.5))
def test_damped_ratios_are_shares_and_equal_without_history(history: list[list[float]], damping: float) -> None:
    ratios = damped_ratios(history, damping)
    assert fsum(ratios) == pytest.approx(1)
    for values, ratio in zip(history, ratios, strict=True):
        assert 0 <= ratio <= 1
        if not values:
            assert ratio == 1 / len(history)


def test_without_damping_and_averages_the_damped_ratios_are_the_printed_ones() -> None:
    assert damped_ratios([[0.7], [0.2], [0.1]], 0) == pytest.approx(lambda_ratios([0.7, 0.2, 0.1]))


@st.composite
def banks(draw: st.DrawFn) -> list[SubQueue]:
    n = draw(st.integers(1, 5))
    marked = draw(st.integers(0, 2 * n)) if n > 1 else n
    ratios = lambda_ratios(draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    return [
        SubQueue(
            queue=f"q{i}",
            p_k=draw(st.sampled_from((0.0, 0.1, 0.39, 0.4, 0.55, 0.7, 0.71, 1.0))),
            servers=draw(st.sampled_from((0, 9, 10, 10, 10))),
            arrival_rate_per_s=draw(st.sampled_from((0.0, 99.0, 199.0, 200.0, 202.0, 900.0))),
            removable=i == marked,
            ratio=ratios[i],
        )
        for i in range(n)
    ]


def empty(queue: str, *, removable: bool) -> SubQueue:
    """Half of the arrivals."""
    return SubQueue(queue=queue, p_k=0.0, servers=0, arrival_rate_per_s=0.0, removable=removable, ratio=0.5)


@example([empty("a", removable=True), empty("b", removable=False)], 5e-324)
@given(banks(), st.floats(0, 2000))
def test_the_forwarder_hands_on_everything(queues: list[SubQueue], main: float) -> None:
    rates = forward(main, queues)
    kept = sum(q.arrival_rate_per_s for q in queues if q.removable)
    assert all(rate >= 0 for rate in rates)
    assert fsum(rates) == pytest.approx(max(main, kept))
    shares = routing_shares(main, queues)
    assert fsum(shares.values()) == pytest.approx(1)
    if main > kept and main > 0:
        assert [shares[q.queue] * main for q in queues] == pytest.approx(rates)


def test_as_printed_the_forwarder_loses_the_share_of_the_removable_queue() -> None:
    queues = [
        SubQueue(queue="a", p_k=0.1, servers=10, arrival_rate_per_s=100, removable=True, ratio=0.5),
        SubQueue(queue="b", p_k=0.1, servers=10, arrival_rate_per_s=300, ratio=0.5),
    ]
    assert forward(400, queues, printed=True) == [100, 150]
    assert forward(400, queues) == [100, 300]


# --- one cycle -------------------------------------------------------------------------------------------------------


def queue(p_k: float, servers: int = 10, rate: float = 300, name: str = "q", *, removable: bool = False) -> SubQueue:
    return SubQueue(queue=name, p_k=p_k, servers=servers, arrival_rate_per_s=rate, removable=removable)


@pytest.mark.parametrize(
    ("queues", "action"),
    [
        ([queue(0.7, name="a"), queue(0.7, name="b"), queue(0.7, name="c")], "cancel"),  # exactly .7: no scale-out
        ([queue(0.7 + 1e-6)], "scale_out"),
        ([queue(0.4, name="a"), queue(0.4, name="b"), queue(0.4, name="c")], "cancel"),  # exactly .4
        ([queue(0.4 - 1e-6, name="a"), queue(0.4 - 1e-6, name="b")], "reduce"),
        ([queue(0.2, rate=200, name="a"), queue(0.2, name="b")], "scale_in"),  # exactly 100 after the halving
        ([queue(0.2, rate=200.2, name="a"), queue(0.2, name="b")], "reduce"),
        ([queue(0.9, name="a"), queue(0.9, 9, name="b")], "none"),  # avgS 9.5
        ([queue(0.9, 11, name="a"), queue(0.9, 9, name="b")], "scale_out"),  # an average of 10 is enough
    ],
)
def test_limits(queues: list[SubQueue], action: str) -> None:
    assert scaler_cycle(queues, ["p1"], PRINTED).action == action


@given(banks(), st.lists(st.sampled_from(["p1", "p2"]), unique=True), st.booleans())
def test_a_cycle_does_one_thing_and_loses_no_queue(queues: list[SubQueue], pool: list[str], printed: bool) -> None:
    done = scaler_cycle(queues, pool, PRINTED, printed=printed)
    names, pooled = [q.queue for q in done.queues], list(done.pool)
    assert sorted(names + pooled) == sorted([q.queue for q in queues] + pool)
    assert len(names) - len(queues) == {"scale_out": 1, "scale_in": -1}.get(done.action, 0)
    assert sum(q.removable for q in done.queues) <= 1
    if done.action == "cancel":
        assert not any(q.removable for q in done.queues)
    if not printed:
        assert names
        assert len(names) > 1 or not any(q.removable for q in done.queues)
    if done.action in ("cancel", "scale_out", "scale_in"):
        assert fsum(q.ratio or 0 for q in done.queues) == pytest.approx(1 if names else 0)


def test_as_printed_the_last_queue_goes_too() -> None:
    assert scaler_cycle([queue(0.1, rate=100)], [], PRINTED, printed=True).queues == ()
    assert scaler_cycle([queue(0.1, rate=100)], [], PRINTED).action == "hold_last"


# --- the scalers in a loop -------------------------------------------------------------------------------------------

STORY = {"max_p_k": 0.45, "min_p_k": 0.01}
"""With the printed limits nothing scales out at λ = 200 (spec 1.12)."""


def multiqueue(**parameters: Any) -> Multiqueue:
    return Multiqueue(MultiqueueParameters(**parameters))


def damped(**parameters: Any) -> MultiqueueDamped:
    return MultiqueueDamped(MultiqueueDampedParameters(**parameters))


def test_a_cycle_without_losses_is_no_reason_to_scale_in_until_the_averages_fall() -> None:
    waiting, hasty = (Bank(damped(**STORY, settled_scale_in=settled)) for settled in (True, False))
    for bank in (waiting, hasty):
        bank.cycles(200, 60)
        assert len(bank.routing) == 2
    assert (waiting.cycles(20, 1), hasty.cycles(20, 1)) == (["cancel"], ["scale_in"])
    assert "scale_in" in waiting.cycles(20, 9)


@pytest.mark.parametrize("make", [multiqueue, damped])
def test_with_the_printed_limits_the_papers_load_never_scales_out(make: Callable[..., Multiqueue]) -> None:
    bank = Bank(make())
    assert "scale_out" not in bank.cycles(200, 40)
    assert bank.routing == {"q1": 1.0}


def test_the_first_queue_is_added_when_the_function_has_all_its_containers() -> None:
    bank = Bank(multiqueue(**STORY))
    assert bank.cycles(200, 10) == [None, *["none"] * 8, "scale_out"]
    assert (bank.pool, list(bank.routing)) == (["p2", "p3"], ["q1", "p1"])


def test_the_printed_split_swings_for_ever() -> None:
    bank = Bank(multiqueue(**STORY))
    bank.cycles(200, 11)
    split = []
    for _ in range(10):
        bank.tick(200)
        split.append([round(rate) for rate in bank.rates(200).values()])
    assert split == [[200, 0], [0, 200]] * 5


def test_the_printed_limits_come_and_go_at_twice_the_load() -> None:
    bank = Bank(multiqueue())
    bank.cycles(400, 9)
    assert bank.cycles(400, 9) == ["scale_out", "cancel", "scale_in"] * 3


@pytest.mark.parametrize("rate", [200.0, 220.0, 300.0])
def test_the_damped_split_settles_at_equal_shares(rate: float) -> None:
    bank = Bank(damped(max_p_k=0.45, min_p_k=0.001))
    bank.cycles(rate, 100)
    assert list(bank.rates(rate).values()) == pytest.approx([rate / 2, rate / 2], rel=0.03)


def test_a_queue_goes_step_by_step_when_the_load_falls() -> None:
    bank = Bank(damped(max_p_k=0.45, min_p_k=0.3, min_arrival_rate_per_s=3))
    bank.cycles(300, 30)
    assert len(bank.routing) == 2
    done, halved, removable = [], [], set()
    while "scale_in" not in done:
        why = bank.tick(160).why[FLEET]
        if why["cycle"] == "cancel":  # until the averages are low, too
            assert float(str(why["avg_P_K"])) < 0.3 <= float(str(why["settled_P_K"]))
            continue
        done.append(why["cycle"])
        removable.add(str(why["removable"]))
        halved.append(bank.rates(160).get(str(why["removable"]), 0.0))
    (gone,) = removable  # one and the same, to the end
    assert done == ["reduce"] * 4 + ["scale_in"]
    assert halved[1:4] == pytest.approx([rate / 2 for rate in halved[:3]])
    assert list(bank.routing.values()) == [1.0]
    assert bank.pool == ["p2", "p3", gone]
    assert bank.state.removable is None


def test_a_new_rise_cancels_a_removal_under_way() -> None:
    bank = Bank(damped(max_p_k=0.45, min_p_k=0.2, min_arrival_rate_per_s=1))
    bank.cycles(300, 30)
    assert bank.cycles(150, 9)[-1] == "reduce"
    assert bank.state.removable is not None
    bank.cycles(390, 3)
    assert bank.state.removable is None


def test_the_share_that_was_rejected_is_measured_where_queues_reject() -> None:
    bank = Bank(multiqueue(**STORY), rejects=True)
    bank.cycles(200, 3)
    why = bank.tick(200).why[FLEET]
    assert why["P_K_from"] == ["measured"]
    assert why["P_K"] == [pytest.approx(160 / 200)]
    held = Bank(multiqueue(**STORY))
    held.cycles(200, 3)
    why = held.tick(200).why[FLEET]
    assert why["P_K_from"] == ["formula"]
    assert why["P_K"] == [pytest.approx(0.8, abs=1e-3)]


def test_a_loop_that_begins_anew_goes_on_from_its_written_state() -> None:
    one, other = (Bank(damped(**STORY)) for _ in range(2))
    for _ in range(40):
        other.state = msgspec.json.decode(msgspec.json.encode(other.state), type=QueueState)
        assert one.tick(230) == other.tick(230)


# --- one decision ----------------------------------------------------------------------------------------------------


def observation(time_s: float, arrived: int | None, *queues: QueueStatus, **more: Any) -> QueueObservation:
    joined = sum(not q.draining for q in queues)
    return QueueObservation(
        time_s=time_s,
        fleet=FLEET,
        replicas=more.pop("replicas", ReplicaCounts(joined=joined)),
        arrived=arrived,
        queues=queues,
        **more,
    )


def status(name: str = "q1", arrived: int | None = 0, **more: Any) -> QueueStatus:
    full = {"servers": 10, "capacity": 50, "service_rate_per_s": 10.0, **more}
    return QueueStatus(queue=name, arrived=arrived, **full)


def second_decision(first: QueueObservation, second: QueueObservation, **parameters: Any) -> Decision:
    scaler = multiqueue(**parameters)
    held, state = scaler.decide(first, scaler.start(1))
    assert held.action == "hold"
    return scaler.decide(second, state)[0]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (observation(2, None, status(), unknown={"arrived": "broker away"}), "main queue are unknown (arrived: broker"),
        (observation(2, 200), "no queues known"),
        (observation(2, 200, status(draining=True)), "no queues known"),
        (observation(2, 200, status(servers=None)), "containers of queue q1 are unknown"),
        (observation(2, 200, status(capacity=None)), "no bound K"),
        (observation(2, 200, status(service_rate_per_s=None)), "service rate of queue q1 is unknown"),
        (observation(2, 200, status(arrived=None)), "arrivals at queue q1 are unknown"),
        (observation(2, 200, status(arrived=-5)), "counters of queue q1 fell"),
        (observation(2, -1, status()), "fell from 0 to -1"),
        (observation(1.2, 200, status()), "no rate yet: 0.2 s since"),
        (observation(0.5, 200, status()), "first reading"),
    ],
)
def test_what_is_unknown_makes_it_hold(second: QueueObservation, reason: str) -> None:
    decision = second_decision(observation(1, 0, status()), second)
    assert decision.action == "hold"
    assert reason in str(decision.why[FLEET]["reason"])
    assert not decision.targets
    assert decision.routing is None


def test_given_service_rate_and_capacity_replace_the_observed_ones() -> None:
    second = observation(2, 200, status(arrived=200, capacity=None, service_rate_per_s=None))
    decision = second_decision(observation(1, 0, status()), second, capacity=50, service_rate_per_s=10.0)
    assert decision.why[FLEET]["P_K"] == [pytest.approx(0.5)]
    assert decision.why[FLEET]["lambda_main"] == 200


def test_a_queue_that_has_finished_nothing_serves_like_the_others() -> None:
    first = observation(1, 0, status("a"), status("b"))
    new = status("b", arrived=100, service_rate_per_s=None)
    shares = {"a": 0.5, "b": 0.5}
    second = observation(2, 200, status("a", arrived=100), new, routing=shares, service_rate_per_s=100.0)
    why = second_decision(first, second).why[FLEET]
    assert why["P_K"] == [pytest.approx(0.0223913)] * 2


def test_an_empty_pool_is_told_and_asked_to_be_filled() -> None:
    second = observation(2, 400, status(arrived=400), routing={"q1": 1.0})
    decision = second_decision(observation(1, 0, status()), second)
    assert decision.action == "reassign"
    assert decision.why[FLEET]["cycle"] == "scale_out_empty_pool"
    assert decision.pool == 2
    assert decision.targets == {FLEET: 1}


def test_a_queue_on_its_way_is_not_asked_for_twice() -> None:
    more = {"pool": ("p1", "p2"), "routing": {"q1": 1.0}, "replicas": ReplicaCounts(joined=1, requested=1)}
    decision = second_decision(observation(1, 0, status()), observation(2, 400, status(arrived=400), **more))
    assert (decision.action, decision.targets) == ("none", {FLEET: 2})
    assert "1 more asked for" in str(decision.why[FLEET]["kept_back"])


def test_the_largest_bank_is_a_parameter() -> None:
    more = {"pool": ("p1", "p2"), "routing": {"q1": 1.0}}
    second = observation(2, 400, status(arrived=400), **more)
    assert second_decision(observation(1, 0, status()), second).targets == {FLEET: 2}
    decision = second_decision(observation(1, 0, status()), second, max_queues=1)
    assert (decision.action, decision.targets) == ("none", {FLEET: 1})
    assert decision.why[FLEET]["kept_back"] == "at most 1 queues"


def test_without_arrivals_nothing_is_lost() -> None:
    decision = second_decision(observation(1, 0, status()), observation(2, 0, status(servers=0)))
    assert decision.why[FLEET]["P_K"] == [0.0]
    assert decision.why[FLEET]["cycle"] == "hold_last"


def test_a_queue_without_containers_loses_everything() -> None:
    decision = second_decision(observation(1, 0, status()), observation(2, 10, status(arrived=10, servers=0)))
    assert decision.why[FLEET]["P_K"] == [1.0]


def test_the_arithmetic_is_explained() -> None:
    second = observation(2, 400, status(arrived=400), pool=("p1",), routing={"q1": 1.0})
    text = explain("multiqueue", second_decision(observation(1, 0, status()), second))
    assert "scale up to 2 replicas" in text
    assert "avg(P_K) = 0.75 > maxP_K = 0.7? yes" in text
    assert "routing: q1 0.0%, p1 100.0%" in text


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"max_p_k": 0.3}, r"max_p_k=0\.3, min_p_k=0\.4"),
        ({"min_p_k": -0.1}, r"min_p_k=-0\.1"),
        ({"max_servers": 0}, "max_servers=0"),
        ({"min_arrival_rate_per_s": -1}, "min_arrival_rate_per_s=-1"),
        ({"service_rate_per_s": 0}, "service_rate_per_s=0"),
        ({"capacity": 0}, "capacity=0"),
        ({"max_queues": 0}, "max_queues=0"),
        ({"decision_interval_s": 0}, "decision_interval_s=0"),
        ({"averaged_cycles": 0}, "averaged_cycles=0"),
        ({"damping_p_k": -1}, "damping_p_k=-1"),
    ],
)
def test_impossible_parameters_are_told(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MultiqueueDampedParameters(**parameters)


@pytest.mark.parametrize(("queues", "action"), [(0, "up"), (1, "none"), (3, "down")])
def test_the_single_queue_stays_single(queues: int, action: str) -> None:
    scaler = SingleQueue(Parameters())
    seen = observation(1, None, replicas=ReplicaCounts(joined=queues))
    decision, state = scaler.decide(seen, scaler.start(1))
    assert (decision.action, decision.targets) == (action, {FLEET: 1})
    assert state == scaler.start(2)
    assert scaler.period_s == 1
