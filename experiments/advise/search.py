"""The search: every scaler at its best on the first part of the trace, then proven on the rest by several seeds."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from experiments.advise.settings import Setting, Space
from experiments.advise.trial import Outcome
from experiments.advise.trials import PartName, Trials, Wanted
from experiments.advise.workers import CarryOut

PARTS: Final[tuple[PartName, ...]] = ("first", "rest")
ROUNDS: Final = 4
"""Of refinement around the best settings."""
TOO_DEAR: Final = 1.6
"""A scaler whose best costs so many times the cheapest of all is refined no further."""
PROVEN: Final = 8
"""Settings of a scaler that are proven on the rest: as many from its cheapest to its safest, and its cheapest ones."""
RESCUED: Final = 24
"""Settings that are proven at a time where none of those was."""
CLOSE: Final = 1.3
"""Settings that cost at most so many times the cheapest are proven by all seeds."""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was chosen on the first part, by seed: share of events within the SLO on each part, and cost on
    the rest. ``met``: every share reaches the wanted one. ``p99_s``: the highest on the rest.
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
    """Of one request. ``phase`` is called with the name of each step."""

    def __init__(
        self,
        trials: Trials,
        carry_out: CarryOut,
        *,
        wanted_share: float,
        seeds: Sequence[int],
        phase: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._trials, self._carry_out, self._share, self._seeds = trials, carry_out, wanted_share, seeds
        self._phase = phase

    # --- on the first part -------------------------------------------------------------------------------------------

    def choose(self, spaces: Sequence[Space]) -> None:
        """Try the settings of every scaler, then those around its best ones."""
        seed = self._seeds[0]
        self._phase("settings")
        self._measure(spaces, lambda space: space.first(seed))
        for number in range(ROUNDS):
            self._phase(f"refinement {number + 1} of {ROUNDS}")
            cheapest = min(self._costs(space.scaler) for space in spaces)
            self._measure(
                [space for space in spaces if self._costs(space.scaler) <= TOO_DEAR * cheapest],
                lambda space: space.around(self._good(space.scaler), self._tried(space.scaler)),
            )

    def _measure(self, spaces: Sequence[Space], settings: Callable[[Space], Iterable[Setting]]) -> None:
        wanted = [Wanted(space.scaler, each, "first", self._seeds[0]) for space in spaces for each in settings(space)]
        self._trials.measure(wanted, self._carry_out)

    def _tried(self, scaler: str) -> dict[Setting, Outcome]:
        """Settings of a scaler on the first part under which it did not fail."""
        return {
            wanted.setting: outcome
            for wanted, outcome in self._trials.outcomes.items()
            if (wanted.scaler, wanted.part, wanted.seed) == (scaler, "first", self._seeds[0]) and not outcome.error
        }

    def _costs(self, scaler: str) -> float:
        """Of its cheapest setting that meets the SLO; infinite if none does."""
        tried = self._tried(scaler)
        return min((each.replica_minutes for each in tried.values() if each.slo_share >= self._share), default=math.inf)

    def _front(self, scaler: str) -> list[Setting]:
        """Settings that meet the SLO, from the cheapest to the safest: each dearer one keeps more than those before."""
        tried = sorted(self._tried(scaler).items(), key=lambda each: (each[1].replica_minutes, -each[1].slo_share))
        front: list[Setting] = []
        kept = -1.0
        for setting, outcome in tried:
            if outcome.slo_share > kept and outcome.slo_share >= self._share:
                front.append(setting)
                kept = outcome.slo_share
        return front

    def _good(self, scaler: str) -> list[Setting]:
        """Settings worth refining: the cheapest, and the cheapest with half and a tenth of the late events that are
        allowed; the two closest where none meets the SLO.
        """
        tried, front = self._tried(scaler), self._front(scaler)
        if not front:
            return sorted(tried, key=lambda each: -tried[each].slo_share)[:2]
        late = 1 - self._share
        safe = (next((each for each in front if 1 - tried[each].slo_share <= part * late), None) for part in (0.5, 0.1))
        return list(dict.fromkeys([front[0], *(each for each in safe if each is not None)]))

    # --- on the rest -------------------------------------------------------------------------------------------------

    def prove(self, spaces: Sequence[Space]) -> list[Proof]:
        """Proofs of each scaler's best settings and of its published one, the met ones first, by cost."""
        self._phase("proof")
        chosen = {(space.scaler, setting): None for space in spaces for setting in ((), *self._shortlist(space.scaler))}
        proofs = self._prove(list(chosen))
        if not any(proof.met for proof in proofs):
            others = [(space.scaler, each) for space in spaces for each in self._tried(space.scaler)]
            met = [
                each for each in others if each not in chosen and self._meets(Wanted(*each, "first", self._seeds[0]))
            ]
            met.sort(key=lambda each: self._tried(each[0])[each[1]].replica_minutes)
            for batch in batched(met, RESCUED):
                proofs += self._prove(batch)
                if any(proof.met for proof in proofs):
                    break
        return sorted(proofs, key=lambda each: (not each.met, each.cost if each.met else -each.least_share))

    def _shortlist(self, scaler: str) -> list[Setting]:
        front, tried = self._front(scaler), self._tried(scaler)
        if not front:
            return self._good(scaler)
        met = [each for each in tried if tried[each].slo_share >= self._share]
        return [*_spread(front), *sorted(met, key=lambda each: tried[each].replica_minutes)[:PROVEN]]

    def _prove(self, chosen: Sequence[tuple[str, Setting]]) -> list[Proof]:
        """By the first seed; then by every seed what is not far from the cheapest, and of each scaler one setting after
        the other until one is proven.
        """
        first, *others = self._seeds
        self._trials.measure((Wanted(*each, part, first) for each in chosen for part in PARTS), self._carry_out)
        passed = [each for each in chosen if all(self._meets(Wanted(*each, part, first)) for part in PARTS)]
        costs = {each: self._trials.outcomes[Wanted(*each, "rest", first)].replica_minutes for each in passed}
        passed.sort(key=lambda each: costs[each])
        close = [each for each in passed if not each[1] or costs[each] <= CLOSE * costs[passed[0]]]
        left = [each for each in passed if each not in close]
        while close:
            wanted = (Wanted(*each, part, seed) for each in close for part in PARTS for seed in others)
            self._trials.measure(wanted, self._carry_out)
            proven = {
                scaler
                for scaler, setting in passed
                if setting
                and all(self._meets(Wanted(scaler, setting, part, seed)) for part in PARTS for seed in self._seeds)
            }
            close = list({each[0]: each for each in reversed(left) if each[0] not in proven}.values())
            left = [each for each in left if each not in close and each[0] not in proven]
        return [proof for each in chosen if (proof := self._proof(*each)) is not None]

    def _meets(self, wanted: Wanted) -> bool:
        outcome = self._trials.outcomes.get(wanted)
        return outcome is not None and not outcome.error and outcome.slo_share >= self._share

    def _proof(self, scaler: str, setting: Setting) -> Proof | None:
        """None for a setting under which the scaler failed."""
        outcomes = {
            part: [
                found
                for seed in self._seeds
                if (found := self._trials.outcomes.get(Wanted(scaler, setting, part, seed))) is not None
            ]
            for part in PARTS
        }
        first, rest = outcomes["first"], outcomes["rest"]
        if not rest or any(each.error for each in (*first, *rest)):
            return None
        shares = [each.slo_share for each in (*first, *rest)]
        return Proof(
            scaler=scaler,
            setting=setting,
            met=len(shares) == 2 * len(self._seeds) and min(shares) >= self._share,
            first_shares=tuple(each.slo_share for each in first),
            rest_shares=tuple(each.slo_share for each in rest),
            replica_minutes=tuple(each.replica_minutes for each in rest),
            p99_s=max((each.p99_s for each in rest if each.p99_s is not None), default=None),
        )


def _spread(front: Sequence[Setting]) -> list[Setting]:
    """As many as are proven, evenly from the cheapest to the safest."""
    last = len(front) - 1
    picked = {round(number * last / (PROVEN - 1)) for number in range(PROVEN)} if last >= PROVEN else range(last + 1)
    return [front[number] for number in sorted(picked)]


def batched(items: Sequence[tuple[str, Setting]], size: int) -> Iterator[Sequence[tuple[str, Setting]]]:
    """Consecutive parts of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))
