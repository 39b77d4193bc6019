"""The broker and the function apps of a simulated queue fleet, under the replica set of the live one.

``controller.fleets.queue.replica_set`` decides: which functions exist, how many containers each has, who is fed. Here
its steps take place at exact virtual times: an app runs once it is provisioned, has its containers when they are due,
and a queue is empty when ``simulator.queue_kernel``, which serves the events in between, says so.
"""

from collections.abc import Mapping
from functools import partial
from math import ceil, isfinite
from typing import Literal

import numpy as np

from controller.fleets.queue.container_ramp import check_system, next_step_s
from controller.fleets.queue.replica_set import QueueReplica, QueueReplicaSet
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Accepted, Decision, Phase, ReplicaEvent
from penstock.distributions import QUEUE_ROUTING, QUEUE_SERVICE, draw_s, stream
from penstock.measured import RESTART_S
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem
from simulator.clock import EventQueue, nanos
from simulator.engine import FaultInjection, Floats, simulates
from simulator.queue_kernel import (
    BROKER_BACK_S,
    BUSY,
    FED,
    FORWARDER_BACK_S,
    MAIN,
    NONE,
    STORE_BACK_S,
    THAWED_S,
    UNBOUNDED,
    flush,
    free,
    grown,
    new_state,
    run,
)


def draw(system: QueueSystem, events: int, seed: int) -> tuple[Floats, Floats]:
    """(service times, picks): where the routing sends an event is uniform on [0, 1). Shape (events,) each.

    One number for each event, drawn before the run: an event takes as long, and is routed by the same number, whatever
    a scaler decides.
    """
    mean_s = 1 / system.service_rate_per_s
    service_s = draw_s(system.service_law, mean_s, system.service_scv, events, stream(seed, QUEUE_SERVICE, 0))
    return service_s, stream(seed, QUEUE_ROUTING, 0).random(events)


