"""The actuator of functions: it speaks the OpenFaaS provider API, whoever serves it.

``apply`` asks the gateway for the targets and returns; a thread looks, some five times a second, what has come of it,
asks again for what the gateway did not hear, and deploys what is to be there. Our own gateway tells every step of a
replica's life; of any other the steps are made from its counts (``function_roster``). A gateway that grants less than
it was asked for (OpenFaaS CE: five replicas) is believed, and what it cut is reported.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from controller.actuators.function_roster import FunctionRoster
from controller.actuators.provider_api import GatewayError, ProviderApi, SlowGatewayError
from controller.actuators.stepping import SteppingActuator
from penstock.caps import grant
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Accepted, Decision, ReplicaCounts
from penstock.errors import PenstockError
from penstock.openfaas import DeployedFunction, FunctionDeployment

log = logging.getLogger(__name__)

APPLY_S: Final = 0.5
"""How long ``apply`` waits for the gateway at most; what it has not answered by then is asked again by the thread."""
SETTLE_NS: Final = 1_000_000_000
"""A gateway that shows fewer wanted replicas than it was asked for, this long after that, has cut the target."""
FORGET_NS: Final = 60 * NANOS_PER_SECOND
"""After this long a gateway that granted less is asked for more again."""


class OpenFaasActuator(SteppingActuator[FunctionRoster]):
    """Actuator port on a gateway. ``functions`` in topological order; caps: ``max_replicas`` each and
    ``max_replicas_total`` of all. ``roster``: of a predecessor, to go on from.
    """

    STEP_S = 0.2

    def __init__(
        self,
        *,
        functions: Sequence[str],
        api: ProviderApi,
        max_replicas: int | None,
        max_replicas_total: int | None = None,
        roster: FunctionRoster | None = None,
    ) -> None:
        super().__init__(roster or FunctionRoster.of(functions))
        self.functions = tuple(functions)
        self._api = api
        self._max_replicas, self._max_total = max_replicas, max_replicas_total
        self._resumed = roster is not None
        self._wanted: dict[str, int] = {}
        self._asked: dict[str, tuple[int, int]] = {}
        """What the gateway was asked for last, and when."""
        self._before: dict[str, int] = {}
        """Wanted replicas that the gateway showed when it was asked."""
        self._granted: dict[str, tuple[int, int]] = {}
        """What the gateway cut a target to, and when."""
        self._deployments: dict[str, FunctionDeployment] = {}
        self._deployed: set[str] = set()
        self._adopted = False
        self._tells_events = True
        self._asking = ThreadPoolExecutor(max_workers=max(1, len(self.functions)), thread_name_prefix="gateway")
        self._stepping = threading.Lock()
        self.trouble = ""

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Cap the targets and ask the gateway for them. PenstockError for a function that this run does not have."""
        with self._lock:
            sizes = self._sizes()
            if decision.action in ("hold", "none"):
                return Accepted(sizes)
            for name in decision.targets:
                if name not in sizes:
                    raise PenstockError(f"target for {name!r}: the functions here are {', '.join(sizes)}")
            targets, clamped = grant(decision.targets, sizes, each=self._max_replicas, total=self._max_total)
            self._clamp(targets, clamped, decision.targets)
            self._wanted.update(targets)
        if not self._ask_soon():
            self._wake.set()
        with self._lock:
            for name, target in targets.items():
                if (seen := self._wanted[name]) != target:
                    targets[name] = seen
                    clamped[name] = f"{decision.targets[name]} → {seen}: the gateway grants no more"
            return Accepted(targets, clamped)

    # --- what else the controller asks -------------------------------------------------------------------------------

    def counts(self, function: str) -> ReplicaCounts:
        """Replicas of a function by phase; those that are asked for and that the gateway has not told of yet are
        requested.
        """
        with self._lock:
            counts = self._roster.counts(function)
            missing = self._wanted.get(function, 0) - counts.current
            if missing > 0:
                return msgspec.structs.replace(counts, requested=counts.requested + missing)
            return counts

    def deploy(self, deployments: Sequence[FunctionDeployment], replicas: int) -> None:
        """Have these functions there, with so many replicas each unless a predecessor has scaled them; the thread does
        it. What is there with the same environment stays, what differs is changed.
        """
        with self._lock:
            self._deployments = {each.service: each for each in deployments}
            for name in self._deployments:
                if not (self._resumed and self._roster.functions[name].current()):
                    self._wanted[name] = replicas
        self._wake.set()

    @property
    def deployed(self) -> bool:
        """Whether all functions are known to be there."""
        with self._lock:
            return not self._deployments and self._adopted

    @property
    def own(self) -> frozenset[str]:
        """Functions that were deployed from here."""
        return frozenset(self._deployed)

    def snapshot(self) -> FunctionRoster:
        """A copy of the roster, to be written down."""
        with self._lock:
            return msgspec.json.decode(msgspec.json.encode(self._roster), type=FunctionRoster)

    def start(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Look once, then in a thread of its own; ``after_step`` runs there too."""
        self.step()
        super().start(after_step)

    def step(self) -> None:
        """Look once and do what is to be done. A gateway that is away is named once, and asked again."""
        with self._stepping:
            try:
                there = self._api.functions() if self._needs_status() else None
                if there is not None:
                    self._before.update((name, found.replicas) for name, found in there.items())
                    self._deploy_missing(there)
                self._ask()
                self._look(there)
            except GatewayError as error:
                if not self.trouble:
                    log.warning("replicas are left as they are: %s", error)
                self.trouble = str(error)
            else:
                self.trouble = ""

    def stop(self) -> None:
        """Close the connections, too."""
        super().stop()
        self._asking.shutdown(cancel_futures=True)
        self._api.close()

    def stop_replicas(self, own: frozenset[str], timeout_s: float = 30.0) -> None:
        """End every replica: the functions that were deployed for this run are deleted, others are scaled to nothing;
        after ``stop``. Raises PenstockError if some stay.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            self._deployments.clear()
            self._wanted = dict.fromkeys(self.functions, 0)
        asked = False
        try:
            while True:
                try:
                    if not asked:
                        self._ask_to_end(own)
                        asked = True
                    if not (left := self._left(own)):
                        return
                except SlowGatewayError:
                    if time.monotonic() > deadline_s:
                        raise
                else:
                    if time.monotonic() > deadline_s:
                        raise PenstockError(f"functions {', '.join(left)} have not ended within {timeout_s:g} s")
                    time.sleep(0.1)
        except GatewayError as error:
            raise PenstockError(f"replicas may be left: {error}") from None
        finally:
            self._api.close()

    def _ask_to_end(self, own: frozenset[str]) -> None:
        """Asking twice does no harm."""
        there = self._api.functions()
        for name in self.functions:
            if name in own:
                self._api.delete(name)
            elif name in there:
                self._api.scale(name, 0)
        with self._lock:
            for name in () if self._tells_events else self.functions:
                self._roster.ask(name, 0, time.time_ns())

    # --- asking ------------------------------------------------------------------------------------------------------

    def _sizes(self) -> dict[str, int]:
        return {name: self._wanted.get(name, size) for name, size in self._roster.sizes().items()}

    def _clamp(self, targets: dict[str, int], clamped: dict[str, str], wanted: Mapping[str, int]) -> None:
        """What the gateway has cut before it would cut again."""
        now_ns = time.time_ns()
        for name, target in targets.items():
            most, at_ns = self._granted.get(name, (target, now_ns))
            if target > most and now_ns - at_ns < FORGET_NS:
                targets[name] = most
                clamped[name] = f"{wanted[name]} → {most}: the gateway grants no more"

    def _ask_soon(self) -> bool:
        """Ask for all targets at once and look at what came of it, within ``APPLY_S``; whether that worked."""
        if not self._adopted or self._deployments:
            return False
        task = self._asking.submit(self.step)
        try:
            task.result(APPLY_S)
        except TimeoutError:
            return False
        return not self.trouble

    def _ask(self) -> None:
        """Tell the gateway every target that it has not been told."""
        with self._lock:
            pending = {
                name: wanted
                for name, wanted in self._wanted.items()
                if name not in self._deployments and self._asked.get(name, (None, 0))[0] != wanted
            }
        for name, wanted in pending.items():
            self._api.scale(name, wanted)
            with self._lock:
                now_ns = time.time_ns()
                self._asked[name] = wanted, now_ns
                if not self._tells_events:
                    self._roster.ask(name, wanted, now_ns)

    def _deploy_missing(self, there: Mapping[str, DeployedFunction]) -> None:
        with self._lock:
            deployments = dict(self._deployments)
        for name, wanted in deployments.items():
            found = there.get(name)
            if found is None or dict(found.env_vars) != dict(wanted.env_vars):
                try:
                    self._api.deploy(wanted, again=found is not None)
                except SlowGatewayError:
                    self._deployed.add(name)  # it may be there when it is looked for again
                    raise
                self._deployed.add(name)
            with self._lock:
                self._deployments.pop(name, None)
                self._asked.pop(name, None)

    # --- looking -----------------------------------------------------------------------------------------------------

    def _needs_status(self) -> bool:
        """Whether the counts of the functions are wanted: always of a gateway that tells no events, otherwise while
        something is to be deployed or granted.
        """
        with self._lock:
            now_ns = time.time_ns()
            fresh = any(now_ns - at_ns < 2 * SETTLE_NS for _, at_ns in self._asked.values())
            asked = any(self._asked.get(name, (None, 0))[0] != wanted for name, wanted in self._wanted.items())
            return bool(self._deployments) or fresh or asked or not self._adopted or not self._tells_events

    def _look(self, there: Mapping[str, DeployedFunction] | None) -> None:
        with self._lock:
            since = self._roster.next_event
        told = self._api.events(since)
        if told is None:
            there = self._api.functions()
            with self._lock:
                self._tells_events = False
                self._compare(there)
        else:
            if told.next < since or not (self._adopted or self._resumed):
                self._adopt()
            else:
                with self._lock:
                    for event in told.events:
                        self._roster.hear(event)
                    self._roster.next_event = told.next
            there = self._api.functions() if there is not None else None
        if there is not None:
            with self._lock:
                self._believe(there)
        self._adopted = True

    def _adopt(self) -> None:
        """Replicas that are there already, and the number of the event after all that has been told of them."""
        number = 0
        while (told := self._api.events(number)) is not None and told.next > number:
            number = told.next
        reports = self._api.reports() or ()
        with self._lock:
            self._roster.adopt({each.name: each.replicas for each in reports}, time.time_ns())
            self._roster.next_event = number

    def _compare(self, there: Mapping[str, DeployedFunction]) -> None:
        """Steps from counts. What nobody asked for from here is what somebody else did."""
        now_ns = time.time_ns()
        for name in self.functions:
            found = there.get(name)
            if found is None:
                self._roster.ask(name, 0, now_ns, "no longer deployed")
                self._roster.compare(name, 0, now_ns)
                continue
            if name not in self._asked and name not in self._deployments:
                self._roster.ask(name, found.replicas, now_ns, "adopted")
            self._roster.compare(name, found.available_replicas, now_ns)

    def _believe(self, there: Mapping[str, DeployedFunction]) -> None:
        """What the gateway grants is what is wanted from now on."""
        now_ns = time.time_ns()
        for name, (asked, at_ns) in self._asked.items():
            found = there.get(name)
            if found is None or self._wanted.get(name) != asked:
                continue
            before = self._before.get(name, found.replicas)
            if found.replicas < asked and (found.replicas > before or now_ns - at_ns >= SETTLE_NS):
                log.warning("%s: the gateway grants %d of %d replicas", name, found.replicas, asked)
                self._granted[name] = found.replicas, now_ns
                self._wanted[name] = found.replicas
                self._asked[name] = found.replicas, at_ns
                if not self._tells_events:
                    self._roster.ask(name, found.replicas, now_ns, f"the gateway grants {found.replicas} of {asked}")

    def _left(self, own: frozenset[str]) -> list[str]:
        there = self._api.functions()
        self._look(there)
        with self._lock:
            waiting = {name for name, state in self._roster.functions.items() if state.replicas}
        return [
            name
            for name in self.functions
            if (name in own and name in there) or (name in there and there[name].available_replicas) or name in waiting
        ]
