"""Shares of a bank's queues, and the draws by which the forwarder keeps to them."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fleets.queue.forwarder import Draws, prefetch_for, rejection
from controller.fleets.queue.routing import ForwarderReport, QueueFlow, Routing, check_decision, fed_shares
from penstock.contracts import Decision
from penstock.records import Event, encode
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import QueueSystem

SPEC = RunSpec(run="r", experiment="test", world="local", scaler=ScalerSpec(name="none"), duration_s=1)


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 10)), st.lists(st.sampled_from("abcdef"), unique=True))
def test_shares_of_fed_queues_add_up_to_one(routing: dict[str, float], fed: list[str]) -> None:
    shares = fed_shares(routing, fed)
    assert list(shares) == fed
    assert not fed or sum(shares.values()) == pytest.approx(1)


def test_a_queue_that_is_not_named_gets_nothing_unless_nobody_gets_anything() -> None:
    assert fed_shares({"a": 1.0, "c": 3.0}, ["a", "b"]) == {"a": 1.0, "b": 0.0}
    assert fed_shares({"c": 3.0}, ["a", "b"]) == {"a": 0.5, "b": 0.5}
    assert fed_shares(None, ["a"]) == {"a": 1.0}


@pytest.mark.parametrize(
    ("decision", "named"),
    [
        (Decision(action="up", targets={"other": 2}), "other"),
        (Decision(action="up", routing={"a": -0.1}), "a=-0.1"),
        (Decision(action="up", routing={"a": float("nan")}), "a=nan"),
        (Decision(action="up", pool=-1), "pool=-1"),
    ],
)
def test_what_a_bank_cannot_do_is_named(decision: Decision, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        check_decision(decision, "bank")


def test_draws_keep_to_the_shares_within_two_in_a_hundred_over_ten_thousand_events() -> None:
    draws = Draws(seed=1)
    shares = {"a": 0.5, "b": 0.2, "c": 0.3, "d": 0.0}
    draws.share(Routing(1, shares))
    drawn = [draws.queue() for _ in range(10_000)]
    for queue, share in shares.items():
        assert drawn.count(queue) / len(drawn) == pytest.approx(share, abs=0.02)


def test_draws_are_independent_of_each_other_and_the_same_for_the_same_seed() -> None:
    first, second = Draws(seed=3), Draws(seed=3)
    for draws in (first, second):
        draws.share(Routing(1, {"a": 0.5, "b": 0.5}))
    drawn = [first.queue() for _ in range(10_000)]
    assert drawn == [second.queue() for _ in range(10_000)]
    same = sum(one == other for one, other in pairwise(drawn))
    assert same / len(drawn) == pytest.approx(0.5, abs=0.02), "a fixed turn would never draw the same one twice"


def test_what_is_full_is_left_out_and_the_others_keep_their_ratio() -> None:
    draws = Draws(seed=2)
    draws.share(Routing(1, {"a": 0.5, "b": 0.4, "c": 0.1}))
    drawn = [draws.queue(without=("a",)) for _ in range(10_000)]
    assert drawn.count("a") == 0
    assert drawn.count("b") / len(drawn) == pytest.approx(0.8, abs=0.02)
    assert draws.queue(without=("a", "b", "c")) is None


def test_the_forwarder_holds_half_of_a_bounded_main_queue_at_most() -> None:
    bounded = QueueSystem(service_rate_per_s=1, main_capacity=30)
    assert [prefetch_for(bounded), prefetch_for(QueueSystem(service_rate_per_s=1), most=7)] == [15, 7]
    assert prefetch_for(msgspec.structs.replace(bounded, main_capacity=0)) == 1


def test_a_report_knows_how_many_events_are_through() -> None:
    flows = {"a": QueueFlow(entered=5, offered=6, refused=1, rejected=1), "b": QueueFlow(entered=3, offered=3)}
    assert ForwarderReport(at_ns=0, nowhere=2, queues=flows).settled == 11


def test_the_result_of_an_event_that_found_its_queue_full_says_so() -> None:
    event = Event(
        id=7, run="r", pipeline="payments", key="k", intended_ns=10, sent_ns=11, payload=msgspec.Raw(b"{}"), mac=""
    )
    result = rejection(SPEC, encode(event), "bank-2", 20)
    assert (result.id, result.outcome, result.queue, result.terminal) == (7, "rejected", "bank-2", True)
    assert (result.intended_ns, result.sent_ns, result.finished_ns, result.worker) == (10, 11, 20, "")
    unreadable = rejection(SPEC, b"{", "bank-2", 20)
    assert unreadable.id is None and "not an event" in unreadable.reason
