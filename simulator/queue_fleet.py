"""What happens seldom in a bank of queues: containers come, queues are created, taken into service, emptied, put back.

Between two such moments ``simulator.queue_kernel`` reckons what becomes of each event.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from math import floor, isfinite

import msgspec
import numpy as np

from controller.provider import check_system, containers_of_step, step_time_s
from controller.routing import fed_shares
from penstock.contracts import Phase, ReplicaCounts, ReplicaEvent
from penstock.runspec import Fault, RunSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem
from simulator.agenda import Agenda
from simulator.clock import nanos
from simulator.engine import unsupported
from simulator.queue_draws import draw
from simulator.queue_kernel import (
    BROKER_BACK_S,
    BUSY,
    FED,
    MAIN,
    NONE,
    THAWED_S,
    UNBOUNDED,
    flush,
    free,
    grown,
    new_bank,
    run,
)

ON_THE_GRID = 1e-9
"""A time that is a multiple of an interval is on its grid although it is a sum of doubles."""

FAULTS = ("blind-monitor", "freeze-workers", "kill-worker", "stop-broker")


class Container(msgspec.Struct, kw_only=True, eq=False):
    """One container; its number is its place in the kernel's arrays. ``fleet`` as in its ReplicaEvents."""

    number: int
    name: str
    fleet: str
    queue: "Queue"
    phase: Phase = "requested"


class Queue(msgspec.Struct, kw_only=True, eq=False):
    """One sub-queue with its function; its number is its place in the kernel's arrays.

    ``life`` counts how often it was taken into service: what a former life has still to come is void. ``made`` counts
    its containers, for their names.
    """

    number: int
    name: str
    phase: Phase = "requested"
    for_pool: bool = False
    life: int = 0
    made: int = 0
    containers: list[Container] = msgspec.field(default_factory=list)


