"""The way of requests through a pipeline, with calls, outcomes and Results held in the test's hand."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from functions.dataflow.calls import Answer
from functions.dataflow.flow import Flow, Patience
from functions.dataflow.graph import Pipeline
from functions.dataflow.request import Delivery, Request
from penstock.function_messages import FunctionCounts, PipelineSnapshot
from penstock.records import Event, Outcome, Result, encode
from penstock.signing import Signer
from penstock.systems import FunctionSpec, FunctionSystem
from tests.support.eventually import PATIENCE_S

RUN = "r"
SIGNER = Signer(b"key", RUN)
SECOND = 1_000_000_000

CHAIN = (FunctionSpec(name="one", service_time_s=0.2), FunctionSpec(name="two", service_time_s=0.1, after=("one",)))
DIAMOND = (
    FunctionSpec(name="split", service_time_s=0.1),
    FunctionSpec(name="short", service_time_s=0.1, after=("split",)),
    FunctionSpec(name="long", service_time_s=0.3, after=("split",)),
    FunctionSpec(name="merge", service_time_s=0.1, after=("short", "long")),
)
QUICK = Patience(attempts=3, backoff_s=0.001, most_backoff_s=0.002, rest_s=0.01)


def event(
    number: int, payload: bytes = b'{"n": 1}', *, age_s: float = 0.0, run: str = RUN, mac: str | None = None
) -> Event:
    intended_ns = time.time_ns() - round(age_s * SECOND)
    return Event(
        id=number,
        run=run,
        pipeline="p",
        key="k",
        intended_ns=intended_ns,
        sent_ns=intended_ns,
        payload=msgspec.Raw(payload),
        mac=SIGNER.sign(number, payload) if mac is None else mac,
    )


class Record(Delivery):
    """A delivery that remembers how it was acknowledged."""

    def __init__(self, value: bytes, fresh: bool = True) -> None:
        self.acknowledged: list[Result] = []
        super().__init__(value, self.acknowledged.append, fresh=fresh)


class World:
    """Functions answer when the test says so; outcomes are written down at once, unless ``redis`` is away."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, bytes]] = []
        self.pending: list[tuple[str, int, asyncio.Future[Answer]]] = []
        self.answers: dict[str, Callable[[int], Answer]] = {}
        self.published: list[Result] = []
        self.unsettled: list[Request] = []
        self.outcomes: dict[int, tuple[Outcome, int]] = {}
        self.redis = True
        self.flow: Flow

    def call(self, function: str, body: bytes, event: int, deadline_ns: int) -> Awaitable[Answer]:
        self.calls.append((function, event, body))
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if function in self.answers:
            future.set_result(self.answers[function](event))
        else:
            self.pending.append((function, event, future))
        return future

    def settle(self, request: Request) -> None:
        if not self.redis:
            self.unsettled.append(request)
            return
        assert request.final is not None
        outcome, times = self.outcomes.get(request.event.id, (request.final.outcome, 0))
        self.outcomes[request.event.id] = outcome, times + 1
        self.flow.settled(request, times + 1, outcome)

    def publish(self, result: Result, out: Callable[[], None]) -> None:
        self.published.append(result)
        asyncio.get_running_loop().call_soon(out)

    async def answer(self, function: str, with_: Answer | None = None, number: int | None = None) -> None:
        """The oldest call of a function (of request ``number``) gets its answer."""
        index = next(i for i, (f, n, _) in enumerate(self.pending) if f == function and number in (None, n))
        name, called, future = self.pending.pop(index)
        future.set_result(with_ or done(f'"{name} {called}"'))
        await settle_down()

    def open(self) -> list[tuple[str, int]]:
        return [(function, number) for function, number, _ in self.pending]


def done(body: str = "1", **more: Any) -> Answer:
    return Answer("done", body.encode(), **more)


async def settle_down() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def flow_of(functions: tuple[FunctionSpec, ...], world: World, **options: Any) -> Flow:
    pipeline = Pipeline.of_system("p", FunctionSystem(functions=functions, deadline_s=1.0))
    ports: dict[str, Any] = {"call": world.call, "settle": world.settle, "publish": world.publish}
    world.flow = Flow(pipeline, SIGNER, label="fleet", **ports, **{"patience": QUICK, **options})
    return world.flow


def counts(flow: Flow, name: str) -> FunctionCounts:
    return next(each for each in snapshot(flow).functions if each.name == name)


