"""The actuator of functions: a client of the OpenFaaS provider API.

``apply`` sends the targets to the gateway; a thread observes the result five times a second, repeats failed requests,
and deploys missing functions. Penstock's own gateway reports replica events; for any other gateway they are derived
from its counts (``replica_set``). Deployments carry the run's name as an annotation: a function without one is not
Penstock's, and is neither changed nor deleted; one that another client has deployed in the place of the run's ends the
run and is not scaled either. Where a gateway grants fewer replicas than requested (OpenFaaS CE:
five), the target is lowered to that number, which is reported.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from controller.fleets.actuator import END_S, ReconcilingActuator
from controller.fleets.function.provider_api import GatewayError, ProviderApi, RefusedError, SlowGatewayError
from controller.fleets.function.replica_set import FunctionReplicaSet
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Accepted, Decision, Phase, ReplicaCounts
from penstock.errors import PenstockError
from penstock.limits import clamp_targets
from penstock.log_once import LogOnce
from penstock.openfaas import RUN, DeployedFunction, FunctionDeployment

log = logging.getLogger(__name__)

APPLY_S: Final = 0.5
"""Longest time that ``apply`` waits for the gateway; the thread repeats what has no answer by then."""
SETTLE_NS: Final = 1_000_000_000
"""A gateway that shows fewer wanted replicas than requested after this long has cut the target."""
LOOK_NS: Final = 2 * NANOS_PER_SECOND
"""The numbers of a gateway that reports events are read this often: another client may change them."""
REST_NS: Final = NANOS_PER_SECOND
"""Those of any other gateway, once all replicas are there: it asks its Prometheus for each answer."""
UPDATE_NS: Final = 5 * NANOS_PER_SECOND
"""An update that the gateway has taken and that is not in its status after this long was not carried out: faas-netes
answers 200 where it has failed.
"""
FORGET_NS: Final = 60 * NANOS_PER_SECOND
"""After this long a target that was cut may be requested again."""


class Target(msgspec.Struct, kw_only=True):
    """What is requested of one function. ``wanted``: its target, None before the first; ``asked``: what was requested
    last, at ``asked_ns``; ``reached``: the gateway has shown it since; ``refused``: it has said no; ``shown``: wanted
    replicas that the gateway showed before that; ``granted``: to what it cut a target, at ``granted_ns``;
    ``there``: the gateway has the function; ``deployment``: how it is to be deployed, None once it is;
    ``updated_ns``: when the gateway took that as an update.
    """

    wanted: int | None = None
    asked: int | None = None
    asked_ns: int = 0
    reached: bool = False
    refused: bool = False
    shown: int | None = None
    granted: int | None = None
    granted_ns: int = 0
    there: bool = True
    deployment: FunctionDeployment | None = None
    updated_ns: int | None = None

    def cut(self, target: int) -> int:
        """The target, or what the gateway has granted of one lately."""
        known = self.granted is not None and time.time_ns() - self.granted_ns < FORGET_NS
        return min(target, self.granted) if known and self.granted is not None else target


class OpenFaasActuator(ReconcilingActuator[FunctionReplicaSet]):
    """Actuator port on a gateway. ``functions`` in topological order, deployed for ``run``; limits: ``max_replicas``
    each and ``max_replicas_total`` of all. ``replicas``: of a predecessor, to continue from.
    """

    STEP_S = 0.2

    def __init__(
        self,
        *,
        functions: Sequence[str],
        api: ProviderApi,
        run: str,
        max_replicas: int | None,
        max_replicas_total: int | None = None,
        replicas: FunctionReplicaSet | None = None,
    ) -> None:
        super().__init__(replicas or FunctionReplicaSet.of(functions))
        self.functions = tuple(functions)
        self._api, self._run = api, run
        self._max_replicas, self._max_total = max_replicas, max_replicas_total
        self._resumed = replicas is not None
        self._targets = {name: Target() for name in self.functions}
        self._deployments: dict[str, FunctionDeployment] = {}
        self._looked_ns = 0
        self._adopted = False
        self.refusal = ""
        """Why the gateway is not asked any more; empty while it is."""
        self._reports_events = True
        self._asking = ThreadPoolExecutor(max_workers=max(1, len(self.functions)), thread_name_prefix="gateway")
        self._stepping = threading.Lock()
        self._trouble = LogOnce(log, "replicas are left as they are: %s")

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Limit the targets and request them. PenstockError for an unknown function."""
        with self._lock:
            sizes = self._replicas.sizes()
            sizes |= {name: each.wanted for name, each in self._targets.items() if each.wanted is not None}
            if decision.action in ("hold", "none"):
                return Accepted(sizes)
            limited = clamp_targets(decision.targets, sizes, each=self._max_replicas, total=self._max_total)
            for name, target in limited.targets.items():
                self._targets[name].wanted = self._targets[name].cut(target)
        if not self._ask_soon():
            self._wake.set()
        with self._lock:
            targets, clamped = {}, dict(limited.clamped)
            for name, target in limited.targets.items():
                targets[name] = granted = self._targets[name].wanted or 0
                if granted != target:
                    clamped[name] = f"{decision.targets[name]} → {granted}: the gateway grants no more"
            return Accepted(targets, clamped)

    # --- for the fleet and the monitor -------------------------------------------------------------------------------

    def counts(self, function: str | None = None) -> ReplicaCounts:
        """Replicas of one function, or of all, by phase; requested ones that the gateway does not report included."""
        with self._lock:
            phases: list[Phase] = []
            for name in self.functions if function is None else (function,):
                replicas = self._replicas.functions[name]
                phases += replicas.phases().values()
                phases += ["requested"] * ((self._targets[name].wanted or 0) - replicas.size)
            return ReplicaCounts.count(phases)

    @property
    def trouble(self) -> str:
        """Why the gateway does not answer, empty if it does."""
        return self._trouble.trouble

    def deploy(self, deployments: Sequence[FunctionDeployment], replicas: int) -> None:
        """Deploy these functions in the thread, with ``replicas`` each unless a predecessor has scaled them. Those of
        this run stay as they are, those that another run has left are changed, anybody else's refuse the run.
        """
        with self._lock:
            for each in deployments:
                target = self._targets[each.service]
                target.deployment = self._deployments[each.service] = each
                if not (self._resumed and self._replicas.functions[each.service].size):
                    target.wanted = replicas
        self._wake.set()

    @property
    def deployed(self) -> bool:
        """Whether all functions are deployed. PenstockError if one is refused, or belongs to another run."""
        if self.refusal:
            raise PenstockError(self.refusal)
        with self._lock:
            return self._adopted and all(target.deployment is None for target in self._targets.values())

    def step(self) -> None:
        """Observe and reconcile once, until a deployment is refused. An absent gateway is logged once."""
        if self.refusal:
            return
        with self._stepping, self._trouble.skipping(GatewayError):
            try:
                there = self._api.functions() if self._needs_status() else None
                self._require_own(there or {})
            except RefusedError as error:
                self.refusal = str(error)
                raise
            if there is not None:
                try:
                    self._deploy_missing(there)
                except RefusedError as error:
                    self._delete_own(self._api.functions())
                    self.refusal = str(error)
                    raise
            asked = self._ask()
            if not self._reports_events:
                if there is None and not asked:
                    return
                there = None if asked else there  # to be read again
            self._look(there)

    def stop(self) -> None:
        """End the thread and close the connections; replicas stay as they are."""
        super().stop()
        self._asking.shutdown(cancel_futures=True)
        self._api.close()

    def stop_replicas(self, timeout_s: float = END_S) -> None:
        """Delete the functions of this run and await the end of their replicas; after ``stop``. Others stay as they
        are. Raises PenstockError if some of this run stay.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            self._targets = {name: Target(wanted=0) for name in self.functions}
        deleted: set[str] = set()
        late: Exception
        try:
            while True:
                try:
                    there = self._api.functions()
                    deleted |= self._delete_own({name: there[name] for name in there if name not in deleted})
                    if not (left := self._left()):
                        return
                    late = PenstockError(f"functions {', '.join(left)} have not ended within {timeout_s:g} s")
                except SlowGatewayError as error:
                    late = error
                if time.monotonic() > deadline_s:
                    raise late
                time.sleep(0.1)
        except GatewayError as error:
            raise PenstockError(f"replicas may be left: {error}") from None
        finally:
            self._api.close()

    def _delete_own(self, there: Mapping[str, DeployedFunction]) -> set[str]:
        """Delete those of this run that are there; returns their names."""
        own = {name for name in self.functions if name in there and self._owns(there[name])}
        for name in own:
            self._api.delete(name)
        with self._lock:
            for name in () if self._reports_events else own:
                self._replicas.functions[name].resize(0, time.time_ns())
        return own

    def _owns(self, found: DeployedFunction) -> bool:
        return (found.annotations or {}).get(RUN) == self._run

    # --- requests ----------------------------------------------------------------------------------------------------

    def _ask_soon(self) -> bool:
        """Request all targets at once and observe, within ``APPLY_S``; returns whether that succeeded."""
        if not self.deployed:
            return False
        task = self._asking.submit(self.step)
        try:
            task.result(APPLY_S)
        except TimeoutError:
            return False
        return not self.trouble

    def _ask(self) -> bool:
        """Send all targets that have changed; returns whether there were some."""
        with self._lock:
            there = [(name, each) for name, each in self._targets.items() if each.there and each.deployment is None]
            pending = [(name, target, target.wanted) for name, target in there if target.asked != target.wanted]
        for name, target, wanted in pending:
            assert wanted is not None
            refused = False
            try:
                self._api.scale(name, wanted)
            except RefusedError as error:  # ``_believe`` takes what is there as what is granted
                refused = True
                log.error("%s: %d replicas are refused: %s", name, wanted, error)
            with self._lock:
                target.refused = refused
                target.asked, target.asked_ns, target.reached = wanted, time.time_ns(), False
                if not self._reports_events:
                    self._replicas.functions[name].resize(wanted, target.asked_ns)
        return bool(pending)

    def _deploy_missing(self, there: Mapping[str, DeployedFunction]) -> None:
        for name, target in self._targets.items():
            if target.deployment is None and name in self._deployments and name not in there:
                log.warning("%s: the gateway does not have it any more; it is deployed again", name)
                with self._lock:
                    target.deployment = self._deployments[name]
        wanted = [name for name, target in self._targets.items() if target.deployment is not None]
        strange = [name for name in wanted if name in there and RUN not in (there[name].annotations or {})]
        if strange:
            raise RefusedError(
                f"gateway {self._api.where}: {', '.join(strange)}: a function of that name, not deployed by Penstock, "
                "is there; remove it, or take another gateway"
            )
        for name, target in self._targets.items():
            found, deployment = there.get(name), target.deployment
            target.shown = target.shown if found is None else found.replicas
            target.there = found is not None
            if found is None:  # deployed again it may have another number, which grants nothing
                target.asked = target.granted = None
            if deployment is None:
                continue
            if found is None:
                self._api.deploy(deployment)
            elif not self._owns(found):
                self._update(target, deployment)
                continue  # until its status shows it
            with self._lock:
                target.deployment, target.asked, target.asked_ns, target.there = None, None, 0, True
                target.updated_ns = None

    def _require_own(self, there: Mapping[str, DeployedFunction]) -> None:
        """Raise RefusedError if a function that this run has deployed is another client's now."""
        taken = [
            name
            for name, target in self._targets.items()
            if name in self._deployments and target.deployment is None and name in there and not self._owns(there[name])
        ]
        if taken:
            raise RefusedError(
                f"gateway {self._api.where}: {', '.join(taken)}: another client has deployed a function of that name "
                "during the run; it is left as it is"
            )

    def _update(self, target: Target, deployment: FunctionDeployment) -> None:
        """Change a function that another run has left, once."""
        now_ns = time.time_ns()
        if target.updated_ns is None:
            self._api.deploy(deployment, again=True)
            target.updated_ns = now_ns
        elif now_ns - target.updated_ns >= UPDATE_NS:
            raise RefusedError(
                f"gateway {self._api.where}: {deployment.service}: an update to image {deployment.image} was taken and "
                "not carried out: see the provider's log, or remove the function"
            )

    # --- observation -------------------------------------------------------------------------------------------------

    def _needs_status(self) -> bool:
        """Whether to read counts: while anything is pending, then now and then."""
        with self._lock:
            now_ns = time.time_ns()
            due = abs(now_ns - self._looked_ns) >= (LOOK_NS if self._reports_events else REST_NS) or any(
                each.asked != each.wanted or now_ns - each.asked_ns < 2 * SETTLE_NS for each in self._targets.values()
            )
            if not self._reports_events:  # counts are all that there is, and ``_trouble`` ends with an answer only
                due = due or bool(self.trouble) or not all(each.settled for each in self._replicas.functions.values())
            if due:
                self._looked_ns = now_ns
            pending = any(each.deployment is not None for each in self._targets.values())
            return pending or due or not self._adopted

    def _look(self, there: Mapping[str, DeployedFunction] | None) -> None:
        with self._lock:
            since = self._replicas.next_event
        reported = self._api.events(since)
        if reported is None:
            there = self._api.functions() if there is None else there
            with self._lock:
                self._reports_events = False
                self._compare(there)
        else:
            if reported.next < since or not (self._adopted or self._resumed):
                self._adopt()
                self._looked_ns = 0  # a gateway that was started again may have forgotten its functions
            else:
                with self._lock:
                    for event in reported.events:
                        if event.fleet in self._replicas.functions:
                            self._replicas.functions[event.fleet].follow(event)
                    self._replicas.next_event = reported.next
            there = self._api.functions() if there is not None else None
        if there is not None:
            with self._lock:
                self._believe(there)
        self._adopted = True

    def _adopt(self) -> None:
        """Take existing replicas as they are, and the number of the next event."""
        number = 0
        while (reported := self._api.events(number)) is not None and reported.next > number:
            number = reported.next
        reports = self._api.reports() or ()
        with self._lock:
            phases = {each.name: each.replicas for each in reports}
            for name, replicas in self._replicas.functions.items():
                replicas.align(phases.get(name, {}), time.time_ns())
            self._replicas.next_event = number

    def _compare(self, there: Mapping[str, DeployedFunction]) -> None:
        """Derive events from counts. Replicas that were not requested here are another client's."""
        now_ns = time.time_ns()
        for name, replicas in self._replicas.functions.items():
            found, target = there.get(name), self._targets[name]
            if found is None:
                replicas.resize(0, now_ns, reason="no longer deployed")
            elif target.asked is not None:  # perhaps before it was known that this gateway reports no events
                replicas.resize(target.asked if target.wanted is None else target.wanted, now_ns)
            elif target.deployment is None:
                replicas.resize(found.replicas, now_ns, reason="adopted")
            replicas.observe(0 if found is None else found.available_replicas, now_ns)

    def _believe(self, there: Mapping[str, DeployedFunction]) -> None:
        """Set the targets to what the gateway grants: fewer, or more (OpenFaaS CE keeps one replica). Once it has
        granted one, a change is another client's: the target is requested again.
        """
        now_ns = time.time_ns()
        for name, target in self._targets.items():
            found, asked = there.get(name), target.asked
            if found is None or asked is None or target.wanted != asked:
                continue
            if found.replicas == asked:
                target.reached = True
                continue
            settled = now_ns - target.asked_ns >= SETTLE_NS
            # A gateway that grants, grants one.
            if target.reached or (settled and found.replicas == 0 and not target.refused):
                log.warning("%s: another client has set %d replicas; %d again", name, found.replicas, asked)
                target.asked = None
                continue
            if found.replicas > asked and settled:
                log.warning("%s: the gateway keeps %d replicas instead of %d", name, found.replicas, asked)
                target.wanted = target.asked = found.replicas
                if not self._reports_events:
                    reason = f"the gateway keeps {found.replicas} instead of {asked}"
                    self._replicas.functions[name].resize(found.replicas, now_ns, reason=reason)
                continue
            rising = target.shown is not None and found.replicas > target.shown
            if found.replicas < asked and (rising or settled):
                log.warning("%s: the gateway grants %d of %d replicas", name, found.replicas, asked)
                target.granted = target.wanted = target.asked = found.replicas
                target.granted_ns = now_ns
                if not self._reports_events:
                    reason = f"the gateway grants {found.replicas} of {asked}"
                    self._replicas.functions[name].resize(found.replicas, now_ns, reason=reason)

    def _left(self) -> list[str]:
        there = self._api.functions()
        self._look(there)
        with self._lock:
            waiting = {name for name, each in self._replicas.functions.items() if each.replicas}
        return [name for name in self.functions if (self._owns(there[name]) if name in there else name in waiting)]
