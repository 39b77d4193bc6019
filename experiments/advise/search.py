"""The search: every scaler at its best on the first part of the trace, then proven on the rest by several seeds.

Of a long first part, most settings are tried on an excerpt, and the best of them on all of it. A trial that can no
longer win is given up.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from statistics import mean
from typing import Final

import msgspec

from experiments.advise.settings import AROUND, Setting, Space
from experiments.advise.trial import NO_LIMITS, Limits, Outcome
from experiments.advise.trials import PartName, Trials, Wanted
from experiments.advise.workers import CarryOut

PARTS: Final[tuple[PartName, ...]] = ("first", "rest")
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
LONG_MIN: Final = 15.0
"""On a part of more than so many minutes trials take long: it gets two rounds fewer, and refinement ends one stalled
round earlier.
"""
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
TRIED_S: Final = 36_000.0
"""Simulated time that a scaler gets on a whole first part after the excerpt, and on the rest, in each step."""
FEWEST: Final = 3
"""Settings in such a step, however long the part is."""
PROVEN: Final = 6
"""Settings of a scaler that are proven on the rest: as many from its cheapest to its safest."""
CHEAPEST: Final = 8
"""And its cheapest ones."""
RESCUED: Final = 8
"""Settings of a scaler that are proven at a time where none of those was."""
RESCUES: Final = 9
"""How often."""
FINALISTS: Final = 5
"""The cheapest settings of all scalers are proven by all seeds, whether a cheaper one of their scaler is or not."""
CLOSE: Final = 1.1
"""A scaler that costs at most so many times the cheapest proven one gets further proofs."""
FURTHER: Final = 12
"""Settings in each of these steps."""
STEPS: Final = 3
"""How many of them."""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was chosen on the first part, by seed: share of events within the SLO on each part, and cost on
    the rest. ``met``: proven. ``p99_s``: the highest on the rest.
    """

    scaler: str
    setting: Setting
    met: bool
    first_shares: tuple[float, ...]
    rest_shares: tuple[float, ...]
    replica_minutes: tuple[float, ...]
    p99_s: float | None

    @property
    def cost(self) -> float:
        """Mean over the seeds, replica-minutes of the rest."""
        return sum(self.replica_minutes) / len(self.replica_minutes)

    @property
    def least_share(self) -> float:
        """The lowest share on the rest."""
        return min(self.rest_shares)