def snapshot(flow: Flow) -> PipelineSnapshot:
    return flow.snapshot(1, time.time_ns(), {})


# --- through ---------------------------------------------------------------------------------------------------------


def test_a_request_goes_from_function_to_function_and_is_acknowledged_at_the_end() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world)
        record = Record(encode(event(7)))
        flow.receive([record])
        await settle_down()
        await world.answer("one", done('{"from": "one"}', replica="one-3", busy_ns=150_000_000))
        assert world.calls == [("one", 7, b'{"n": 1}'), ("two", 7, b'{"from": "one"}')]
        assert not record.acknowledged
        await world.answer("two")
        assert [(r.stage, r.terminal, r.outcome, r.worker) for r in world.published] == [
            ("one", False, "completed", "one-3"),
            ("two", True, "completed", "two"),
        ]
        assert record.acknowledged == [world.published[-1]]
        assert (flow.arrived, flow.finished, flow.missed, flow.inside) == (1, 1, 0, 0)
        assert counts(flow, "one").busy_s == pytest.approx(0.15)
        assert counts(flow, "one").completed == counts(flow, "two").arrived == 1

    asyncio.run(scene())


def test_a_branch_goes_to_every_successor_and_a_merge_waits_for_all_of_them() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(DIAMOND, world)
        flow.receive([Record(encode(event(1)))])
        await settle_down()
        await world.answer("split")
        assert world.open() == [("short", 1), ("long", 1)]
        await world.answer("short")
        assert world.open() == [("long", 1)]
        await world.answer("long")
        assert world.open() == [("merge", 1)]
        assert msgspec.json.decode(world.calls[-1][2]) == {"short": "short 1", "long": "long 1"}
        await world.answer("merge")
        assert [r.terminal for r in world.published] == [False, False, False, True]
        assert flow.inside == 0

    asyncio.run(scene())


def test_no_more_calls_are_under_way_than_there_are_connections_and_order_is_kept() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, connections=2)
        flow.receive([Record(encode(event(number))) for number in range(5)])
        await settle_down()
        assert world.open() == [("one", 0), ("one", 1)]
        assert (counts(flow, "one").waiting, counts(flow, "one").in_flight) == (3, 2)
        flow.connect({"one": 3})
        await settle_down()
        assert world.open() == [("one", 0), ("one", 1), ("one", 2)]
        flow.connect({"one": 0})
        await world.answer("one")
        await world.answer("one")
        await world.answer("one")
        assert [each for each in world.open() if each[0] == "one"] == [("one", 3)]  # one at least

    asyncio.run(scene())


# --- laxity ----------------------------------------------------------------------------------------------------------


def test_laxity_is_of_requests_taken_up_in_the_epoch_and_of_those_that_wait_now() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, connections=1, epoch_s=0.3)
        flow.receive([Record(encode(event(0))), Record(encode(event(1, age_s=0.5)))])
        await settle_down()
        # Deadline 1 s, 0.3 s of processing ahead: 0.7 s for the fresh one, 0.2 s for the one that is half a second old.
        assert counts(flow, "one").laxity_s == pytest.approx((0.7, 0.2), abs=0.1)
        await world.answer("one")
        assert counts(flow, "two").laxity_s == pytest.approx((0.9,), abs=0.1)  # 0.1 s of processing left
        await asyncio.sleep(0.35)
        assert counts(flow, "two").laxity_s == ()
        assert counts(flow, "one").laxity_s == ()

    asyncio.run(scene())


def test_a_request_that_was_refused_gives_the_sample_of_one_that_waits() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, patience=Patience(rest_s=30))
        flow.receive([Record(encode(event(0)))])
        await settle_down()
        await world.answer("one", Answer("refused", reason="status 429"))
        assert len(counts(flow, "one").laxity_s) == 1
        assert (counts(flow, "one").waiting, counts(flow, "one").in_flight, counts(flow, "one").refused) == (1, 0, 1)

    asyncio.run(scene())


# --- refusals and failures -------------------------------------------------------------------------------------------


def test_a_refused_request_stays_at_the_head_and_its_connection_rests() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, connections=1)
        flow.receive([Record(encode(event(number))) for number in range(2)])
        await settle_down()
        await world.answer("one", Answer("refused", reason="status 429"))
        assert world.open() == []
        await asyncio.sleep(0.02)
        assert world.open() == [("one", 0)]
        # Nobody there (503): it may be this request alone that cannot be served now, so others go first.
        await world.answer("one", Answer("refused", reason="status 503"))
        await asyncio.sleep(0.02)
        assert world.open() == [("one", 1)]
        assert counts(flow, "one").failed == 0

    asyncio.run(scene())


