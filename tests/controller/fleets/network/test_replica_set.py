"""The consumers of a network as timelines. Times are in seconds."""

import msgspec

from controller.fleets.network.replica_set import NetworkReplicaSet
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport, JobFlow

SECOND = 1_000_000_000


class Network:
    """A replica set of two topics with apps that do at once what they are told."""

    def __init__(self, start_up_s: float = 0.0) -> None:
        self.replicas = NetworkReplicaSet(start_up_s=start_up_s)
        self.programs: dict[str, ProgramStatus] = {}
        self.completed = 0
        self.seen: list[tuple[str, str, str]] = []
        self.replicas.bring_up(("A", "D"), 1, 0)

    def look(self, at_s: float) -> None:
        now_ns = round(at_s * SECOND)
        for name in self.replicas.work(self.programs, now_ns).start:
            self.programs[name] = ProgramStatus(name, 100 + len(self.programs), "active")
        wanted = self.replicas.wanted(now_ns)
        flows = {"1": JobFlow(finished=self.completed)}
        reports = {
            name: AppReport(name, wanted[name], 0, self.completed, 1.0, 1.0, now_ns + 1, jobs=flows)
            for name in self.programs
        }
        self.replicas.observe(self.programs, reports, now_ns)
        self.seen += [(event.fleet, event.replica, event.phase) for event in self.replicas.take_events()]


def test_every_topic_begins_with_its_initial_consumers() -> None:
    network = Network()
    assert not network.replicas.ready()
    network.look(0)
    network.look(0.1)
    assert network.replicas.ready()
    assert network.replicas.phases() == {"A-1": "joined", "D-1": "joined"}
    network.replicas.bring_up(("A", "D"), 5, SECOND)
    assert network.replicas.sizes() == {"A": 1, "D": 1}


def test_all_topics_are_set_at_once_and_a_consumer_joins_after_its_start_up() -> None:
    network = Network(start_up_s=2.0)
    network.look(0.1)
    network.replicas.resize({"A": 3, "D": 0}, SECOND)
    network.look(2.9)
    assert network.replicas.counts()["A"].requested == 2 and network.replicas.counts()["A"].joined == 1
    assert network.replicas.counts()["D"].current == 0
    network.look(3.1)
    network.look(3.2)
    assert network.replicas.phases() == {"A-1": "joined", "A-2": "joined", "A-3": "joined"}
    assert ("D", "D-1", "gone") in network.seen


def test_start_ups_are_measured_of_consumers_that_were_requested_from_a_running_app() -> None:
    network = Network(start_up_s=2.0)
    network.look(0.5)
    network.look(0.6)
    assert network.replicas.topics["A"].containers.start_ups_s() == ()  # the first one waited for its app
    network.replicas.resize({"A": 3}, SECOND)
    for tenth in range(10, 40):
        network.look(tenth / 10)
    assert network.replicas.topics["A"].containers.start_ups_s() == (2.0, 2.0)
    assert network.replicas.topics["D"].containers.start_ups_s() == ()
    assert network.replicas.copy().topics["A"].containers.start_ups_s() == (2.0, 2.0)


def test_what_an_app_did_before_it_was_killed_still_counts() -> None:
    network = Network()
    network.look(0.1)
    network.completed = 7
    network.look(1)
    network.programs["A"] = ProgramStatus("A", 999, "active")
    network.completed = 2
    network.look(2)
    network.look(2.1)
    total = network.replicas.topics["A"].total
    assert (total.completed, total.jobs["1"].finished, total.containers) == (9, 9, 1)
    assert [phase for _, replica, phase in network.seen if replica == "A-1"][-4:] == [
        "gone", "requested", "started", "joined",
    ]  # fmt: skip


def test_a_replica_set_that_was_written_down_continues() -> None:
    network = Network()
    network.look(0.1)
    network.replicas.resize({"A": 2}, SECOND)
    network.replicas = network.replicas.copy()
    assert msgspec.json.decode(msgspec.json.encode(network.replicas), type=NetworkReplicaSet) == network.replicas
    network.look(1.1)
    network.look(1.2)
    assert network.replicas.phases() == {"A-1": "joined", "A-2": "joined", "D-1": "joined"}


def test_in_the_end_every_app_is_ended() -> None:
    network = Network()
    network.look(0.1)
    network.replicas.end_all(SECOND)
    assert network.replicas.work(network.programs, SECOND).end == ("A", "D")
    network.programs.clear()
    network.replicas.observe({}, {}, 2 * SECOND)
    assert network.replicas.phases() == {}