class SimulatedQueueFleet(FaultInjection):
    """Queues and containers of a run in virtual time. In the kernel's arrays the index of a queue is its number in
    ``queues``, that of a container its place in ``workers``; a container that is started again gets another one.
    """

    def __init__(self, spec: RunSpec, schedule: Schedule) -> None:
        if not isinstance(spec.system, QueueSystem):
            raise TypeError(f"a queue fleet needs a QueueSystem, not {type(spec.system).__name__}")
        check_system(spec.system)
        self.spec = spec
        self.system = system = spec.system
        self._now_s = 0.0
        self.state = new_state(
            schedule.intended_offset_ns / 1e9,
            *draw(system, len(schedule), spec.seed),
            UNBOUNDED if system.main_capacity is None else system.main_capacity,
        )
        self.replica_set = QueueReplicaSet(fleet=spec.fleet, system=system)
        self.shares: dict[str, float] = {}
        self._shares_may_differ = True
        self.queues: dict[str, int] = {}
        self.workers: list[str] = []
        self._hold = system.when_full == "hold"
        self._pull = system.forwarding == "pull"
        self._event_queue = EventQueue()
        self._due_ns: dict[str, int] = {}
        self._will_fill_pool = False
        self._events: list[ReplicaEvent] = []
        self._numbers: dict[str, int] = {}
        self._running: set[int] = set()
        self._retiring: list[int] = []
        self._emptying: list[str] = []
        self._unused: dict[tuple[Literal["queue", "container"], int], ReplicaEvent] = {}
        if self.replica_set.scales_containers:
            self._add_queue(spec.fleet)
        self.replica_set.begin(0)
        self.replica_set.bring_up(spec.initial_replicas, 0)
        self._settle(*self.replica_set.replicas)

    @property
    def now_s(self) -> float:
        """The engine's time."""
        return self._now_s

    # --- time and decisions -------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Simulate up to ``until_s``. At one instant services end first, then containers and queues come, then events
        arrive.
        """
        if until_s < self.now_s:
            return
        while (at_s := self._event_queue.next_s) <= until_s:
            self._run(at_s, inclusive=False)
            self._event_queue.pop()()
        self._run(until_s, inclusive=True)

    def apply(self, decision: Decision) -> Accepted:
        """As in a live run: the replica set decides what follows."""
        self._note_first_events()
        accepted = self.replica_set.apply(decision, self.spec.max_replicas, nanos(self.now_s))
        self._shares_may_differ = True
        self._settle()
        return accepted

    def events(self) -> list[ReplicaEvent]:
        """Events of replicas and containers since the last call, in order of time."""
        events, self._events = self._events, []
        return sorted(events, key=lambda event: event.at_ns)

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        return self.replica_set.phases()

    def broker_is_away(self) -> bool:
        """Whether the broker is stopped now."""
        return self.now_s < float(self.state.until_s[BROKER_BACK_S])

    # --- what the replica set observes --------------------------------------------------------------------------------

    def _settle(self, *functions: str) -> None:
        """Carry out the replica set's decisions; let it observe the functions concerned, and ``functions``, one by one,
        until nothing follows.
        """
        concerned = [*self._carry_out(), *functions]
        while concerned:
            self._observe(concerned.pop(0))
            concerned = self._carry_out() + concerned
            self._feed()
        self._feed()
        if not self._will_fill_pool and self.replica_set.lacks_spares:
            self._will_fill_pool = True
            run_ns = self.replica_set.next_run_ns(nanos(self.now_s))
            self._event_queue.at(run_ns / NANOS_PER_SECOND, self._fill_pool)

    def _fill_pool(self) -> None:
        self._will_fill_pool = False
        self.replica_set.fill_pool(nanos(self.now_s))
        self._settle()

    def _observe(self, name: str, empty_s: float | None = None) -> None:
        """Show the replica set a function's program, the app's report and the depth of its queue: as they are now, or
        as they were at ``empty_s``, when the queue was drained.
        """
        function = self.replica_set.replicas.get(name)
        if function is None:
            return
        now_ns = nanos(self.now_s if empty_s is None else empty_s)
        if now_ns >= function.ready_ns:
            draining, number = function.phase == "draining", self.queues[name]
            waiting = int(self.state.queues["waiting"][number])
            empty = empty_s is not None or (draining and waiting + int(self.state.queues["in_service"][number]) == 0)
            self.replica_set.observe_function(
                function,
                ProgramStatus(name, 1, "active"),
                AppReport(name, 0 if empty else _containers(function, now_ns), 0, 0, 0.0, 0.0, now_ns + 1),
                # The depth is known while messages are ready, and when the last one was acknowledged.
                waiting if waiting or empty else None,
                self.replica_set.routing.version,
                now_ns,
            )
            if function.app.ending:
                self.replica_set.deleted(name, now_ns)
        self._await(function)

    def _await(self, function: QueueReplica) -> None:
        """Enter when time alone changes a function next: it is provisioned, or containers are due."""
        now_ns = nanos(self.now_s)
        due_ns = [each.due_ns for each in function.app.containers.replicas.values() if each.phase == "requested"]
        if function.phase == "requested":
            due_ns.append(function.ready_ns)
        elif function.since_ns is not None and not self.replica_set.scales_containers:
            step_s = next_step_s(self.system, (now_ns - function.since_ns) / NANOS_PER_SECOND)
            if step_s is not None:
                due_ns.append(function.since_ns + ceil(round(step_s * NANOS_PER_SECOND, 3)))
        next_ns = min((each for each in due_ns if each > now_ns), default=None)
        if next_ns is not None and self._due_ns.get(function.name) != next_ns:
            self._due_ns[function.name] = next_ns
            self._event_queue.at(next_ns / NANOS_PER_SECOND, partial(self._due, function.name, next_ns))

    def _due(self, name: str, due_ns: int) -> None:
        if self._due_ns.get(name) == due_ns:
            self._settle(name)

    # --- what the replica set decides ---------------------------------------------------------------------------------

    def _carry_out(self) -> list[str]:
        """Change queues and containers by the replica set's new events; returns the functions concerned."""
        concerned: dict[str, None] = {}
        for event in self.replica_set.take_events():
            self._events.append(event)
            if event.fleet == self.spec.fleet and not self.replica_set.scales_containers:
                self._shares_may_differ = True
                self._change_queue(event)
                concerned[event.replica] = None
            else:
                self._change_container(event)
                if event.phase in ("requested", "draining", "gone"):
                    concerned[event.fleet] = None
        return list(concerned)

    def _add_queue(self, name: str) -> None:
        number = self.queues[name] = len(self.queues) + 1
        if len(self.state.queues) <= number:
            self.state = grown(self.state, queues=2 * number)
        bound = self.system.capacity
        self.state.queues["capacity"][number] = UNBOUNDED if bound is None else bound

    def _change_queue(self, event: ReplicaEvent) -> None:
        name = event.replica
        if event.phase == "requested":
            self._add_queue(name)
        number, records = self.queues[name], self.state.queues
        if event.phase == "joined":
            records["first_event_s"][number] = np.nan
            self._unused["queue", number] = event
        elif event.phase == "draining":
            self._unused.pop(("queue", number), None)
            records["draining"][number] = True
            self._emptying.append(name)
        elif event.phase in ("pooled", "gone") and name in self._emptying:
            self._emptying.remove(name)
            records["draining"][number], records["drained_s"][number], records["idle"][number] = False, np.nan, NONE

    def _change_container(self, event: ReplicaEvent) -> None:
        if event.phase == "requested":
            self._add_container(event)
            return
        number = self._numbers[event.replica]
        if event.phase == "joined":
            self._running.add(number)
            self._unused["container", number] = event
            free(self.state, number, self._hold, self._pull, self.now_s)
            self._note_first_events()
        elif event.phase == "draining":
            self.state.containers["retiring"][number] = True
            self._retiring.append(number)
            if self.state.containers["event_of"][number] == NONE:
                self._take_out_of_idle(number)
                self.state.containers["gone_s"][number] = self.now_s
                self._remove_retired()
        elif event.phase == "gone":
            self._running.discard(number)
            self._unused.pop(("container", number), None)

    def _add_container(self, event: ReplicaEvent) -> None:
        number = self._numbers[event.replica] = len(self.workers)
        self.workers.append(event.replica)
        if len(self.state.containers) <= number:
            self.state = grown(self.state, containers=2 * number)
        self.state.containers["queue_of"][number] = self.queues[event.fleet]

    def _feed(self) -> None:
        """Give the kernel the queues that are fed, and their shares; then hand out what was held."""
        if not self._shares_may_differ:
            return
        shares, self._shares_may_differ = self.replica_set.shares(), False
        if list(shares.items()) == list(self.shares.items()):
            return
        self.shares = shares
        fed = [(self.queues[name], share) for name, share in self.shares.items() if share > 0]
        for place, (number, share) in enumerate(fed):
            self.state.fed[place] = number
            self.state.queues["share"][number] = share
        self.state.counts[FED] = len(fed)
        if not self.broker_is_away():
            flush(self.state, self._hold, self._pull, self.now_s)

    # --- what the kernel finds ----------------------------------------------------------------------------------------

    def _run(self, until_s: float, *, inclusive: bool) -> None:
        run(self.state, until_s, inclusive, self._hold, self._pull)
        self._now_s = until_s
        self._note_first_events()
        drained_s = {name: float(self.state.queues["drained_s"][self.queues[name]]) for name in self._emptying}
        drained = [name for name, at_s in drained_s.items() if isfinite(at_s)]
        for name in sorted(drained, key=lambda each: drained_s[each]):
            self._observe(name, drained_s[name])
        if self._remove_retired() or drained:
            self._settle()

    def _note_first_events(self) -> None:
        """Record the first event of each queue and container that has had one."""
        for (kind, number), event in list(self._unused.items()):
            first_s = float(
                self.state.queues["first_event_s"][number]
                if kind == "queue"
                else self.state.containers["first_start_s"][number]
            )
            # A frozen container has taken its event up but has not begun.
            if first_s <= self.now_s:
                del self._unused[kind, number]
                self._events.append(ReplicaEvent(event.fleet, event.replica, "first-event", nanos(first_s)))

    def _remove_retired(self) -> bool:
        """Containers that have served their last event are gone; returns whether there are any."""
        before = len(self._retiring)
        for number in list(self._retiring):
            gone_s = float(self.state.containers["gone_s"][number])
            if isfinite(gone_s):
                self._retiring.remove(number)
                self.replica_set.remove_container(self._queue_of(number), self.workers[number], nanos(gone_s))
        return len(self._retiring) < before

    def _queue_of(self, container: int) -> str:
        return list(self.queues)[int(self.state.containers["queue_of"][container]) - 1]

    def _idle(self, queue: int) -> list[int]:
        """Numbers of the idle containers, the one that is taken next first."""
        numbers = []
        number = int(self.state.queues["idle"][queue])
        while number != NONE:
            numbers.append(number)
            number = int(self.state.containers["next_idle"][number])
        return numbers

    def _take_out_of_idle(self, container: int) -> None:
        queue, before = int(self.state.containers["queue_of"][container]), NONE
        for number in reversed([number for number in self._idle(queue) if number != container]):
            self.state.containers["next_idle"][number] = before
            before = number
        self.state.queues["idle"][queue] = before

    # --- faults ------------------------------------------------------------------------------------------------------

    @simulates("stop-broker")
    def _stop_broker(self, until_s: float) -> None:
        """Nothing enters or leaves a queue until then."""
        self.state.until_s[BROKER_BACK_S] = max(self.state.until_s[BROKER_BACK_S], until_s)
        self._event_queue.at(until_s, self._resume)

    @simulates("kill-forwarder")
    def _kill_forwarder(self, _: float) -> None:
        """Events wait in the main queue until it has been started again."""
        self._stop_forwarder(self.now_s + RESTART_S / self.spec.speed)

    def _stop_forwarder(self, until_s: float) -> None:
        self.state.until_s[FORWARDER_BACK_S] = max(self.state.until_s[FORWARDER_BACK_S], until_s)
        self._event_queue.at(until_s, self._resume)

    @simulates("cut-workers")
    def _cut_workers(self, until_s: float) -> None:
        """Neither functions nor the forwarder reach the broker: as if both stood still, while events still arrive."""
        self._freeze_workers(until_s)
        self._stop_forwarder(until_s)

    @simulates("restart-redis")
    def _stop_store(self, until_s: float) -> None:
        """What is served by then is finished then."""
        self.state.until_s[STORE_BACK_S] = max(self.state.until_s[STORE_BACK_S], until_s)
        busy = int(self.state.counts[BUSY])
        self.state.heap["end_s"][:busy] = np.maximum(self.state.heap["end_s"][:busy], until_s)
        self._take_out_of_heap(NONE)

    @simulates("kill-worker")
    def _kill_worker(self, _: float) -> bool:
        """The container of the lowest number that serves, else that is idle, dies; it is started again under its name.
        Its event goes back to the head of where it came from.
        """
        state = self.state
        self._note_first_events()
        if not self._running:
            return False
        victim = min(self._running, key=lambda number: (state.containers["event_of"][number] == NONE, number))
        queue, event = int(state.containers["queue_of"][victim]), int(state.containers["event_of"][victim])
        if event == NONE:
            self._take_out_of_idle(victim)
        else:
            self._take_out_of_heap(victim)
            state.containers["event_of"][victim] = NONE
            state.queues["in_service"][queue] -= 1
            state.events["attempt"][event] += 1
            self._put_back(MAIN if self._pull else queue, event)
        if victim in self._retiring:
            self._retiring.remove(victim)
        self.replica_set.lose_container(self._queue_of(victim), self.workers[victim], nanos(self.now_s), "killed")
        self._settle()
        self._resume()
        return True

    def _take_out_of_heap(self, victim: int) -> None:
        """Without ``victim`` (``NONE``: with all), in order."""
        heap, busy = self.state.heap, int(self.state.counts[BUSY])
        kept = [place for place in range(busy) if heap["ending"][place] != victim]
        # What is in order is a heap, too.
        order = sorted((float(heap["end_s"][place]), int(heap["ending"][place])) for place in kept)
        for place, (end_s, number) in enumerate(order):
            heap["end_s"][place], heap["ending"][place] = end_s, number
        self.state.counts[BUSY] = len(order)

    def _put_back(self, queue: int, event: int) -> None:
        records = self.state.queues
        self.state.events["successor"][event] = records["head"][queue]
        records["head"][queue] = event
        if records["tail"][queue] == NONE:
            records["tail"][queue] = event
        records["waiting"][queue] += 1

    @simulates("freeze-workers")
    def _freeze_workers(self, until_s: float) -> None:
        """Whatever is in service ends that much later; what begins in the meantime begins after it."""
        state, busy = self.state, int(self.state.counts[BUSY])
        begins_s = max(self.now_s, float(state.until_s[THAWED_S]))
        longer_s = until_s - begins_s
        if longer_s <= 0:
            return
        state.until_s[THAWED_S] = begins_s + longer_s
        state.heap["end_s"][:busy] += longer_s
        events = state.containers["event_of"][state.heap["ending"][:busy]]
        state.events["started_s"][events[state.events["started_s"][events] > self.now_s]] += longer_s
        state.containers["first_start_s"][state.containers["first_start_s"] > self.now_s] += longer_s

    def _resume(self) -> None:
        """Idle containers take what waits: after the broker is back, or an event was put back."""
        if self.broker_is_away():
            return
        for number in self.queues.values():
            idle = self._idle(number)
            self.state.queues["idle"][number] = NONE
            for container in reversed(idle):
                free(self.state, container, self._hold, self._pull, self.now_s)
        flush(self.state, self._hold, self._pull, self.now_s)


def _containers(function: QueueReplica, now_ns: int) -> int:
    """Containers that are due, and those that finish their last event."""
    return sum(each.phase != "requested" or each.due_ns <= now_ns for each in function.app.containers.replicas.values())