def test_why_calls_are_refused_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, connections=1)
        flow.receive([Record(encode(event(0)))])
        await settle_down()
        for reason in ("status 429: busy", "status 503: there is no Redis", "status 503: there is no Redis"):
            await world.answer("one", Answer("refused", reason=reason))
            await asyncio.sleep(0.02)
        assert counts(flow, "one").refused == 3

    asyncio.run(scene())
    told = [record.getMessage() for record in caplog.records]
    assert told == ["one: calls are refused, and wait: status 503: there is no Redis"]


def test_a_failed_call_is_tried_again_and_the_result_tells_the_attempt() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN[:1], world)
        flow.receive([Record(encode(event(0)))])
        await settle_down()
        await world.answer("one", Answer("failed", reason="status 500"))
        assert counts(flow, "one").waiting == 1  # put aside, not forgotten
        await asyncio.sleep(0.01)
        await world.answer("one")
        assert [(r.attempt, r.outcome) for r in world.published] == [(2, "completed")]
        assert counts(flow, "one").failed == 1

    asyncio.run(scene())


def test_after_the_last_attempt_a_request_is_a_dead_letter_once_and_the_others_go_on() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, connections=2)
        world.answers["two"] = lambda number: Answer("failed", reason="status 500: boom") if number == 0 else done()
        world.answers["one"] = lambda number: done()
        records = [Record(encode(event(number))) for number in range(3)]
        flow.receive(records)
        async with asyncio.timeout(60):
            while flow.finished < len(records):
                await asyncio.sleep(0.001)
        await settle_down()
        finals = {r.id: r for r in world.published if r.terminal}
        assert {number: r.outcome for number, r in finals.items()} == {
            0: "dead-lettered",
            1: "completed",
            2: "completed",
        }
        assert finals[0].reason == "two: status 500: boom (attempt 3 of 3)" and finals[0].attempt == 3
        assert [len(record.acknowledged) for record in records] == [1, 1, 1]
        assert (flow.finished, flow.missed, flow.inside) == (3, 1, 0)

    asyncio.run(scene())


def test_what_a_function_calls_impossible_is_not_tried_again() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world)
        world.answers["one"] = lambda number: Answer("impossible", reason="status 400: no JSON")
        flow.receive([Record(encode(event(0)))])
        await settle_down()
        assert [(r.outcome, r.reason, r.attempt) for r in world.published] == [
            ("failed", "one: status 400: no JSON", 1)
        ]
        assert len(world.calls) == 1 and flow.missed == 0

    asyncio.run(scene())


def test_a_branch_that_gives_up_takes_what_waits_of_the_others_with_it_and_ends_once_they_have() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(DIAMOND, world)
        record = Record(encode(event(5)))
        flow.receive([record])
        await settle_down()
        await world.answer("split")
        await world.answer("short", Answer("impossible", reason="status 400"))
        assert not record.acknowledged  # the other branch is in a call
        await world.answer("long", Answer("failed", reason="status 500"))
        await asyncio.sleep(0.01)
        assert world.open() == []  # and is not tried again
        assert [(r.stage, r.outcome) for r in world.published if r.terminal] == [("short", "failed")]
        assert len(record.acknowledged) == 1 and flow.inside == 0

    asyncio.run(scene())


def test_a_merge_that_never_happens_leaves_nothing_behind() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(DIAMOND, world)
        flow.receive([Record(encode(event(5)))])
        await settle_down()
        await world.answer("split")
        await world.answer("long")
        await world.answer("short", Answer("impossible", reason="status 400"))
        assert flow.inside == 0
        assert [each.in_flight + each.waiting for each in snapshot(flow).functions] == [0, 0, 0, 0]

    asyncio.run(scene())


# --- what comes in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number", "reason"),
    [
        (b'{"id": 3, "run":', None, "unreadable"),
        (b"\xff\xfe", None, "unreadable"),
        (encode(event(3, run="another")), None, "belongs to run 'another'"),
        (encode(event(3, mac="00")), 3, "bad signature"),
    ],
)
def test_a_record_that_cannot_be_taken_fails_is_counted_and_acknowledged(
    value: bytes, number: int | None, reason: str
) -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world)
        record, good = Record(value), Record(encode(event(3)))
        flow.receive([record, good])
        await settle_down()
        (result,) = world.published
        assert result.outcome == "failed" and result.terminal and reason in result.reason
        assert result.id == number
        assert record.acknowledged == [result]
        assert (flow.arrived, snapshot(flow).finished) == (2, 1)
        # Whoever cannot sign has no say in what becomes of the true request.
        await world.answer("one")
        await world.answer("two")
        assert good.acknowledged[0].outcome == "completed"

    asyncio.run(scene())


