"""newsvendor for pipelines of functions with a deadline: replicas that idle against requests that come too late.

The deadline says until when each request has to start at each function. How many have to start soon is known from past
arrivals as far as the slack reaches back, and forecast beyond it. A replica that is added costs its start-up time, one
that finds no work costs its idle time, and a request that can no longer start in time costs λ. Work itself costs the
same at any number of replicas: to let requests wait within the slack is free. docs/newsvendor.md explains the method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar, Final, NamedTuple

import msgspec

from controller.scalers.shared.base import BaseScaler, CannotDecide, check_known, resize
from controller.scalers.shared.newsvendor import (
    PATIENCE,
    PRICE_GAIN,
    REMOVAL,
    ROUNDING,
    Forecast,
    Price,
    expected_above,
)
from controller.scalers.shared.parameters import BoundedParameters, NotNegative, OpenShare, Positive
from controller.scalers.shared.single_fleet import merged
from penstock.contracts import Decision, FunctionObservation, FunctionStatus, Term, hold

REACTION_TICKS: Final = 2
"""Decision intervals that requests must survive beyond a start-up: until the next decision, and until it helps."""
LARGEST_REMOVAL: Final = 0.9
"""Of a decision interval, what a removal costs at most: a replica that idles costs more than that at each decision, and
would otherwise never leave where a start-up takes many intervals.
"""
HEAD: Final = 0.5
"""Of a service time, how much earlier than necessary a request is to start."""
PRICE_UNIT_S: Final = 0.005
"""Service time for which the limits of the price were chosen. λ is in proportion to the service time."""
FIRST_PRICE: Final = 0.00025
CALM_LATE: Final = 0.2
"""Allowed late requests per interval below which the price changes more slowly: fewer tell less."""
TAIL: Final = 6.0
"""Standard deviations above the mean demand up to which replicas are tried."""
TIE: Final = 1e-9


class NewsvendorFunctionState(msgspec.Struct, frozen=True):
    """What is learned. By function: ``asked``, when how many replicas were asked for that may still start, and
    ``fewer``, decisions in a row at which fewer were the better choice.
    """

    forecast: Forecast = Forecast()
    price: Price = Price()
    asked: dict[str, tuple[tuple[float, int], ...]] = msgspec.field(default_factory=dict)
    fewer: dict[str, int] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewsvendorFunctionParameters(BoundedParameters):
    """``slo_share`` of the requests is to leave the pipeline before its deadline. ``price_s`` fixes λ in
    replica-seconds per late request; None: it is found from the share. ``start_up_s``: from the request of a replica
    until it serves.
    """

    slo_share: OpenShare = 0.99
    start_up_s: NotNegative = 1.0
    price_s: Positive | None = None


class Function(NamedTuple):
    """One function as it is now. ``started``: of the requests that arrived at the pipeline, those that no longer come
    or wait here: their service began, or they ended without it. ``slack_s``: age at which a request has to start here
    at the latest. ``starting``: replicas that do not serve yet, as (s until they do, number).
    """

    status: FunctionStatus
    started: int
    in_flight: int
    service_s: float
    slack_s: float
    after: Sequence[str]
    starting: Sequence[tuple[float, int]]

    @property
    def ended(self) -> int:
        """Of the started requests, those that are not in service."""
        return self.started - self.in_flight

    def capacity(self, replicas: int, within_s: float, start_up_s: float) -> float:
        """Requests that so many replicas can start to serve within a time: those that serve now, those that start, in
        the order in which they were asked for, and new ones.
        """
        left = replicas
        seconds = 0.0
        for until_s, number in ((0.0, self.status.replicas.joined), *self.starting, (start_up_s, replicas)):
            these = min(left, number)
            seconds += these * max(0.0, within_s - until_s)
            left -= these
        return seconds / self.service_s


class Plan:
    """Starts and ends of service that are expected of the functions that were decided about."""

    def __init__(self, forecast: Forecast, start_up_s: float) -> None:
        self.forecast, self.start_up_s = forecast, start_up_s
        self.chosen: dict[str, tuple[Function, int]] = {}

    def delivered(self, function: Function, after_s: float) -> float:
        """Requests that reach a function within ``after_s``, counted from the first: what its predecessors finish."""
        if not function.after:
            return self.forecast.count_at(after_s)
        return min(self.finished(name, after_s) for name in function.after)

    def finished(self, name: str, after_s: float) -> float:
        """Requests that a function has finished by then."""
        function, replicas = self.chosen[name]
        since_s = after_s - function.service_s
        if since_s < 0:
            return function.ended + function.in_flight * after_s / function.service_s
        capacity = function.started + function.capacity(replicas, since_s, self.start_up_s)
        return min(capacity, max(function.started, self.delivered(function, since_s)))


class Outlook(NamedTuple):
    """One function's requests: ``due`` have to start within ``horizon_s``, with their ``variance``, and ``work`` may
    start before the next decision, with ``work_variance``.
    """

    function: Function
    due: float
    variance: float
    work: float
    work_variance: float
    horizon_s: float
    interval_s: float
    start_up_s: float
    price_s: float

    def late(self, replicas: int) -> float:
        """Expected requests that come too late whatever is decided next."""
        return expected_above(
            self.due, self.variance, self.function.capacity(replicas, self.horizon_s, self.start_up_s)
        )

    def idle_s(self, replicas: int) -> float:
        """Expected idle replica-seconds until the next decision of the replicas that there are already."""
        capacity = self.function.capacity(replicas, self.interval_s, self.start_up_s)
        served = self.work - expected_above(self.work, self.work_variance, capacity)
        return min(replicas, self.function.status.replicas.current) * self.interval_s - served * self.function.service_s

    def changed_s(self, replicas: int) -> float:
        """Replica-seconds of the change itself: of each that is added its start-up, of each that is removed a part."""
        more, start_s = replicas - self.function.status.replicas.current, max(self.start_up_s, self.interval_s)
        removal_s = min(REMOVAL * start_s, LARGEST_REMOVAL * self.interval_s)
        return more * start_s if more >= 0 else -more * removal_s

    def cost(self, replicas: int) -> float:
        """J(n) in replica-seconds."""
        return self.idle_s(replicas) + self.changed_s(replicas) + self.price_s * self.late(replicas)


class NewsvendorFunction(BaseScaler[NewsvendorFunctionParameters, NewsvendorFunctionState]):
    """For each function, the least idle time + start-ups + price · expected late requests."""

    name: ClassVar[str] = "newsvendor-function"
    paper: ClassVar[str] = "own method: docs/newsvendor.md; loss function of Arrow, Harris, Marschak 1951"
    fleets: ClassVar[type[FunctionObservation]] = FunctionObservation

    def decide(
        self, observation: FunctionObservation, state: NewsvendorFunctionState
    ) -> tuple[Decision, NewsvendorFunctionState]:
        """Learn from the readings, and decide about the functions in the order of the pipeline."""
        p, forecast = self.parameters, state.forecast
        price = updated_price(state.price, observation, p)
        try:
            check_known(observation, "arrived", "deadline_s")
            assert observation.arrived is not None and observation.deadline_s is not None
            keep_s = observation.deadline_s + p.decision_interval_s
            forecast = forecast.updated(observation.time_s, observation.arrived, keep_s)
            if forecast.level_per_s is None:
                raise CannotDecide("no rate yet: this is the first reading of the arrivals")
            check_counted(observation.functions)
            if at_rest(observation, forecast):
                return least(observation.functions, p), NewsvendorFunctionState(forecast, price, state.asked)
            functions = read(observation, observation.arrived, observation.deadline_s, state, p)
        except CannotDecide as reason:
            following = NewsvendorFunctionState(forecast, price, state.asked)
            return hold(observation.fleet, str(reason)), following
        assert price.value is not None
        plan, decisions, asked, fewer = Plan(forecast, p.start_up_s), dict[str, Decision](), dict(state.asked), {}
        for function in functions:
            price_s = p.price_s or price.value * function.service_s / PRICE_UNIT_S
            outlook = outlook_of(function, plan, price_s, p)
            best, fleet, now = cheapest(outlook, p), function.status.fleet, function.status.replicas.current
            before = state.fewer.get(fleet, 0)
            fewer[fleet] = before + 1 if best < p.bounded(now) else 0
            waits = 0 < fewer[fleet] <= PATIENCE * p.start_up_s / p.decision_interval_s
            replicas = p.bounded(now) if waits else best
            more = replicas - now
            plan.chosen[fleet] = function, replicas
            why = {**terms(outlook, best, forecast, p), "fewer_for": before, "wanted": replicas}
            decisions[fleet] = resize(function.status, replicas, why)
            known = tuple((observation.time_s + until_s - p.start_up_s, count) for until_s, count in function.starting)
            asked[fleet] = (*known, (observation.time_s, more)) if more > 0 else known
        return merged(decisions), NewsvendorFunctionState(forecast, price, asked, fewer)


def updated_price(price: Price, observation: FunctionObservation, p: NewsvendorFunctionParameters) -> Price:
    """With the counts of requests that left the pipeline."""
    allowed = 1 - p.slo_share
    if price.value is None:
        price = price.beginning(FIRST_PRICE, allowed)
    gain = PRICE_GAIN * min(1.0, allowed * price.usual / CALM_LATE) if price.usual else PRICE_GAIN
    return price.updated(observation.finished, observation.missed, p.slo_share, gain)


def check_counted(parts: Sequence[FunctionStatus]) -> None:
    """Raise CannotDecide where it is unknown how many requests a function has or had."""
    if not parts:
        raise CannotDecide("no function is known that could be scaled")
    for part in parts:
        check_known(part, "arrived", "completed", "backlog", "in_flight", "after")


def at_rest(observation: FunctionObservation, forecast: Forecast) -> bool:
    """No request is in the pipeline and none is expected, while a service rate is unknown: none is needed then."""
    return (
        not forecast.rate_per_s
        and not any(part.backlog or part.in_flight for part in observation.functions)
        and any(part.service_rate_per_s is None for part in observation.functions)
    )


def least(parts: Sequence[FunctionStatus], p: NewsvendorFunctionParameters) -> Decision:
    """The least number of replicas of each function."""
    terms: dict[str, Term] = {"reason": "no request waits and none is expected", "wanted": p.bounded(1)}
    return merged({part.fleet: resize(part, p.bounded(1), terms) for part in parts})


def started(parts: Sequence[FunctionStatus], arrived: int) -> dict[str, int]:
    """By function: of the requests that ``arrived`` at the pipeline, those that no longer come or wait there.

    All do that neither wait there nor are on their way. One that is turned away or fails for good is on no way any
    more, though it is never completed. The branches of a merge finish requests in different orders, so that fewer are
    together there than the slowest has finished: then those count that the functions lost.
    """
    found, ended, lost = dict[str, int](), dict[str, int](), dict[str, int]()
    upstream: dict[str, set[str]] = {}
    for part in parts:
        before = part.after or ()
        came, in_flight, waiting = part.arrived or 0, part.in_flight or 0, part.backlog or 0
        begun = (part.completed or 0) + in_flight
        lost[part.fleet] = max(0, came - waiting - begun) + (0 if before else max(0, arrived - came))
        upstream[part.fleet] = {part.fleet}.union(*(upstream[name] for name in before))
        known = min((ended[name] for name in before), default=arrived) - waiting
        if len(before) > 1:
            known = min(known, begun + sum(lost[name] for name in upstream[part.fleet]))
        found[part.fleet], ended[part.fleet] = known, known - in_flight
    return found


def read(
    observation: FunctionObservation,
    arrived: int,
    deadline_s: float,
    state: NewsvendorFunctionState,
    p: NewsvendorFunctionParameters,
) -> list[Function]:
    """The functions, from the first to the last. Raises CannotDecide for an unknown reading."""
    parts = observation.functions
    for part in parts:
        check_known(part, "service_rate_per_s")
    service_s = {part.fleet: 1 / part.service_rate_per_s for part in parts if part.service_rate_per_s}
    begun = started(parts, arrived)
    remaining_s: dict[str, float] = {}
    for part in reversed(parts):
        following = [remaining_s[each.fleet] for each in parts if part.fleet in (each.after or ())]
        remaining_s[part.fleet] = service_s[part.fleet] + max(following, default=0.0)
    return [
        Function(
            part,
            begun[part.fleet],
            part.in_flight or 0,
            service_s[part.fleet],
            deadline_s - remaining_s[part.fleet] - HEAD * service_s[part.fleet],
            part.after or (),
            starting(part, state.asked.get(part.fleet, ()), p.start_up_s),
        )
        for part in parts
    ]


def starting(
    part: FunctionStatus, asked: Sequence[tuple[float, int]], start_up_s: float
) -> tuple[tuple[float, int], ...]:
    """Replicas that do not serve yet, those first that will first: the last that were asked for are the ones that still
    start. Those that somebody else asked for need a whole start-up.
    """
    left, found = part.replicas.requested + part.replicas.started, list[tuple[float, int]]()
    for at_s, number in reversed(asked):
        if these := min(left, number):
            found.append((max(0.0, at_s + start_up_s - part.time_s), these))
            left -= these
    return (*reversed(found), *(((start_up_s, left),) if left else ()))


def outlook_of(function: Function, plan: Plan, price_s: float, p: NewsvendorFunctionParameters) -> Outlook:
    """Requests that have to start, at most those that arrive here, and those that may start soon."""
    forecast, horizon_s = plan.forecast, p.start_up_s + REACTION_TICKS * p.decision_interval_s
    ahead_s = horizon_s - function.slack_s
    required, delivered = forecast.count_at(ahead_s), plan.delivered(function, horizon_s)
    work = max(0.0, plan.delivered(function, p.decision_interval_s) - function.started)
    first = not function.after
    return Outlook(
        function,
        due=min(required, delivered) - function.started,
        variance=forecast.variance(ahead_s) if first or required <= delivered else ROUNDING,
        work=work,
        work_variance=forecast.variance(p.decision_interval_s) if first else ROUNDING,
        horizon_s=horizon_s,
        interval_s=p.decision_interval_s,
        start_up_s=p.start_up_s,
        price_s=price_s,
    )


def cheapest(outlook: Outlook, p: NewsvendorFunctionParameters) -> int:
    """The number of replicas with the least cost, the present one if none is cheaper."""
    function, now = outlook.function, outlook.function.status.replicas.current
    most_due = max(0.0, outlook.due + TAIL * sqrt(outlook.variance))
    served_s = REACTION_TICKS * p.decision_interval_s
    enough = p.bounded(max(now, now + ceil(most_due * function.service_s / served_s)))
    best = p.bounded(now)
    least = outlook.cost(best)
    for replicas in range(p.bounded(1), enough + 1):
        cost = outlook.cost(replicas)
        if cost < least - TIE:
            best, least = replicas, cost
    return best


def terms(outlook: Outlook, chosen: int, forecast: Forecast, p: NewsvendorFunctionParameters) -> Mapping[str, Term]:
    """The arithmetic: what is due, and the trade of one replica fewer, the chosen number, and one more."""
    candidates = [each for each in (chosen - 1, chosen, chosen + 1) if p.bounded(each) == each]
    return {
        "rate_per_s": forecast.rate_per_s,
        "trend": forecast.trend,
        "dispersion": forecast.dispersion,
        "service_s": outlook.function.service_s,
        "slack_s": outlook.function.slack_s,
        "started": outlook.function.started,
        "horizon_s": outlook.horizon_s,
        "due": outlook.due,
        "variance": outlook.variance,
        "work": outlook.work,
        "price_s": outlook.price_s,
        "slo_share": p.slo_share,
        "replicas": outlook.function.status.replicas.current,
        "candidates": candidates,
        "idle_s": [outlook.idle_s(each) for each in candidates],
        "change_s": [outlook.changed_s(each) for each in candidates],
        "late": [outlook.late(each) for each in candidates],
        "cost": [outlook.cost(each) for each in candidates],
        "chosen": candidates.index(chosen),
    }