class QueueFleet:
    """Queues, containers and pool of a run in virtual time. Queues are ``<fleet>-<number>``, their containers
    ``<queue>.<number>``.

    With ``scaled="containers"`` there is one queue, named as the fleet, and the replicas ``<fleet>-<number>`` are its
    containers. ReplicaEvents of the run's replicas carry the run's fleet; those of a function's containers carry their
    queue's name as fleet, so that what a provider runs can be told from what the scaler asked for.
    """

    def __init__(self, spec: RunSpec, schedule: Schedule) -> None:
        if not isinstance(spec.system, QueueSystem):
            raise TypeError(f"a bank of queues needs a QueueSystem, not {type(spec.system).__name__}")
        check_system(spec.system)
        self.spec = spec
        self.system = system = spec.system
        self.now_s = 0.0
        arrival_s = schedule.intended_offset_ns / 1e9
        draws = draw(system, len(schedule), spec.seed)
        bound = system.main_capacity
        self.bank = new_bank(arrival_s, draws.service_s, draws.pick, UNBOUNDED if bound is None else bound)
        self.blind_until_s = 0.0
        self.routing: dict[str, float] | None = None
        self.queues: list[Queue] = []
        self.pool: list[Queue] = []
        self.pool_wanted = 0
        self._hold = system.when_full == "hold"
        self._pull = system.forwarding == "pull"
        self.by_number: list[Queue] = []
        self.containers: list[Container] = []
        self._replicas_made = 0
        self._on_the_way_to_pool = 0
        self._will_fill_pool = False
        self._agenda = Agenda()
        self._events: list[ReplicaEvent] = []
        self._unused: list[Queue | Container] = []
        self._emptying: list[Queue] = []
        self._retiring: list[Container] = []
        if system.scaled == "containers":
            self._add_queue(Queue(number=1, name=spec.fleet, phase="joined"))
            for _ in range(spec.initial_replicas):
                self._join(self._request_container())
            self._feed()
        else:
            self.pool_wanted = system.pool_initial
            for _ in range(spec.initial_replicas):
                self._take_into_service(self._create(at_once=True))
            for _ in range(system.pool_initial):
                self._into_pool(self._create(at_once=True))

    # --- time and faults ----------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Everything up to ``until_s``. At one instant services end first, then containers and queues come, then
        events arrive.
        """
        if until_s < self.now_s:
            return
        while (at_s := self._agenda.next_s) <= until_s:
            self._run(at_s, inclusive=False)
            self._agenda.pop()()
        self._run(until_s, inclusive=True)

    def inject(self, fault: Fault) -> None:
        """A container dies and its event is served again; all of them stand still; the broker is away; nothing can be
        read.
        """
        match fault.kind:
            case "kill-worker":
                self._kill()
            case "freeze-workers":
                self._freeze(fault.seconds)
            case "stop-broker":
                back_s = self.now_s + fault.seconds
                self.bank.until_s[BROKER_BACK_S] = max(self.bank.until_s[BROKER_BACK_S], back_s)
                self._agenda.at(back_s, self._go_on)
            case "blind-monitor":
                self.blind_until_s = max(self.blind_until_s, self.now_s + fault.seconds)
            case _:
                raise unsupported(fault, FAULTS)

    # --- what monitor and actuator ask -------------------------------------------------------------------------------

    @property
    def scales_containers(self) -> bool:
        """Whether the run's replicas are containers of one queue."""
        return self.system.scaled == "containers"

    def broker_is_away(self) -> bool:
        """Whether the broker is stopped now."""
        return self.now_s < float(self.bank.until_s[BROKER_BACK_S])

    def replica_phases(self) -> dict[str, Phase]:
        """The run's replicas; a queue that is still being made for the pool is none yet."""
        if self.scales_containers:
            return {container.name: container.phase for container in self.queues[0].containers}
        in_service = {queue.name: queue.phase for queue in self.queues}
        return {**in_service, **{queue.name: queue.phase for queue in self.pool}}

    def replicas(self) -> int:
        """Replicas that exist or were asked for, without those that drain and the spare ones."""
        return ReplicaCounts.count(self.replica_phases().values()).current

    def resize(self, replicas: int, staying: Mapping[str, float] | None) -> None:
        """Towards so many replicas. Spare queues are taken first. What goes: first what ``staying`` does not name,
        then the youngest.
        """
        self._note_firsts()
        missing = replicas - self.replicas()
        if self.scales_containers:
            self._resize_containers(missing)
        elif missing > 0:
            for _ in range(missing):
                if self.pool:
                    self._take_into_service(self.pool.pop(0))
                else:
                    self._create()
            self._watch_pool()
        else:
            current = [queue for queue in self.queues if queue.phase in ("requested", "joined")]
            named = staying if staying is not None else {queue.name: 1.0 for queue in current}
            first_to_go = sorted(current, key=lambda queue: (queue.name in named, -current.index(queue)))
            for queue in first_to_go[: max(0, -missing)]:
                self._drain(queue)
        self._feed()

    def current_routing(self) -> dict[str, float]:
        """The share of each queue that is fed now, adding up to 1; empty if there is none."""
        return fed_shares(self.routing, [queue.name for queue in self.queues if queue.phase == "joined"])

    def happened(self) -> list[ReplicaEvent]:
        """What happened to replicas and containers since the last call, in order."""
        events = sorted(self._events, key=lambda event: event.at_ns)
        self._events = []
        return events

    # --- what has happened --------------------------------------------------------------------------------------------

    def _run(self, until_s: float, *, inclusive: bool) -> None:
        run(self.bank, until_s, inclusive, self._hold, self._pull)
        self.now_s = until_s
        self._note_firsts()
        self._note_ends()

    def _note_firsts(self) -> None:
        """Tell of the first event of each queue and container that has had one."""
        unused = []
        for one in self._unused:
            firsts_s = (
                self.bank.queues["first_event_s"] if isinstance(one, Queue) else self.bank.containers["first_start_s"]
            )
            first_s = float(firsts_s[one.number])
            # A frozen container has taken its event up but has not begun.
            if first_s <= self.now_s:
                self._tell(one, "first-event", first_s)
            else:
                unused.append(one)
        self._unused = unused

    def _note_ends(self) -> None:
        """Put away queues that were emptied and containers that have served their last event."""
        drained_s, gone_s = self.bank.queues["drained_s"], self.bank.containers["gone_s"]
        emptied = [queue for queue in self._emptying if isfinite(drained_s[queue.number])]
        for queue in sorted(emptied, key=lambda queue: float(drained_s[queue.number])):
            self._emptied(queue, float(drained_s[queue.number]))
        for container in [container for container in self._retiring if isfinite(gone_s[container.number])]:
            self._retiring.remove(container)
            self._gone(container, float(gone_s[container.number]))

    def _tell(self, one: Queue | Container, phase: Phase, at_s: float | None = None, reason: str = "") -> None:
        """A step of a replica's life; its phase stays joined after its first event."""
        if phase != "first-event":
            one.phase = phase
        fleet = one.fleet if isinstance(one, Container) else self.spec.fleet
        if isinstance(one, Queue) and self.scales_containers:
            return
        at_ns = nanos(self.now_s if at_s is None else at_s)
        self._events.append(ReplicaEvent(fleet, one.name, phase, at_ns, reason))

    # --- queues ------------------------------------------------------------------------------------------------------

    def _add_queue(self, queue: Queue) -> None:
        self.by_number.append(queue)
        self.queues.append(queue)
        if len(self.bank.queues) <= queue.number:
            self.bank = grown(self.bank, queues=2 * queue.number)
        bound = self.system.capacity
        self.bank.queues["capacity"][queue.number] = UNBOUNDED if bound is None else bound

    def _create(self, *, for_pool: bool = False, at_once: bool = False) -> Queue:
        """Begin to make a queue with its function."""
        number = len(self.by_number) + 1
        queue = Queue(number=number, name=f"{self.spec.fleet}-{number}", for_pool=for_pool)
        self._add_queue(queue)
        self._tell(queue, "requested")
        if at_once:
            return queue
        if for_pool:
            self.queues.remove(queue)
            self._on_the_way_to_pool += 1
        if self.system.provision_s == 0:
            self._made(queue)
        else:
            self._agenda.at(self.now_s + self.system.provision_s, partial(self._made, queue))
        return queue

    def _made(self, queue: Queue) -> None:
        if queue.phase != "requested":
            return
        if queue.for_pool:
            self._on_the_way_to_pool -= 1
            self._into_pool(queue)
        else:
            self._take_into_service(queue)
            self._feed()

    def _into_pool(self, queue: Queue) -> None:
        if queue in self.queues:
            self.queues.remove(queue)
        self.pool.append(queue)
        self._tell(queue, "pooled")

    def _take_into_service(self, queue: Queue) -> None:
        """From the pool, or just made: it is fed from now on and the provider begins to add containers."""
        if queue not in self.queues:
            self.queues.append(queue)
        if queue.phase == "requested":
            self._tell(queue, "started")
        self._tell(queue, "joined")
        self.bank.queues["first_event_s"][queue.number] = np.nan
        self._unused.append(queue)
        queue.life += 1
        self._ramp(queue, queue.life, self.now_s, 0)
        self._feed()

    def _ramp(self, queue: Queue, life: int, since_s: float, step: int) -> None:
        """The provider's steps from one on, those of this very instant at once."""
        while containers_of_step(self.system, step) > 0:
            at_s = since_s + step_time_s(self.system, step)
            if at_s > self.now_s:
                self._agenda.at(at_s, partial(self._step, queue, life, since_s, step))
                return
            self._bring(queue, containers_of_step(self.system, step))
            step += 1

    def _step(self, queue: Queue, life: int, since_s: float, step: int) -> None:
        if queue.life != life:
            return
        # A function that is on its way out grows only as long as something waits for it.
        if queue.phase != "draining" or self.bank.queues["waiting"][queue.number] > 0:
            self._bring(queue, containers_of_step(self.system, step))
            self._ramp(queue, life, since_s, step + 1)

    def _bring(self, queue: Queue, containers: int) -> None:
        for _ in range(containers):
            queue.made += 1
            self._join(self._add_container(queue, f"{queue.name}.{queue.made}", queue.name))

    def _drain(self, queue: Queue) -> None:
        if queue.phase == "requested":
            self.queues.remove(queue)
            self._tell(queue, "gone", reason="no longer wanted")
            return
        self._tell(queue, "draining")
        if queue in self._unused:
            self._unused.remove(queue)
        if self.bank.queues["waiting"][queue.number] + self.bank.queues["in_service"][queue.number] == 0:
            self._emptied(queue, self.now_s)
            return
        self.bank.queues["draining"][queue.number] = True
        self._emptying.append(queue)

    def _emptied(self, queue: Queue, at_s: float) -> None:
        """A drained queue: its containers are ended, and it goes where such queues go."""
        if queue in self._emptying:
            self._emptying.remove(queue)
        self.bank.queues["draining"][queue.number] = False
        self.bank.queues["drained_s"][queue.number] = np.nan
        self.bank.queues["idle"][queue.number] = NONE
        for container in list(queue.containers):
            self._gone(container, at_s)
        queue.life += 1
        self.queues.remove(queue)
        if self.system.when_removed == "pool":
            self.pool.append(queue)
            self._tell(queue, "pooled", at_s)
        else:
            self._tell(queue, "gone", at_s)

    def want_in_pool(self, queues: int) -> None:
        """So many spare queues from now on; there may be more."""
        self.pool_wanted = queues
        self._watch_pool()

    def _watch_pool(self) -> None:
        """Enter the next run of Algorithm 3's loop in the agenda, unless it would find nothing to do."""
        lacks = len(self.pool) + self._on_the_way_to_pool < self.pool_wanted
        if lacks and not self._will_fill_pool:
            self._will_fill_pool = True
            interval_s = self.system.forward_interval_s
            self._agenda.at((floor(self.now_s / interval_s + ON_THE_GRID) + 1) * interval_s, self._fill_pool)

    def _fill_pool(self) -> None:
        """Algorithm 3, one run of its loop: one queue, if there are too few."""
        self._will_fill_pool = False
        if len(self.pool) + self._on_the_way_to_pool < self.pool_wanted:
            self._create(for_pool=True)
        self._watch_pool()

    def _feed(self) -> None:
        """Tell the kernel which queues are fed, and by which shares; then hand out what was held."""
        shares = self.current_routing()
        fed = [queue for queue in self.queues if shares.get(queue.name, 0.0) > 0 and queue.phase == "joined"]
        for place, queue in enumerate(fed):
            self.bank.fed[place] = queue.number
            self.bank.queues["share"][queue.number] = shares[queue.name]
        self.bank.counts[FED] = len(fed)
        if not self.broker_is_away():
            flush(self.bank, self._pull, self.now_s)

    # --- containers --------------------------------------------------------------------------------------------------

    def _add_container(self, queue: Queue, name: str, fleet: str) -> Container:
        container = Container(number=len(self.containers), name=name, fleet=fleet, queue=queue)
        self.containers.append(container)
        queue.containers.append(container)
        if len(self.bank.containers) <= container.number:
            self.bank = grown(self.bank, containers=2 * container.number)
        self.bank.containers["queue_of"][container.number] = queue.number
        self._tell(container, "requested")
        return container

    def _request_container(self) -> Container:
        self._replicas_made += 1
        return self._add_container(self.queues[0], f"{self.spec.fleet}-{self._replicas_made}", self.spec.fleet)

    def _join(self, container: Container) -> None:
        if container.phase != "requested":
            return
        self._tell(container, "started")
        self._tell(container, "joined")
        self._unused.append(container)
        free(self.bank, container.number, self._pull, self.now_s)
        self._note_firsts()

    def _gone(self, container: Container, at_s: float, reason: str = "") -> None:
        container.queue.containers.remove(container)
        if container in self._unused:
            self._unused.remove(container)
        self._tell(container, "gone", at_s, reason)

    def _resize_containers(self, missing: int) -> None:
        for _ in range(missing):
            self._expect(self._request_container())
        current = [one for one in self.queues[0].containers if one.phase in ("requested", "joined")]
        first_to_go = sorted(current, key=lambda container: (container.phase == "joined", -container.number))
        for container in first_to_go[: max(0, -missing)]:
            self._retire(container)

    def _expect(self, container: Container) -> None:
        """It joins when its start-up is over."""
        if self.system.first_container_s == 0:
            self._join(container)
        else:
            self._agenda.at(self.now_s + self.system.first_container_s, partial(self._join, container))

    def _retire(self, container: Container) -> None:
        """It ends what it is serving and goes."""
        if container.phase == "requested":
            self._gone(container, self.now_s, "no longer wanted")
            return
        self._tell(container, "draining")
        if self.bank.containers["event_of"][container.number] == NONE:
            self._set_idle(
                container.queue, (number for number in self._idle(container.queue) if number != container.number)
            )
            self._gone(container, self.now_s)
        else:
            self.bank.containers["retiring"][container.number] = True
            self._retiring.append(container)

    def _idle(self, queue: Queue) -> list[int]:
        """Numbers of the idle containers, the one that is taken next first."""
        numbers = []
        number = int(self.bank.queues["idle"][queue.number])
        while number != NONE:
            numbers.append(number)
            number = int(self.bank.containers["next_idle"][number])
        return numbers

    def _set_idle(self, queue: Queue, numbers: Iterable[int]) -> None:
        before = NONE
        for number in reversed(list(numbers)):
            self.bank.containers["next_idle"][number] = before
            before = number
        self.bank.queues["idle"][queue.number] = before

    # --- faults ------------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        """The container of the lowest number that serves, else that is idle, dies; it is started anew under its name.
        Its event goes back to the head of where it came from.
        """
        self._note_firsts()
        alive = [one for one in self.containers if one.phase in ("joined", "draining")]
        victims = sorted(alive, key=lambda container: self.bank.containers["event_of"][container.number] == NONE)
        if not victims:
            return
        victim = victims[0]
        queue = victim.queue
        event = int(self.bank.containers["event_of"][victim.number])
        if event == NONE:
            self._set_idle(queue, (number for number in self._idle(queue) if number != victim.number))
        else:
            self._out_of_heap(victim)
            self.bank.containers["event_of"][victim.number] = NONE
            self.bank.queues["in_service"][queue.number] -= 1
            self.bank.events["attempt"][event] += 1
            self._put_back(MAIN if self._pull else queue.number, event)
        self._gone(victim, self.now_s, "killed")
        if victim in self._retiring:
            self._retiring.remove(victim)
        else:
            self._start_anew(victim)
        self._go_on()

    def _start_anew(self, victim: Container) -> None:
        life, queue = victim.queue.life, victim.queue
        if self.scales_containers:
            self._expect(self._add_container(queue, victim.name, victim.fleet))
            return

        def come_back() -> None:
            if queue.life == life:
                self._join(self._add_container(queue, victim.name, victim.fleet))

        self._agenda.at(self.now_s + self.system.first_container_s, come_back)

    def _out_of_heap(self, victim: Container) -> None:
        bank, busy = self.bank, int(self.bank.counts[BUSY])
        kept = [place for place in range(busy) if bank.heap["ending"][place] != victim.number]
        # What is in order is a heap, too.
        order = sorted((float(bank.heap["end_s"][place]), int(bank.heap["ending"][place])) for place in kept)
        for place, (end_s, number) in enumerate(order):
            bank.heap["end_s"][place], bank.heap["ending"][place] = end_s, number
        bank.counts[BUSY] = len(order)

    def _put_back(self, queue: int, event: int) -> None:
        bank = self.bank
        bank.events["successor"][event] = bank.queues["head"][queue]
        bank.queues["head"][queue] = event
        if bank.queues["tail"][queue] == NONE:
            bank.queues["tail"][queue] = event
        bank.queues["waiting"][queue] += 1

    def _freeze(self, seconds: float) -> None:
        """Whatever is in service ends that much later; what begins in the meantime begins after it."""
        bank, busy = self.bank, int(self.bank.counts[BUSY])
        begins_s = max(self.now_s, float(bank.until_s[THAWED_S]))
        longer_s = self.now_s + seconds - begins_s
        if longer_s <= 0:
            return
        bank.until_s[THAWED_S] = begins_s + longer_s
        bank.heap["end_s"][:busy] += longer_s
        events = bank.containers["event_of"][bank.heap["ending"][:busy]]
        bank.events["started_s"][events[bank.events["started_s"][events] > self.now_s]] += longer_s
        bank.containers["first_start_s"][bank.containers["first_start_s"] > self.now_s] += longer_s

    def _go_on(self) -> None:
        """Idle containers take what waits: after the broker is back, or an event was put back."""
        if self.broker_is_away():
            return
        for queue in self.queues:
            idle = self._idle(queue)
            self.bank.queues["idle"][queue.number] = NONE
            for number in reversed(idle):
                free(self.bank, number, self._pull, self.now_s)
        flush(self.bank, self._pull, self.now_s)