def test_a_request_that_is_delivered_twice_goes_through_once_and_both_are_acknowledged() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN[:1], world)
        first, second = Record(encode(event(0))), Record(encode(event(0)), fresh=False)
        flow.receive([first])
        flow.receive([second])
        await settle_down()
        await world.answer("one")
        assert len(world.calls) == 1 and flow.arrived == 1
        assert len(first.acknowledged) == len(second.acknowledged) == 1

    asyncio.run(scene())


def test_a_redelivery_that_is_known_already_publishes_the_first_outcome_and_counts_once() -> None:
    async def scene() -> None:
        world = World()
        world.outcomes[0] = ("dead-lettered", 1)
        flow = flow_of(CHAIN[:1], world, finished=1, missed=1)
        record = Record(encode(event(0)), fresh=False)
        flow.receive([record])
        await settle_down()
        await world.answer("one")
        (result,) = world.published
        assert (result.outcome, result.attempt, result.reason) == ("dead-lettered", 2, "was dead-lettered before")
        assert (flow.arrived, flow.finished, flow.missed) == (0, 1, 1)

    asyncio.run(scene())


def test_while_outcomes_cannot_be_written_down_nothing_is_acknowledged_and_functions_go_on() -> None:
    async def scene() -> None:
        world = World()
        world.redis = False
        flow = flow_of(CHAIN, world, connections=1)
        world.answers["one"] = world.answers["two"] = lambda number: done()
        records = [Record(encode(event(number))) for number in range(4)]
        flow.receive(records)
        async with asyncio.timeout(PATIENCE_S):
            while len(world.unsettled) < 4:
                await asyncio.sleep(0.001)
        assert flow.inside == 4
        assert not any(record.acknowledged for record in records)
        assert not any(result.terminal for result in world.published)
        world.redis = True
        for request in world.unsettled:
            world.settle(request)
        await settle_down()
        assert all(len(record.acknowledged) == 1 for record in records) and flow.inside == 0

    asyncio.run(scene())


def test_a_late_request_is_finished_and_counts_as_a_miss() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN[:1], world)
        world.answers["one"] = lambda number: done()
        flow.receive([Record(encode(event(0, age_s=2.0))), Record(encode(event(1)))])
        await asyncio.sleep(0.01)
        assert (flow.finished, flow.missed) == (2, 1)
        assert {r.outcome for r in world.published} == {"completed"}

    asyncio.run(scene())


def test_a_successor_goes_on_from_what_was_counted() -> None:
    async def scene() -> None:
        before = PipelineSnapshot(
            epoch=9, at_ns=1, arrived=10, finished=6, missed=2, unreadable=1,
            functions=(FunctionCounts(name="two", arrived=8, completed=7, busy_s=1.5, refused=3, failed=4),),
        )  # fmt: skip
        world = World()
        flow = flow_of(CHAIN, world, before=before, finished=5, missed=2)
        flow.receive([Record(encode(event(8)), fresh=False), Record(encode(event(9)), fresh=False)])
        flow.receive([Record(encode(event(10)))])
        seen = snapshot(flow)
        assert (seen.arrived, seen.finished, seen.missed, seen.unreadable) == (11, 6, 2, 1)
        two = counts(flow, "two")
        assert (two.arrived, two.completed, two.busy_s, two.refused, two.failed) == (8, 7, 1.5, 3, 4)

    asyncio.run(scene())


def test_a_pause_ends_the_calls_under_way_and_begins_no_others() -> None:
    async def scene() -> None:
        world = World()
        flow = flow_of(CHAIN, world, connections=1)
        flow.receive([Record(encode(event(number))) for number in range(2)])
        await settle_down()
        pausing = asyncio.ensure_future(flow.pause(5.0))
        await settle_down()
        await world.answer("one")
        await asyncio.wait_for(pausing, 5)
        assert world.open() == [] and flow.inside == 2
        assert counts(flow, "two").waiting == 1 and counts(flow, "one").waiting == 1

    asyncio.run(scene())
