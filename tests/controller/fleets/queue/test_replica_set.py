"""A bank of queues as timelines: what is wanted, what runs, what apps and broker say, and what follows. In seconds."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller.fleets.programs import ProgramWork
from controller.fleets.queue.replica_set import QueueReplicaSet
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport
from penstock.systems import QueueSystem

SECOND = 1_000_000_000
ONE_A_SECOND = QueueSystem(service_rate_per_s=10.0, capacity=50, pool_initial=0, max_containers=10, ramp_s=1.0)


class Bank:
    """A roster in a world that does at once what it is told, unless a test holds it back."""

    def __init__(self, system: QueueSystem = ONE_A_SECOND, **fields: Any) -> None:
        self.roster = QueueReplicaSet(fleet="pay", system=msgspec.structs.replace(system, **fields))
        self.programs: dict[str, ProgramStatus] = {}
        self.waiting: dict[str, int] = {}
        self.busy: dict[str, int] = {}
        self.completed: dict[str, int] = {}
        self.containers: dict[str, int] = {}
        self.seen: list[tuple[float, str, str]] = []
        self.work = ProgramWork()
        self.settled = True
        self.apps_report = True
        self._pid = 100
        self.now_s = 0.0

    def starts(self, initial: int = 1) -> "Bank":
        """At work with the initial functions, the run begins at 0."""
        self.roster.bring_up(initial, 0)
        self.goes_on(0.0)
        self.roster.begin(0)
        self.goes_on(0.0)
        return self

    def goes_on(self, until_s: float, step_s: float = 0.1) -> "Bank":
        while True:
            self.now_s = min(until_s, self.now_s + step_s)
            for _ in range(3):  # the world answers within a step
                self._step()
            if self.now_s >= until_s:
                return self

    def _step(self) -> None:
        now_ns = round(self.now_s * SECOND)
        routing = self.roster.routing
        reports = {name: self._report(name) for name in self.programs} if self.apps_report else {}
        settled = routing.version if self.settled else 0
        waiting = dict.fromkeys(self.programs, 0) if self.roster.pulls else self.waiting
        self.roster.observe(self.programs, reports, waiting, settled, now_ns)
        self.work = self.roster.work(self.programs, now_ns)
        for name in self.work.start:
            self.runs(name)
        for name in self.work.end:
            del self.programs[name]
        for name in self.work.delete:
            self.roster.deleted(name, now_ns)
        wanted = self.roster.wanted(now_ns)
        self.containers = {name: max(count, self.busy.get(name, 0)) for name, count in wanted.items()}
        happened = self.roster.take_events()
        self.seen += [(round(event.at_ns / SECOND, 3), event.replica, event.phase) for event in happened]

    def runs(self, name: str) -> None:
        self._pid += 1
        self.programs[name] = ProgramStatus(name, self._pid, "active")

    def _report(self, name: str) -> AppReport:
        # A report is a moment younger than what it is asked for.
        at_ns = round(self.now_s * SECOND) + 1
        completed = self.completed.get(name, 0)
        return AppReport(
            name, self.containers.get(name, 0), self.busy.get(name, 0), completed, completed / 10, 0.0, at_ns
        )

    def resize(self, replicas: int, staying: Mapping[str, float] | None = None) -> None:
        if staying is not None:
            self.roster.route(staying)
        self.roster.resize(replicas, staying, round(self.now_s * SECOND))

    def life(self, name: str) -> list[tuple[float, str]]:
        return [(at_s, phase) for at_s, replica, phase in self.seen if replica == name]

    def servers(self) -> dict[str, int]:
        return {function.name: function.servers for function in self.roster.in_service()}


def test_initial_functions_are_in_service_with_one_container_until_the_run_begins() -> None:
    bank = Bank(pool_initial=2)
    bank.roster.bring_up(1, 0)
    bank.goes_on(4.0)
    assert bank.servers() == {"pay-1": 1}
    assert bank.roster.ready()
    assert bank.roster.pool == ["pay-2", "pay-3"]
    assert bank.roster.phases() == {"pay-1": "joined", "pay-2": "pooled", "pay-3": "pooled"}
    bank.roster.begin(4 * SECOND)
    bank.goes_on(6.05)
    assert bank.servers() == {"pay-1": 3}


@pytest.mark.parametrize("pool", [0, 2])
def test_nothing_is_ready_before_every_app_has_reported(pool: int) -> None:
    bank = Bank(pool_initial=pool)
    bank.apps_report = False
    bank.roster.bring_up(1, 0)
    bank.goes_on(1.0)
    assert not bank.roster.ready()
    assert bank.roster.routing.shares == {}
    bank.apps_report = True
    bank.goes_on(1.1)
    assert bank.roster.ready()
    assert bank.roster.routing.shares == {"pay-1": 1.0}


def test_containers_come_one_by_one_up_to_the_most() -> None:
    bank = Bank(max_containers=4).starts()
    seen = []
    for second in range(6):
        bank.goes_on(second + 0.05)
        seen.append(bank.servers()["pay-1"])
    assert seen == [1, 2, 3, 4, 4, 4]
    assert [at_s for at_s, phase in bank.life("pay-1.2") if phase == "requested"] == [pytest.approx(1, abs=0.11)]


def test_a_spare_queue_is_fed_at_once_and_the_pool_filled_again_one_a_run_of_the_loop() -> None:
    bank = Bank(pool_initial=2, provision_s=3.0).starts()
    bank.goes_on(1.5)
    bank.resize(2, {"pay-1": 1.0, "pay-2": 3.0})
    assert bank.roster.routing.shares == {"pay-1": 0.25, "pay-2": 0.75}
    assert bank.roster.phases()["pay-2"] == "joined"
    assert bank.roster.pool == ["pay-3"]
    bank.goes_on(2.1)
    assert bank.life("pay-4") == [(2.0, "requested")]
    assert bank.roster.counts().current == 2  # one that is made for the pool is no replica yet
    bank.goes_on(4.9)
    assert bank.roster.pool == ["pay-3"]
    bank.goes_on(5.1)
    assert bank.roster.pool == ["pay-3", "pay-4"]
    at_s, phase = bank.life("pay-4")[-1]
    assert phase == "pooled" and at_s == pytest.approx(5.0, abs=0.11)


def test_without_a_pool_a_queue_is_there_after_the_time_to_provision_it() -> None:
    bank = Bank(provision_s=2.0).starts()
    bank.goes_on(1.0)
    bank.resize(2)
    assert bank.roster.phases()["pay-2"] == "requested"
    assert bank.roster.counts().current == 2
    bank.goes_on(2.9)
    assert bank.roster.routing.shares == {"pay-1": 1.0}
    bank.goes_on(3.1)
    assert bank.roster.routing.shares == {"pay-1": 0.5, "pay-2": 0.5}
    assert [phase for _, phase in bank.life("pay-2")] == ["requested", "started", "joined"]


def test_a_queue_that_goes_is_fed_no_more_at_once_and_leaves_when_it_is_empty() -> None:
    bank = Bank().starts(2)
    bank.goes_on(3.5)
    bank.settled, bank.waiting["pay-2"], bank.busy["pay-2"] = False, 7, 4
    bank.resize(1, {"pay-1": 1.0})
    assert bank.roster.routing.shares == {"pay-1": 1.0}
    bank.waiting["pay-2"] = 0
    bank.goes_on(4.5)
    assert bank.containers["pay-2"] == 4, "something may still be on its way to it"
    bank.settled, bank.waiting["pay-2"] = True, 3
    bank.goes_on(5.5)
    assert bank.containers["pay-2"] > 4, "what waits brings containers"
    bank.waiting["pay-2"] = 0
    bank.goes_on(6.5)
    assert bank.roster.phases()["pay-2"] == "draining", "it has events in hand"
    bank.busy["pay-2"] = 0
    bank.goes_on(7.5)
    at_s, phase = bank.life("pay-2")[-1]
    assert phase == "pooled" and at_s == pytest.approx(6.6, abs=0.11)
    assert bank.roster.pool == ["pay-2"]
    assert "pay-2" in bank.programs and bank.containers["pay-2"] == 0


def test_what_a_dying_container_had_in_hand_is_served_before_its_queue_leaves() -> None:
    bank = Bank(when_removed="destroy").starts(2)
    bank.goes_on(1.5)
    bank.waiting["pay-2"], bank.busy["pay-2"] = 0, 1
    bank.resize(1, {"pay-1": 1.0})
    bank.goes_on(2.0)
    bank.runs("pay-2")  # its process was killed and started again: the event waits again
    bank.waiting["pay-2"], bank.busy["pay-2"] = 1, 0
    bank.goes_on(2.5)
    assert bank.roster.phases()["pay-2"] == "draining"
    assert bank.containers["pay-2"] > 0
    bank.waiting["pay-2"] = 0
    bank.goes_on(3.0)
    assert bank.life("pay-2")[-1][1] == "gone"
    assert "pay-2" not in bank.programs and "pay-2" not in bank.roster.replicas


def test_a_queue_found_full_when_it_was_to_be_deleted_is_served_again() -> None:
    bank = Bank(when_removed="destroy").starts(2)
    bank.waiting["pay-2"] = 0
    bank.resize(1, {"pay-1": 1.0})
    bank.roster.replicas["pay-2"].app.ending = True
    bank.roster.serve_again("pay-2", SECOND)
    bank.waiting["pay-2"] = 5
    bank.goes_on(2.0)
    assert bank.containers["pay-2"] > 0
    bank.waiting["pay-2"] = 0
    bank.goes_on(3.0)
    assert "pay-2" not in bank.roster.replicas


def test_of_queues_that_are_too_many_those_go_that_the_routing_does_not_name_then_the_youngest() -> None:
    bank = Bank().starts(3)
    bank.goes_on(1.0)
    bank.waiting = {"pay-1": 1, "pay-3": 1}
    bank.resize(2, {"pay-2": 0.5, "pay-3": 0.5})
    assert bank.roster.phases() == {"pay-1": "draining", "pay-2": "joined", "pay-3": "joined"}
    bank.resize(1)
    assert bank.roster.phases()["pay-3"] == "draining"


def test_a_queue_that_comes_back_from_the_pool_begins_with_one_container() -> None:
    bank = Bank().starts(2)
    bank.goes_on(3.5)
    bank.waiting["pay-2"] = 0
    bank.resize(1, {"pay-1": 1.0})
    bank.goes_on(4.5)
    bank.resize(2)
    bank.goes_on(4.6)
    assert bank.servers() == {"pay-1": 5, "pay-2": 1}
    bank.completed["pay-2"] = 1
    bank.goes_on(4.7)
    assert bank.life("pay-2")[-1] == (4.7, "first-event")


def test_a_message_that_comes_back_to_a_pooled_queue_is_served() -> None:
    bank = Bank(first_container_s=0.0).starts(2)
    bank.goes_on(3.5)
    bank.waiting["pay-2"] = 0
    bank.resize(1, {"pay-1": 1.0})
    bank.goes_on(4.5)
    assert bank.life("pay-2")[-1][1] == "pooled"
    bank.waiting["pay-2"] = 1  # it was on its way to a container that has left
    bank.goes_on(4.6)
    assert (bank.servers()["pay-2"], bank.life("pay-2")[-1][1]) == (1, "draining")
    bank.waiting["pay-2"] = 0
    bank.goes_on(5.5)
    assert bank.life("pay-2")[-1][1] == "pooled"


def test_the_bound_of_a_queue_is_its_capacity_less_its_containers() -> None:
    bank = Bank(capacity=12, max_containers=10, pool_initial=1).starts()
    bank.goes_on(4.05)
    assert bank.roster.bounds() == {"pay-1": 7, "pay-2": 12}
    bank.goes_on(20.0)
    assert bank.roster.bounds()["pay-1"] == 2


def test_functions_that_pull_have_neither_bounds_nor_routing_and_go_when_they_have_nothing_in_hand() -> None:
    bank = Bank(forwarding="pull", capacity=None, when_removed="destroy").starts(2)
    bank.goes_on(2.5)
    bank.settled, bank.busy["pay-2"] = False, 1
    assert bank.roster.bounds() == {} and bank.roster.routing.version == 0
    bank.resize(1)
    bank.goes_on(3.5)
    assert bank.containers["pay-2"] == 1
    bank.busy["pay-2"] = 0
    bank.goes_on(4.5)
    assert [phase for _, phase in bank.life("pay-2")] == ["requested", "started", "joined", "draining", "gone"]


def test_replicas_that_are_containers_join_after_their_start_up_and_the_provider_adds_none() -> None:
    bank = Bank(scaled="containers", capacity=None, first_container_s=2.0).starts(2)
    assert bank.roster.phases() == {"pay-1": "joined", "pay-2": "joined"}
    assert bank.roster.routing.shares == {"pay": 1.0}
    bank.goes_on(5.0)
    assert bank.roster.counts().joined == 2
    bank.resize(4)
    bank.goes_on(6.5)
    assert bank.roster.counts().requested == 2
    bank.goes_on(7.2)
    assert bank.roster.counts().joined == 4
    bank.resize(1)
    bank.goes_on(8.0)
    assert list(bank.roster.phases()) == ["pay-1"]
    assert [phase for _, phase in bank.life("pay-4")] == ["requested", "started", "joined", "draining", "gone"]


def test_a_killed_app_is_counted_on_and_its_containers_come_back() -> None:
    bank = Bank().starts()
    bank.completed["pay-1"] = 40
    bank.goes_on(3.5)
    assert bank.roster.total().completed == 40
    bank.apps_report = False
    bank.runs("pay-1")
    bank.goes_on(3.6)
    assert bank.roster.replicas["pay-1"].servers == 0
    bank.apps_report, bank.completed["pay-1"] = True, 2
    bank.goes_on(3.8)
    assert bank.roster.total().completed == 42
    assert bank.roster.total().service_rate_per_s == pytest.approx(10)
    assert bank.servers() == {"pay-1": 4}
    assert [phase for _, phase in bank.life("pay-1.1")][-4:] == ["gone", "requested", "started", "joined"]
    assert bank.roster.phases() == {"pay-1": "joined"}, "the queue itself was never away"


def test_a_program_that_was_given_up_is_ended_after_a_while_and_started_anew() -> None:
    bank = Bank().starts()
    bank.programs["pay-1"] = ProgramStatus("pay-1", None, "failed")
    bank.goes_on(4.9)
    assert bank.programs["pay-1"].pid is None
    bank.goes_on(5.5)
    assert bank.programs["pay-1"].pid is not None


def test_a_roster_that_was_written_down_goes_on() -> None:
    bank = Bank(pool_initial=1).starts(2)
    bank.completed = {"pay-1": 30, "pay-2": 10}
    bank.goes_on(2.5)
    bank.waiting["pay-2"] = 3
    bank.resize(1, {"pay-1": 1.0})
    bank.goes_on(3.0)
    bank.roster = bank.roster.copy()
    assert bank.roster.bounds() == {}, "it waits for word of containers before it changes a bound"
    bank.roster.bring_up(5, 3 * SECOND)
    bank.goes_on(3.2)
    assert bank.roster.total().completed == 40
    assert bank.roster.phases() == {"pay-1": "joined", "pay-2": "draining", "pay-3": "pooled"}
    assert not [phase for at_s, _, phase in bank.seen if at_s > 3.0 and phase in ("gone", "requested")]
    bank.waiting["pay-2"] = 0
    bank.goes_on(4.0)
    assert bank.roster.pool == ["pay-3", "pay-2"]


def test_an_app_that_nobody_remembers_is_emptied_and_goes() -> None:
    bank = Bank(when_removed="destroy").starts()
    bank.waiting["pay-7"] = 2
    bank.runs("pay-7")
    bank.goes_on(1.0)
    assert bank.roster.phases()["pay-7"] == "draining"
    assert bank.containers["pay-7"] > 0
    assert bank.roster.routing.shares == {"pay-1": 1.0}
    bank.waiting["pay-7"] = 0
    bank.goes_on(2.0)
    assert "pay-7" not in bank.programs
    bank.resize(2)
    assert "pay-8" in bank.roster.replicas, "its name is not used again"
