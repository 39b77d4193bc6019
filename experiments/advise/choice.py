"""Settings are chosen on the first part of the trace: of every scaler those it starts from, then those around its best.

Of a long first part, most settings are tried on an excerpt, and the best of them on all of it. A trial that can no
longer win is given up.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from statistics import mean
from typing import Final

from experiments.advise.settings import AROUND, Setting, Space
from experiments.advise.trial import Limits, Outcome
from experiments.advise.trials import PartName, Trials, Wanted
from experiments.advise.workers import CarryOut

SCOUTS: Final = 13
"""Settings of each scaler that are tried first: what is cheap among them limits the cost of all others."""
TOO_DEAR: Final = (1.6, 1.4, 1.25, 1.25, 1.25, 1.25, 1.25, 1.25)
"""Rounds of refinement around the best settings: a scaler whose best costs so many times the cheapest of all is refined
no further.
"""
STALLED: Final = 0.997
"""Refinement of a scaler also ends if ``STALLED_ROUNDS`` rounds together left its best at more than this part of its
cost.
"""
STALLED_ROUNDS: Final = 3
JOINT: Final = 8
"""Of the settings of a round, so many differ from good ones in several parameters at once."""
NEAR_MISS_LATE: Final = 3.0
"""A setting misses the SLO narrowly with at most so many times the late events that are allowed."""
CHEAPER: Final = 0.97
"""A narrow miss is refined if it costs at most so many times the cheapest of its scaler that meets the SLO."""
GIVEN_UP_LATE: Final = 5.0
"""A trial is given up when so many times the late events that are allowed are late, of the whole length."""
GIVEN_UP_COST: Final = 1.6
"""Or when it has cost so many times the cheapest known that keeps the share."""
CLOSE: Final = 1.1
"""A scaler that costs at most so many times the cheapest one gets more trials than others, and further proofs."""
TRIED_S: Final = 36_000.0
"""Simulated time that a scaler gets on a whole first part after the excerpt, and on the rest, in each step."""
FEWEST: Final = 3
"""Settings in such a step, however long the part is."""
PROVEN: Final = 6
"""Settings of a scaler that are proven on the rest: as many from its cheapest to its safest."""
CHEAPEST: Final = 8
"""And its cheapest ones."""


class Choice:
    """Of one request. A setting is chosen if it keeps ``wanted_share``, which has the margin, and ``lowest_share`` by
    each of ``seeds`` that is used. ``phase`` is called with the name of each step.
    """

    def __init__(
        self,
        trials: Trials,
        carry_out: CarryOut,
        *,
        wanted_share: float,
        lowest_share: float,
        seeds: Sequence[int],
        phase: Callable[[str], None],
    ) -> None:
        self._trials, self._carry_out, self._share, self._seeds = trials, carry_out, wanted_share, seeds
        self._chosen_share = wanted_share
        self._lowest = lowest_share
        self._phase = phase
        self._seen: dict[tuple[PartName, str], dict[Setting, Outcome]] = {}
        self._part: PartName = "first"
        self._best_costs: dict[tuple[PartName, str], list[float]] = {}

    def choose(self, spaces: Sequence[Space]) -> None:
        """Try the settings of every scaler, then those around its best ones."""
        seed = self._seeds[0]
        self._part = "excerpt" if "excerpt" in self._trials.parts else "first"
        self._phase("settings")
        self._measure(spaces, lambda space: space.first(seed)[:SCOUTS])
        self._measure(spaces, lambda space: space.first(seed)[SCOUTS:])
        rounds = TOO_DEAR[: -2 if self._is_long else None]
        for number, too_dear in enumerate(rounds):
            self._phase(f"refinement {number + 1} of {len(rounds)}")
            self._refine(spaces, too_dear)
        if self._part == "excerpt":
            # What is the cheapest on an excerpt keeps too few events on the whole now and then, or keeps them with
            # more than it needs.
            cheapest = min(self.costs(space.scaler) for space in spaces)
            promising = {space.scaler: self._promising(space.scaler, cheapest) for space in spaces}
            self._part = "first"
            self._phase("whole first part")
            self._measure(spaces, lambda space: [(), *promising[space.scaler]])
            self._phase("whole first part, refinement")
            self._refine(spaces, TOO_DEAR[-1], self.affordable("first"))

    def choose_safer(self, spaces: Sequence[Space], late: float, most: float) -> None:
        """Choose settings anew that have at most ``late`` times the late events that are allowed: one round around
        those of the scalers that cost at most ``most``.
        """
        self._chosen_share = 1 - late * (1 - self._share)
        self._best_costs.clear()
        self._phase(f"settings with {100 * (1 - self._chosen_share):.2g} % late events on the first part")
        self._refine([space for space in spaces if self._promises(space.scaler) <= most], CLOSE)

    def _refine(self, spaces: Sequence[Space], too_dear: float, most: int = AROUND) -> None:
        """``most`` settings of a scaler that is close to the cheapest, half as many of others."""
        cheapest = min((self.costs(space.scaler) for space in spaces), default=inf)

        def around(space: Space) -> list[Setting]:
            tried, scaler = self.tried(space.scaler), space.scaler
            count = most if self.costs(scaler) <= CLOSE * cheapest else max(1, most // 2)
            mixed = space.joint(
                [
                    *spread(self._front(scaler), JOINT),
                    *self.cheapest(scaler)[: JOINT // 2],
                    *self._near_misses(scaler),
                ],
                tried,
            )
            near = space.around(self._good(scaler), tried, lambda one, other: tried[one] == tried[other])
            mixed = mixed[: max(count * JOINT // AROUND, count - len(near))]
            return list(dict.fromkeys([*near[: count - len(mixed)], *mixed]))

        promising = [space for space in spaces if self._promises(space.scaler) <= too_dear * cheapest]
        self._measure([space for space in promising if not self._stalls(space.scaler)], around)

    def _stalls(self, scaler: str) -> bool:
        """Called before each round; whether the last ones have made its best no cheaper."""
        costs = self._best_costs.setdefault((self._part, scaler), [])
        costs.append(self.costs(scaler))
        rounds = STALLED_ROUNDS - self._is_long
        before = costs[-1 - rounds] if len(costs) > rounds else inf
        return before < inf and costs[-1] > STALLED * before

    @property
    def _is_long(self) -> bool:
        """Of the part that chooses now: it gets two rounds fewer, which end one stalled round earlier."""
        return self._trials.parts[self._part].is_long

    def affordable(self, part: PartName) -> int:
        """Settings of a scaler that one step tries on a part after the excerpt."""
        return max(FEWEST, round(TRIED_S / (60 * self._trials.parts[part].minutes)))

    def _promising(self, scaler: str, cheapest: float) -> list[Setting]:
        """Settings for the whole first part: a quarter of them the cheapest on the excerpt, a quarter from there to the
        dearest, half of them from there to the safest; also some that keep a little less than the share there. Few of a
        scaler that is far dearer than another.
        """
        late, most = 1 - self._share, self.affordable("first")
        front = self._front(scaler, 1 - 2 * late)
        if not front or self.costs(scaler) > TOO_DEAR[-1] * cheapest:
            return self._few(scaler, most)
        cheapest_first, quarter = self.cheapest(scaler), most // 4
        some = spread(cheapest_first[quarter:], quarter)
        return list(dict.fromkeys([*spread(front, most - 2 * quarter), *cheapest_first[:quarter], *some]))

    def _measure(self, spaces: Sequence[Space], settings: Callable[[Space], Iterable[Setting]]) -> None:
        least_cost = min((self.costs(space.scaler) for space in spaces), default=inf)
        limits = Limits(
            late_share=GIVEN_UP_LATE * (1 - self._share), replica_minutes=GIVEN_UP_COST * least_cost
        )  # of what was known before this step, so that a request which continues decides alike
        first = self._seeds[0]
        left = [Wanted(space.scaler, each, self._part, first) for space in spaces for each in settings(space)]
        found: dict[Wanted, list[Outcome]] = {}
        for seed in self._choosing:
            self._trials.measure((each._replace(seed=seed) for each in left), self._carry_out, limits)
            by_seed = {each: self._trials.found(each._replace(seed=seed), limits) for each in left}
            known = {each: outcome for each, outcome in by_seed.items() if outcome is not None and not outcome.error}
            for each, outcome in known.items():
                found.setdefault(each, []).append(outcome)
            left = [each for each, outcome in known.items() if self._is_near(outcome, least_cost)]
        for each, outcomes in found.items():
            self._seen.setdefault((each.part, each.scaler), {})[each.setting] = self._together(outcomes)

    @property
    def _choosing(self) -> Sequence[int]:
        """Seeds by which settings are chosen: on a short part few bursts decide, differently by each seed."""
        return self._seeds[:1] if self._is_long else self._seeds

    def _is_near(self, outcome: Outcome, least_cost: float) -> bool:
        """Whether a setting keeps the share by this seed, or misses it narrowly, and is not far dearer than another."""
        kept = outcome.slo_share >= 1 - NEAR_MISS_LATE * (1 - self._share)
        return kept and outcome.replica_minutes <= TOO_DEAR[-1] * least_cost and not outcome.given_up

    def _together(self, outcomes: Sequence[Outcome]) -> Outcome:
        """One setting by several seeds: means, and a share that meets the SLO where a proof would be met. The least of
        the shares may be lower than their mean by what the lowest share is below the wanted one.
        """
        shares = [each.slo_share for each in outcomes]
        return Outcome(
            slo_share=min(mean(shares), min(shares) - self._lowest + self._share),
            replica_minutes=mean(each.replica_minutes for each in outcomes),
            given_up=any(each.given_up for each in outcomes),
        )

    def tried(self, scaler: str) -> dict[Setting, Outcome]:
        """Settings of a scaler on the part that chooses now, under which it did not fail."""
        return self._seen.get((self._part, scaler), {})

    def costs(self, scaler: str) -> float:
        """Of its cheapest setting that meets the SLO; infinite if none does."""
        tried = self.tried(scaler).values()
        return min((o.replica_minutes for o in tried if self._is_chosen(o)), default=inf)

    def _is_chosen(self, outcome: Outcome) -> bool:
        return outcome.slo_share >= self._chosen_share and not outcome.given_up

    def _promises(self, scaler: str) -> float:
        """Of its cheapest setting that meets the SLO, or of the one that comes closest, if that is cheaper."""
        closest = max(self.tried(scaler).values(), key=lambda each: each.slo_share, default=None)
        return min(self.costs(scaler), inf if closest is None else closest.replica_minutes)

    def _front(self, scaler: str, share: float | None = None) -> list[Setting]:
        """Settings that keep the share of chosen ones (or ``share``), from the cheapest to the safest: each dearer one
        keeps more than those before.
        """
        share = self._chosen_share if share is None else share
        tried = sorted(self.tried(scaler).items(), key=lambda each: (each[1].replica_minutes, -each[1].slo_share))
        front: list[Setting] = []
        kept = -1.0
        for setting, outcome in tried:
            if outcome.slo_share > kept and outcome.slo_share >= share and not outcome.given_up:
                front.append(setting)
                kept = outcome.slo_share
        return front

    def _good(self, scaler: str) -> list[Setting]:
        """Settings worth refining: the cheapest, the cheapest with half and a tenth of the late events that are
        allowed, and the cheaper one that misses the SLO by the least: around a constant fleet every setting is that
        fleet. The two closest where none meets the SLO.
        """
        tried, front = self.tried(scaler), self._front(scaler)
        if not front:
            return sorted(tried, key=lambda each: (-round(tried[each].slo_share, 3), tried[each].replica_minutes))[:2]
        late = 1 - self._chosen_share
        safe = (next((each for each in front if 1 - tried[each].slo_share <= part * late), None) for part in (0.5, 0.1))
        return list(dict.fromkeys([front[0], *(each for each in safe if each is not None), *self._near_misses(scaler)]))

    def _near_misses(self, scaler: str) -> list[Setting]:
        """Of the settings that cost less than the cheapest that meets the SLO, the closest to it; or none."""
        tried, wanted, most = self.tried(scaler), self._chosen_share, CHEAPER * self.costs(scaler)
        near = [
            each
            for each, o in tried.items()
            if each
            and 1 - NEAR_MISS_LATE * (1 - wanted) <= o.slo_share < wanted
            and o.replica_minutes <= most
            and not o.given_up
        ]
        return sorted(near, key=lambda each: (-tried[each].slo_share, tried[each].replica_minutes))[:1]

    def _few(self, scaler: str, most: int) -> list[Setting]:
        """Half as many as of other scalers, the safest one among them; the closest where none meets the SLO."""
        count = max(1, most // 2)
        return spread(self._front(scaler)[::-1], count) or self._good(scaler)[:count]

    def published(self, scaler: str) -> list[Setting]:
        """The published setting, where it keeps the share so far as it was simulated."""
        outcome = self.tried(scaler).get(())
        return [] if outcome is None or outcome.slo_share < self._share else [()]

    def shortlist(self, scaler: str, cheapest: float) -> list[Setting]:
        """Few of a scaler that is far dearer than another, and of a long trace."""
        front = self._front(scaler)
        most = min(PROVEN, self.affordable("rest"))
        if not front or self.costs(scaler) > TOO_DEAR[-1] * cheapest:
            return self._few(scaler, most)
        return [*spread(front, most), *self.cheapest(scaler)[: min(CHEAPEST, self.affordable("rest"))]]

    def cheapest(self, scaler: str) -> list[Setting]:
        """Settings that meet the SLO, the cheapest first; one of those that did the same, as where a parameter has no
        effect: on the rest they would do the same again, in the place of different ones.
        """
        tried = self.tried(scaler)
        met = [each for each, o in tried.items() if self._is_chosen(o)]
        did: dict[tuple[float, str], Setting] = {}
        for each in sorted(met, key=lambda each: tried[each].replica_minutes):
            did.setdefault((round(tried[each].slo_share, 4), f"{tried[each].replica_minutes:.3g}"), each)
        return list(did.values())


def spread(front: Sequence[Setting], most: int) -> list[Setting]:
    """At most so many, evenly from the cheapest to the safest."""
    last = len(front) - 1
    picked = {round(number * last / max(1, most - 1)) for number in range(most)} if last >= most else range(last + 1)
    return [front[number] for number in sorted(picked)]