class Search:
    """Of one request. A setting is proven if every seed keeps ``lowest_share`` on both parts (default: the wanted one)
    and their mean ``wanted_share``, which has the margin. Of the cheapest proven one, the mean with the seeds of
    ``confirming`` has to keep it, too. ``phase`` is called with the name of each step.
    """

    def __init__(
        self,
        trials: Trials,
        carry_out: CarryOut,
        *,
        wanted_share: float,
        seeds: Sequence[int],
        lowest_share: float | None = None,
        confirming: Sequence[int] = (),
        phase: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._trials, self._carry_out, self._share, self._seeds = trials, carry_out, wanted_share, seeds
        self._lowest = wanted_share if lowest_share is None else lowest_share
        self._confirming = confirming
        self._phase = phase
        self._seen: dict[tuple[PartName, str], dict[Setting, Outcome]] = {}
        self._part: PartName = "first"
        self._best_costs: dict[tuple[PartName, str], list[float]] = {}
        self._handed: set[tuple[str, Setting]] = set()

    # --- on the first part -------------------------------------------------------------------------------------------

    def choose(self, spaces: Sequence[Space]) -> None:
        """Try the settings of every scaler, then those around its best ones."""
        seed = self._seeds[0]
        self._part = "excerpt" if "excerpt" in self._trials.parts else "first"
        self._phase("settings")
        self._measure(spaces, lambda space: space.first(seed)[:SCOUTS])
        self._measure(spaces, lambda space: space.first(seed)[SCOUTS:])
        rounds = TOO_DEAR[:-2] if self._is_long else TOO_DEAR
        for number, too_dear in enumerate(rounds):
            self._phase(f"refinement {number + 1} of {len(rounds)}")
            self._refine(spaces, too_dear)
        if self._part == "excerpt":
            # What is the cheapest on an excerpt keeps too few events on the whole now and then, or keeps them with
            # more than it needs.
            cheapest = min(self._costs(space.scaler) for space in spaces)
            promising = {space.scaler: self._promising(space.scaler, cheapest) for space in spaces}
            self._part = "first"
            self._phase("whole first part")
            self._measure(spaces, lambda space: [(), *promising[space.scaler]])
            self._phase("whole first part, refinement")
            self._refine(spaces, TOO_DEAR[-1], self._affordable("first"))

    def _refine(self, spaces: Sequence[Space], too_dear: float, most: int = AROUND) -> None:
        """``most`` settings of a scaler that is close to the cheapest, half as many of others."""
        cheapest = min(self._costs(space.scaler) for space in spaces)

        def around(space: Space) -> list[Setting]:
            tried, scaler = self._tried(space.scaler), space.scaler
            count = most if self._costs(scaler) <= CLOSE * cheapest else max(1, most // 2)
            mixed = space.joint(
                [
                    *_spread(self._front(scaler), JOINT),
                    *self._cheapest(scaler)[: JOINT // 2],
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
        costs.append(self._costs(scaler))
        rounds = STALLED_ROUNDS - self._is_long
        before = costs[-1 - rounds] if len(costs) > rounds else inf
        return before < inf and costs[-1] > STALLED * before

    @property
    def _is_long(self) -> bool:
        """Of the part that chooses now."""
        return self._trials.parts[self._part].minutes > LONG_MIN

    def _affordable(self, part: PartName) -> int:
        """Settings of a scaler that one step tries on a part after the excerpt."""
        return max(FEWEST, round(TRIED_S / (60 * self._trials.parts[part].minutes)))

    def _promising(self, scaler: str, cheapest: float) -> list[Setting]:
        """Settings for the whole first part: a quarter of them the cheapest on the excerpt, a quarter from there to the
        dearest, half of them from there to the safest; also some that keep a little less than the share there. Few of a
        scaler that is far dearer than another.
        """
        late, most = 1 - self._share, self._affordable("first")
        front = self._front(scaler, 1 - 2 * late)
        if not front or self._costs(scaler) > TOO_DEAR[-1] * cheapest:
            return self._few(scaler, most)
        cheapest_first, quarter = self._cheapest(scaler), most // 4
        some = _spread(cheapest_first[quarter:], quarter)
        return list(dict.fromkeys([*_spread(front, most - 2 * quarter), *cheapest_first[:quarter], *some]))

    def _measure(self, spaces: Sequence[Space], settings: Callable[[Space], Iterable[Setting]]) -> None:
        least_cost = min((self._costs(space.scaler) for space in spaces), default=inf)
        limits = Limits(
            late_share=GIVEN_UP_LATE * (1 - self._share), replica_minutes=GIVEN_UP_COST * least_cost
        )  # of what was known before this step, so that a request which continues decides alike
        wanted = [self._wanted(space.scaler, each) for space in spaces for each in settings(space)]
        self._trials.measure(wanted, self._carry_out, limits)
        for each in wanted:
            outcome = self._trials.found(each, limits)
            if outcome is not None and not outcome.error:
                self._seen.setdefault((each.part, each.scaler), {})[each.setting] = outcome

    def _wanted(self, scaler: str, setting: Setting) -> Wanted:
        return Wanted(scaler, setting, self._part, self._seeds[0])

    def _tried(self, scaler: str) -> dict[Setting, Outcome]:
        """Settings of a scaler on the part that chooses now, under which it did not fail."""
        return self._seen.get((self._part, scaler), {})

    def _costs(self, scaler: str) -> float:
        """Of its cheapest setting that meets the SLO; infinite if none does."""
        tried = self._tried(scaler).values()
        return min((o.replica_minutes for o in tried if o.slo_share >= self._share and not o.given_up), default=inf)

    def _promises(self, scaler: str) -> float:
        """Of its cheapest setting that meets the SLO, or of the one that comes closest, if that is cheaper."""
        closest = max(self._tried(scaler).values(), key=lambda each: each.slo_share, default=None)
        return min(self._costs(scaler), inf if closest is None else closest.replica_minutes)

    def _front(self, scaler: str, share: float | None = None) -> list[Setting]:
        """Settings that keep the wanted share (or ``share``), from the cheapest to the safest: each dearer one keeps
        more than those before.
        """
        share = self._share if share is None else share
        tried = sorted(self._tried(scaler).items(), key=lambda each: (each[1].replica_minutes, -each[1].slo_share))
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
        tried, front = self._tried(scaler), self._front(scaler)
        if not front:
            return sorted(tried, key=lambda each: (-round(tried[each].slo_share, 3), tried[each].replica_minutes))[:2]
        late = 1 - self._share
        safe = (next((each for each in front if 1 - tried[each].slo_share <= part * late), None) for part in (0.5, 0.1))
        return list(dict.fromkeys([front[0], *(each for each in safe if each is not None), *self._near_misses(scaler)]))

    def _near_misses(self, scaler: str) -> list[Setting]:
        """Of the settings that cost less than the cheapest that meets the SLO, the closest to it; or none."""
        tried, late, most = self._tried(scaler), 1 - self._share, CHEAPER * self._costs(scaler)
        near = [
            each
            for each, o in tried.items()
            if each
            and 1 - NEAR_MISS_LATE * late <= o.slo_share < self._share
            and o.replica_minutes <= most
            and not o.given_up
        ]
        return sorted(near, key=lambda each: (-tried[each].slo_share, tried[each].replica_minutes))[:1]

    def _few(self, scaler: str, most: int) -> list[Setting]:
        """Half as many as of other scalers, the safest one among them; the closest where none meets the SLO."""
        count = max(1, most // 2)
        return _spread(self._front(scaler)[::-1], count) or self._good(scaler)[:count]

    # --- on the rest -------------------------------------------------------------------------------------------------

    def prove(self, spaces: Sequence[Space]) -> list[Proof]:
        """Proofs of each scaler's best settings and of its published one, the met ones first, by cost."""
        self._phase("proof")
        cheapest = min(self._costs(space.scaler) for space in spaces)
        chosen = {
            (space.scaler, setting): None
            for space in spaces
            for setting in (*self._published(space.scaler), *self._shortlist(space.scaler, cheapest))
        }
        proofs = self._prove(list(chosen))
        by_cost = sorted(spaces, key=lambda space: self._costs(space.scaler))
        for space in by_cost:
            if not any(proof.met for proof in proofs if proof.scaler == space.scaler):
                proofs += self._rescue(space.scaler, chosen, _best(proofs))
        for space in by_cost:
            proofs += self._further(space.scaler, proofs)
        proofs = self._confirmed(proofs)
        return sorted(proofs, key=lambda each: (not each.met, each.cost if each.met else -each.least_share))

    def _confirmed(self, proofs: Sequence[Proof]) -> list[Proof]:
        """The cheapest proven one by all seeds, then the next one, until the cheapest of all keeps the share on their
        mean: of many settings that few seeds have proven, the cheapest one is often the luckiest. Where it was, safer
        ones of its scaler are proven.
        """
        if not self._confirming:
            return list(proofs)
        self._phase("confirmation")
        found = {(each.scaler, each.setting): each for each in proofs}
        steps = Counter[str]()
        while True:
            best = _best(found.values())
            if completed := self._completed(found, inf if best is None else best.cost):
                found |= completed
                continue
            if best is None or len(best.rest_shares) > len(self._seeds):
                break
            key = best.scaler, best.setting
            self._trials.measure(
                (Wanted(*key, part, seed) for part in PARTS for seed in self._confirming), self._carry_out
            )
            proof = self._proof(*key, (*self._seeds, *self._confirming))
            if proof is None:
                del found[key]
            else:
                found[key] = proof
            if (proof is None or not proof.met) and steps[best.scaler] < STEPS:
                steps[best.scaler] += 1
                for each in self._safer(best, found):
                    found[each.scaler, each.setting] = each
        return list(found.values())

    def _safer(self, failed: Proof, known: Mapping[tuple[str, Setting], Proof]) -> list[Proof]:
        """Proofs of settings of its scaler that keep more than it on the first part, or cost more there: half of them
        the cheapest ones, the other half spread over the dearer ones. Each half is proven by itself: the cheap ones may
        be as lucky as it was.
        """
        scaler, tried = failed.scaler, self._tried(failed.scaler)
        own = self._trials.outcomes[self._wanted(scaler, failed.setting)]
        left = [
            each
            for each in self._cheapest(scaler)
            if self._is_open((scaler, each), known)
            and (tried[each].slo_share > own.slo_share or tried[each].replica_minutes > own.replica_minutes)
        ]
        most = min(FURTHER, self._affordable("rest"))
        cheap, dear = left[: most - most // 2], _spread(left[most - most // 2 :], most // 2)
        limits = Limits(late_share=1 - self._lowest)
        return [proof for half in (cheap, dear) for proof in self._prove([(scaler, each) for each in half], limits)]

    def _completed(self, known: Mapping[tuple[str, Setting], Proof], cost: float) -> dict[tuple[str, Setting], Proof]:
        """Settings that cost less than ``cost`` and passed the first seed are proven by every seed, the cheapest ones
        first. They were left out because a cheaper one of their scaler was proven, which was then not confirmed.
        """
        left = [each for each, proof in known.items() if proof.cost < cost and self._is_open(each, known)]
        proofs = self._prove(left) if left else []
        return {(each.scaler, each.setting): each for each in proofs if len(each.rest_shares) == len(self._seeds)}

    def _is_open(self, each: tuple[str, Setting], known: Mapping[tuple[str, Setting], Proof]) -> bool:
        """Whether a setting was not tried on the rest, or passed the first seed and was not tried by the others."""
        if (proof := known.get(each)) is None:
            return each not in self._handed
        first = self._seeds[0]
        one_seed = len(proof.rest_shares) < len(self._seeds)
        return one_seed and all(self._meets(Wanted(*each, part, first)) for part in PARTS)

    def _further(self, scaler: str, proofs: Sequence[Proof]) -> list[Proof]:
        """More proofs of a scaler that is close to the cheapest: its other settings that meet the SLO on the first
        part, from those that cost as much there as the proven one downwards, for as long as one is cheaper.
        """
        tried, found = self._tried(scaler), list[Proof]()
        known = {each.setting for each in proofs if each.scaler == scaler}
        for _ in range(STEPS):
            best, own = _best([*proofs, *found]), _best([p for p in (*proofs, *found) if p.scaler == scaler])
            if best is None or own is None or own.cost > CLOSE * best.cost:
                break
            most = self._trials.outcomes[self._wanted(scaler, own.setting)].replica_minutes
            left = [each for each in self._cheapest(scaler) if tried[each].replica_minutes <= most]
            batch = [each for each in left if each not in known][-min(FURTHER, self._affordable("rest")) :]
            known.update(batch)
            limits = Limits(late_share=1 - self._lowest, replica_minutes=own.cost)
            new = self._prove([(scaler, each) for each in batch], limits)
            found += new
            if not any(each.met and each.cost < own.cost for each in new):
                break
        return found

    def _rescue(self, scaler: str, chosen: Collection[tuple[str, Setting]], best: Proof | None) -> list[Proof]:
        """More proofs of a scaler of which none was met: its other settings that meet the SLO on the first part, the
        cheapest first, until one is proven or costs more there than the ``best`` setting of another scaler.
        """
        tried = self._tried(scaler)
        most = inf if best is None else self._trials.outcomes[self._wanted(best.scaler, best.setting)].replica_minutes
        left = [
            each
            for each in self._cheapest(scaler)
            if (scaler, each) not in chosen and tried[each].replica_minutes < most
        ]
        size = min(RESCUED, self._affordable("rest"))
        proofs: list[Proof] = []
        for batch in batched([(scaler, each) for each in left[: size * RESCUES]], size):
            found = self._prove(batch)
            proofs += found
            if any(each.met for each in found) or (
                best is not None and min(map(_cost, found), default=inf) > best.cost
            ):
                break
        return proofs

    def _published(self, scaler: str) -> list[Setting]:
        """The published setting, where it keeps the share so far as it was simulated."""
        outcome = self._tried(scaler).get(())
        return [] if outcome is None or outcome.slo_share < self._share else [()]

    def _shortlist(self, scaler: str, cheapest: float) -> list[Setting]:
        """Few of a scaler that is far dearer than another, and of a long trace."""
        front = self._front(scaler)
        most = min(PROVEN, self._affordable("rest"))
        if not front or self._costs(scaler) > TOO_DEAR[-1] * cheapest:
            return self._few(scaler, most)
        return [*_spread(front, most), *self._cheapest(scaler)[: min(CHEAPEST, self._affordable("rest"))]]

    def _cheapest(self, scaler: str) -> list[Setting]:
        """Settings that meet the SLO, the cheapest first; one of those that did the same, as where a parameter has no
        effect: on the rest they would do the same again, in the place of different ones.
        """
        tried = self._tried(scaler)
        met = [each for each, o in tried.items() if o.slo_share >= self._share and not o.given_up]
        did: dict[tuple[float, str], Setting] = {}
        for each in sorted(met, key=lambda each: tried[each].replica_minutes):
            did.setdefault((round(tried[each].slo_share, 4), f"{tried[each].replica_minutes:.3g}"), each)
        return list(did.values())

    def _prove(self, chosen: Sequence[tuple[str, Setting]], limits: Limits = NO_LIMITS) -> list[Proof]:
        """By the first seed; then by every seed the cheapest of all, and of each scaler one setting after the other
        until one is proven. What exceeds ``limits`` on the rest is not proven.
        """
        first, *others = self._seeds
        self._handed.update(chosen)
        self._trials.measure((Wanted(*each, "first", first) for each in chosen), self._carry_out)
        self._trials.measure((Wanted(*each, "rest", first) for each in chosen), self._carry_out, limits)
        passed = [each for each in chosen if all(self._meets(Wanted(*each, part, first)) for part in PARTS)]
        costs = {each: self._trials.outcomes[Wanted(*each, "rest", first)].replica_minutes for each in passed}
        passed.sort(key=lambda each: costs[each])
        cheapest_of_each = {each[0]: each for each in reversed(passed)}.values()
        close = list(dict.fromkeys([*(each for each in passed if not each[1]), *passed[:FINALISTS], *cheapest_of_each]))
        left = [each for each in passed if each not in close]
        while close:
            wanted = (Wanted(*each, part, seed) for each in close for part in PARTS for seed in others)
            self._trials.measure(wanted, self._carry_out)
            proofs = (self._proof(*each) for each in passed if each[1])
            proven = {proof.scaler for proof in proofs if proof is not None and proof.met}
            close = list({each[0]: each for each in reversed(left) if each[0] not in proven}.values())
            left = [each for each in left if each not in close and each[0] not in proven]
        return [proof for each in chosen if (proof := self._proof(*each)) is not None]

    def _meets(self, wanted: Wanted) -> bool:
        outcome = self._trials.outcomes.get(wanted)
        return outcome is not None and not outcome.error and outcome.slo_share >= self._lowest

    def _keeps(self, shares: Sequence[float], seeds: int) -> bool:
        """On one part, by so many seeds, those that prove first. Further ones have to keep the share by themselves,
        too: of many settings, those are proven to which the first seeds were kind.
        """
        proving, further = shares[: len(self._seeds)], shares[len(self._seeds) :]
        if len(shares) < seeds or min(proving) < self._lowest:
            return False
        return mean(shares) >= self._share and (not further or mean(further) >= self._share)

    def _proof(self, scaler: str, setting: Setting, seeds: Sequence[int] | None = None) -> Proof | None:
        """None for a setting under which the scaler failed. ``seeds``: those that prove, unless others are given."""
        seeds = self._seeds if seeds is None else seeds
        outcomes = {
            part: [
                found
                for seed in seeds
                if (found := self._trials.outcomes.get(Wanted(scaler, setting, part, seed))) is not None
            ]
            for part in PARTS
        }
        first, rest = outcomes["first"], outcomes["rest"]
        if not rest or any(each.error for each in (*first, *rest)):
            return None
        first_shares, rest_shares = (tuple(each.slo_share for each in part) for part in (first, rest))
        return Proof(
            scaler=scaler,
            setting=setting,
            met=self._keeps(first_shares, len(seeds)) and self._keeps(rest_shares, len(seeds)),
            first_shares=first_shares,
            rest_shares=rest_shares,
            replica_minutes=tuple(each.replica_minutes for each in rest),
            p99_s=max((each.p99_s for each in rest if each.p99_s is not None), default=None),
        )


def _cost(proof: Proof) -> float:
    return proof.cost


def _best(proofs: Iterable[Proof]) -> Proof | None:
    """The cheapest that is met."""
    return min((each for each in proofs if each.met), key=_cost, default=None)


def _spread(front: Sequence[Setting], most: int) -> list[Setting]:
    """At most so many, evenly from the cheapest to the safest."""
    last = len(front) - 1
    picked = {round(number * last / max(1, most - 1)) for number in range(most)} if last >= most else range(last + 1)
    return [front[number] for number in sorted(picked)]


def batched(items: Sequence[tuple[str, Setting]], size: int) -> Iterator[Sequence[tuple[str, Setting]]]:
    """Consecutive parts of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))
