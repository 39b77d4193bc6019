"""The search: every scaler at its best on the first part of the trace, then proven on the rest by several seeds."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from statistics import mean
from typing import Final

import msgspec

from experiments.advise.choice import CLOSE, Choice, spread
from experiments.advise.settings import Setting, Space
from experiments.advise.trial import NO_LIMITS, Limits
from experiments.advise.trials import PARTS, Trials, Wanted
from experiments.advise.workers import CarryOut

RESCUED: Final = 8
"""Settings of a scaler that are proven at a time where none of its best ones was."""
RESCUES: Final = 9
"""How often."""
FINALISTS: Final = 5
"""The cheapest settings of all scalers are proven by all seeds, whether a cheaper one of their scaler is or not."""
FURTHER: Final = 12
"""Settings in each step of further proofs."""
STEPS: Final = 3
"""How many of them."""
SAFER: Final = (0.5, 0.25, 0.12, 0.05)
"""In these steps, settings are chosen again that have at most so many times the late events that are allowed."""


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
        self._choice = Choice(
            trials, carry_out, wanted_share=wanted_share, lowest_share=self._lowest, seeds=seeds, phase=phase
        )
        self._handed: set[tuple[str, Setting]] = set()

    def choose(self, spaces: Sequence[Space]) -> None:
        """Try settings of every scaler on the first part."""
        self._choice.choose(spaces)

    def prove(self, spaces: Sequence[Space]) -> list[Proof]:
        """Proofs of each scaler's best settings and of its published one, the met ones first, by cost."""
        self._phase("proof")
        cheapest = min(self._choice.costs(space.scaler) for space in spaces)
        chosen = {
            (space.scaler, setting): None
            for space in spaces
            for setting in (*self._choice.published(space.scaler), *self._choice.shortlist(space.scaler, cheapest))
        }
        proofs = self._prove(list(chosen))
        by_cost = sorted(spaces, key=lambda space: self._choice.costs(space.scaler))
        for space in by_cost:
            if not any(proof.met for proof in proofs if proof.scaler == space.scaler):
                proofs += self._rescue(space.scaler, chosen, _best(proofs))
        for space in by_cost:
            proofs += self._further(space.scaler, proofs)
        proofs = self._chosen_again(spaces, self._confirmed(proofs))
        return sorted(proofs, key=lambda each: (not each.met, each.cost if each.met else -each.least_share))

    def _chosen_again(self, spaces: Sequence[Space], proofs: list[Proof]) -> list[Proof]:
        """Where the rest is harder than the first part, what is proven has fewer late events on the first part than the
        settings that were refined there. Settings with fewer are refined there now, and proven, for as long as they
        cost about as much there as the proven one.
        """
        for late in SAFER if self._choosing_again_pays(spaces, _best(proofs)) else ():
            if (best := _best(proofs)) is None:
                break
            most = CLOSE * self._choice.tried(best.scaler)[best.setting].replica_minutes
            self._choice.choose_safer(spaces, late, most)
            limits = Limits(late_share=1 - self._lowest, replica_minutes=best.cost)
            for scaler in (space.scaler for space in spaces):
                tried = self._choice.tried(scaler)
                left = [each for each in self._choice.cheapest(scaler) if tried[each].replica_minutes <= most]
                new = [(scaler, each) for each in left if (scaler, each) not in self._handed]
                proofs += self._prove(new[:FURTHER], limits)
            proofs = self._confirmed(proofs)
        return proofs

    def _choosing_again_pays(self, spaces: Sequence[Space], best: Proof | None) -> bool:
        """Always on short parts. Trials on long ones take more time: only where the proven setting is far dearer on the
        first part than the cheapest that keeps the share there, and never where that part was searched on an excerpt.
        """
        parts = self._trials.parts
        if best is None or "excerpt" in parts:
            return False
        if not any(parts[part].is_long for part in PARTS):
            return True
        cheapest = min(self._choice.costs(space.scaler) for space in spaces)
        return self._choice.tried(best.scaler)[best.setting].replica_minutes > CLOSE * cheapest

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
            proof = self._confirm(*key)
            if proof is None:
                del found[key]
            else:
                found[key] = proof
            if (proof is None or not proof.met) and steps[best.scaler] < STEPS:
                steps[best.scaler] += 1
                for each in self._safer(best, found):
                    found[each.scaler, each.setting] = each
        return list(found.values())

    def _confirm(self, scaler: str, setting: Setting) -> Proof | None:
        """A proof by all seeds, or by as many as it takes to fail: those that confirm come in turns, each of more than
        all before.
        """
        proof, seeds = None, [*self._seeds]
        while left := self._confirming[len(seeds) - len(self._seeds) :]:
            seeds += left[: 2 * len(seeds)]
            wanted = (Wanted(scaler, setting, part, seed) for part in PARTS for seed in seeds)
            self._trials.measure(wanted, self._carry_out)
            proof = self._proof(scaler, setting, seeds)
            if proof is None or not proof.met:
                break
        return proof

    def _safer(self, failed: Proof, known: Mapping[tuple[str, Setting], Proof]) -> list[Proof]:
        """Proofs of settings of its scaler that keep more than it on the first part, or cost more there: half of them
        the cheapest ones, the other half spread over the dearer ones. Each half is proven by itself: the cheap ones may
        be as lucky as it was.
        """
        scaler, tried = failed.scaler, self._choice.tried(failed.scaler)
        own = tried[failed.setting]
        left = [
            each
            for each in self._choice.cheapest(scaler)
            if self._is_open((scaler, each), known)
            and (tried[each].slo_share > own.slo_share or tried[each].replica_minutes > own.replica_minutes)
        ]
        most = min(FURTHER, self._choice.affordable("rest"))
        cheap, dear = left[: most - most // 2], spread(left[most - most // 2 :], most // 2)
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
        tried, found = self._choice.tried(scaler), list[Proof]()
        known = {each.setting for each in proofs if each.scaler == scaler}
        for _ in range(STEPS):
            best, own = _best([*proofs, *found]), _best([p for p in (*proofs, *found) if p.scaler == scaler])
            if best is None or own is None or own.cost > CLOSE * best.cost:
                break
            most = tried[own.setting].replica_minutes
            left = [each for each in self._choice.cheapest(scaler) if tried[each].replica_minutes <= most]
            batch = [each for each in left if each not in known][-min(FURTHER, self._choice.affordable("rest")) :]
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
        tried = self._choice.tried(scaler)
        most = inf if best is None else self._choice.tried(best.scaler)[best.setting].replica_minutes
        left = [
            each
            for each in self._choice.cheapest(scaler)
            if (scaler, each) not in chosen and tried[each].replica_minutes < most
        ]
        size = min(RESCUED, self._choice.affordable("rest"))
        proofs: list[Proof] = []
        for batch in batched([(scaler, each) for each in left[: size * RESCUES]], size):
            found = self._prove(batch)
            proofs += found
            if any(each.met for each in found) or (
                best is not None and min(map(_cost, found), default=inf) > best.cost
            ):
                break
        return proofs

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
        finalists = passed[: min(FINALISTS, self._choice.affordable("rest"))]
        published = [each for each in passed if not each[1]]
        at_once = 1 if "excerpt" in self._trials.parts else len(published)
        close = list(dict.fromkeys([*published[:at_once], *finalists, *cheapest_of_each]))
        left = [each for each in passed if each not in close]
        while close:
            wanted = (Wanted(*each, part, seed) for each in close for part in PARTS for seed in others)
            self._trials.measure(wanted, self._carry_out)
            proofs = [proof for each in passed if (proof := self._proof(*each)) is not None and proof.met]
            proven = {proof.scaler for proof in proofs if proof.setting}
            close = list({each[0]: each for each in reversed(left) if each[0] not in proven and each[1]}.values())
            if all(proof.setting for proof in proofs):  # the cheapest published one was not proven: the next
                close += [each for each in left if not each[1]][:1]
            left = [each for each in left if each not in close and (each[0] not in proven or not each[1])]
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


def batched(items: Sequence[tuple[str, Setting]], size: int) -> Iterator[Sequence[tuple[str, Setting]]]:
    """Consecutive parts of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))
