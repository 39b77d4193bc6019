"""How good `penstock advise` is, over drawn loads: `python -m tests.bench.evaluate_advice --loads 50 --out FILE`.

Each load is a wave, spikes, steps, on-off or like Azure's functions (a rate that changes every minute, here of 10 s, by
a lognormal factor, and timers), drawn by its number. Now and then a load is three times what the largest fleet serves:
nobody can meet it, and the advice has to say so. FILE gets a line for each load, and loads that are in it are not
played again, so that an evaluation can be done in parts; `--table` prints it.

**Best in hindsight**: the cheapest setting that the same search finds when it searches the held-out part itself, with
all its trials there, and that keeps the wanted share there by each of the seeds that prove an advice (1 to 3) and on
the mean of twenty other seeds (101 to 120). It need not keep the share on the first part, and has no margin. The
advised setting is one of the candidates. Both costs are means over seeds 101 to 120, which neither chose nor proved the
advice.
**Best on both parts**: the cheapest of those candidates that also keeps the share on the first part by seeds 1 to 3;
only such a one can be advised by what the first part shows.
"""

import argparse
import dataclasses
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import numpy as np

from experiments.advise.request import AdviceRequest
from experiments.advise.search import Search
from experiments.advise.session import ALLOWED, Session, carry_out, prepare, space_for, workers
from experiments.advise.settings import Setting
from experiments.advise.trial import Outcome
from experiments.advise.trials import PartName, Trials, Wanted
from experiments.advise.workers import CarryOut
from experiments.replay.trace import Floats

KINDS = ("wave", "spikes", "steps", "on-off", "azure")
SERVICE_RATE_PER_S = 200.0
PARTITIONS = 5
REBALANCE_S = 0.09
"""As long as live rebalances took when the results in experiments/advise were made (decision 0030)."""
TOO_MUCH = 11
"""Every so many loads, one that nobody can serve."""


PROVING, FRESH = range(1, 4), range(101, 121)
"""Seeds by which settings are proven, and by which they are compared."""
WITHIN: Final = 1.03
CANDIDATES: Final = 60
"""Settings that meet the share on the held-out part by the first seed, the cheapest first, of which the best in
hindsight is found.
"""

CLOSEST: Final = 3
"""Of these, so many that keep the share by all seeds are compared: their order by one seed is not that by others."""
SHARE: Final = 0.99

Choice = tuple[str, Setting]
"""A scaler and its setting."""


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its cost and share on the held-out part by the fresh seeds (means), and its lowest share on the
    first part by the proving seeds.
    """

    scaler: str
    setting: Setting
    cost: float
    share: float
    first_share: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One load. ``advised``: None where the advice says that none meets the SLO. ``tried``: whether the search of the
    advice had tried the best in hindsight on the first part. ``cpu_s``: of the advice alone.
    """

    number: int
    kind: str
    possible: bool
    advised: Best | None
    hindsight: Best | None = None
    on_both: Best | None = None
    tried: bool = False
    trials: int = 0
    cpu_s: float = 0.0

    def ratio(self, best: Best | None) -> float:
        """Cost of the advice over that of another setting."""
        return np.inf if self.advised is None or best is None else self.advised.cost / best.cost


def rates(number: int, seconds: int) -> tuple[str, bool, Floats]:
    """(kind, whether a fleet can serve it, events per second)."""
    rng = np.random.default_rng([17, number])
    kind, time_s = KINDS[number % len(KINDS)], np.arange(seconds)
    base, top = rng.uniform(50, 250), rng.uniform(400, 800)
    if kind == "wave":
        period_s = rng.uniform(60, seconds / 2)
        rate = base + (top - base) * (1 + np.sin(2 * np.pi * time_s / period_s)) / 2
    elif kind == "spikes":
        every_s, lasts_s = int(rng.integers(60, 150)), int(rng.integers(5, 30))
        rate = np.where(time_s % every_s >= every_s - lasts_s, top, base)
    elif kind == "steps":
        levels = rng.uniform(50, 800, seconds // 30 + 1)
        rate = levels[time_s // 30]
    elif kind == "azure":
        minute_s, timer_s = 10, int(rng.integers(60, 180))
        minutes = seconds // minute_s + 1
        noise = np.zeros(minutes)
        for minute in range(1, minutes):
            noise[minute] = 0.7 * noise[minute - 1] + rng.normal(0, 0.3)
        wave = 1 + 0.5 * np.sin(2 * np.pi * time_s / seconds + rng.uniform(0, 6))
        rate = np.minimum(base * wave * np.exp(noise[time_s // minute_s]), 800)
        rate = np.where(time_s % timer_s < minute_s, np.maximum(rate, top), rate)
    else:
        on_s, off_s = (int(rng.integers(20, 90)) for _ in range(2))
        rate = np.where(time_s % (on_s + off_s) < on_s, top, rng.uniform(0, 30))
    possible = number % TOO_MUCH != TOO_MUCH - 1
    return kind, possible, np.asarray(rate if possible else 3 * SERVICE_RATE_PER_S * PARTITIONS * rate / rate.mean())


class Compared:
    """Settings of one load, on each part by any seed."""

    def __init__(self, session: Session, run_trials: CarryOut, folder: Path) -> None:
        request = session.request
        self._run = run_trials
        self._of: dict[int, Trials] = {}
        for seeds in (PROVING, FRESH):
            (sub := folder / f"from-{seeds[0]}").mkdir()
            # With those that would confirm, at least three times as many have arrivals.
            parts = prepare(dataclasses.replace(request, seed=seeds[0], seeds=-(-len(seeds) // 3)), sub).parts
            known = Trials(parts, session.options, sub / "trials.jsonl")
            self._of |= dict.fromkeys(seeds, known)

    def shares(self, each: Choice, part: PartName, seeds: Sequence[int]) -> Iterator[float]:
        """By seed, simulated when asked for."""
        for seed in seeds:
            yield self._outcome(each, part, seed).slo_share

    def cost(self, each: Choice) -> float:
        """Mean of the fresh seeds."""
        return float(np.mean([self._outcome(each, "rest", seed).replica_minutes for seed in FRESH]))

    def best(self, each: Choice) -> Best:
        """With all its figures."""
        share = float(np.mean(list(self.shares(each, "rest", FRESH))))
        first = min(self.shares(each, "first", PROVING))
        return Best(scaler=each[0], setting=each[1], cost=self.cost(each), share=share, first_share=first)

    def keeps(self, each: Choice, share: float) -> bool:
        """On the held-out part, by every proving seed and the mean of the fresh ones."""
        if not all(found >= share for found in self.shares(each, "rest", PROVING)):
            return False
        return float(np.mean(list(self.shares(each, "rest", FRESH)))) >= share

    def keeps_first(self, each: Choice, share: float) -> bool:
        """On the first part, by every proving seed."""
        return all(found >= share for found in self.shares(each, "first", PROVING))

    def _outcome(self, each: Choice, part: PartName, seed: int) -> Outcome:
        wanted = Wanted(*each, part, seed)
        self._of[seed].measure([wanted], self._run)
        return self._of[seed].outcomes[wanted]


def evaluate(number: int, seconds: int, scalers: str) -> Result:
    """One load."""
    kind, possible, rate_per_s = rates(number, seconds)
    with TemporaryDirectory() as name:
        folder = Path(name)
        trace = folder / f"{kind}.csv"
        trace.write_text("rate_per_s\n" + "".join(f"{rate!r}\n" for rate in rate_per_s.tolist()), encoding="utf-8")
        settings = [f"system.rebalance_s={REBALANCE_S}"]
        request = AdviceRequest(trace=trace, slo=0.5, jobs=1, scalers=scalers, settings=settings)
        began_s = _cpu_s()
        session = prepare(request, folder)
        found = carry_out(session, lambda _: None, lambda _: None)
        result = Result(
            number=number, kind=kind, possible=possible, advised=None, trials=found.trials, cpu_s=_cpu_s() - began_s
        )
        best = found.advice.best
        if best is None:
            return result
        advised = best.scaler, tuple(sorted(best.setting.items()))
        known = Trials(session.parts, session.options, folder / "trials.jsonl")
        with workers(request, known, Wanted(*advised, "rest", 1)) as run_trials:
            compared = Compared(session, run_trials, folder)
            candidates = [advised, *_in_hindsight(session, run_trials, folder)]
            kept = (each for each in candidates if compared.keeps(each, request.share))
            hindsight = _cheapest(list(islice(kept, 1 + CLOSEST)), compared)
            both = (
                each
                for each in candidates
                if compared.keeps_first(each, request.share) and compared.keeps(each, request.share)
            )
            return msgspec.structs.replace(
                result,
                advised=compared.best(advised),
                hindsight=hindsight,
                on_both=_cheapest(list(islice(both, 1 + CLOSEST)), compared),
                tried=hindsight is not None and _tried(known, (hindsight.scaler, hindsight.setting)),
            )


def _in_hindsight(session: Session, run_trials: CarryOut, folder: Path) -> list[Choice]:
    """Settings that meet the share on the held-out part by the first seed, the cheapest first. What scalers are given
    in advance of the load, such as its peak, is that of the first part here, too.
    """
    first, rest = session.parts["first"], session.parts["rest"]
    experiment = dataclasses.replace(rest.experiment, common=first.experiment.common)
    searched = dataclasses.replace(rest, experiment=experiment)
    trials = Trials({"first": searched, "rest": searched}, session.options, folder / "hindsight.jsonl")
    share = session.request.share
    Search(trials, run_trials, wanted_share=share, seeds=PROVING).choose(
        [space_for(session, scaler) for scaler in session.options]
    )
    met = [
        each
        for each, outcome in trials.outcomes.items()
        if each.seed == PROVING[0] and not outcome.error and outcome.slo_share >= share
    ]
    met.sort(key=lambda each: trials.outcomes[each].replica_minutes)
    return [(each.scaler, each.setting) for each in met[:CANDIDATES]]


def _cheapest(kept: Sequence[Choice], compared: Compared) -> Best | None:
    """By the fresh seeds, of settings that keep the share."""
    return compared.best(min(kept, key=compared.cost)) if kept else None


def _tried(known: Trials, each: Choice) -> bool:
    wanted = Wanted(*each, "first", PROVING[0])
    return wanted in known.outcomes or wanted in known.given_up


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def good(result: Result, share: float) -> bool:
    """Within 3 % of the best in hindsight and with the share; where nobody can serve the load: that none is advised."""
    if result.advised is None or not result.possible:
        return result.advised is None and not result.possible
    return result.ratio(result.hindsight) <= WITHIN and result.advised.share >= share


def reason(result: Result, share: float) -> str:
    """Why a load is lost."""
    best, advised = result.hindsight, result.advised
    if not result.possible:
        return "the advice should have said that none can"
    if advised is None:
        return "no advice"
    if advised.share < share:
        return f"{advised.scaler} keeps {100 * advised.share:.2f} % by the fresh seeds"
    assert best is not None
    if best.first_share < share:
        return f"the best in hindsight keeps {100 * best.first_share:.2f} % on the first part"
    if not result.tried:
        return "the search on the first part did not try the best in hindsight"
    if best.first_share < 1 - ALLOWED * (1 - share):
        return f"the margin: the best in hindsight keeps {100 * best.first_share:.2f} % on the first part"
    return "the best in hindsight was tried on the first part and was not proven on the held-out one"


def table(results: Sequence[Result], share: float) -> str:
    """All loads in Markdown: lost ones first, the dearest first."""
    columns = ["load", "advised, replica-minutes", "cost over best in hindsight", "over best on both parts"]
    columns += ["share, fresh seeds", "best in hindsight", ""]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for each in sorted(results, key=lambda each: (good(each, share), -each.ratio(each.hindsight), each.number)):
        advised, best = each.advised, each.hindsight
        load, why = f"{each.number}, {each.kind}", "" if good(each, share) else f"lost: {reason(each, share)}"
        if advised is None or best is None:
            said = "none can" if advised is None else advised.scaler
            lines.append(
                f"| {load}{'' if each.possible else ', too much for any fleet'} | {said} | – | – | – | – | {why} |"
            )
            continue
        both = "–" if each.on_both is None else f"{each.ratio(each.on_both):.3f}"
        lines.append(
            f"| {load} | {advised.scaler}, {advised.cost:.1f} | {each.ratio(best):.3f} | {both} "
            f"| {100 * advised.share:.2f} % | {best.scaler}, {best.cost:.1f} | {why} |"
        )
    return "\n".join(lines)


def summary(results: Sequence[Result], share: float) -> str:
    """The figures of all loads."""
    could, refused = ([each for each in results if each.possible is can] for can in (True, False))
    advised = [each for each in could if each.advised is not None]
    ratios = sorted(each.ratio(each.hindsight) for each in advised)
    both = sorted(each.ratio(each.on_both) for each in advised)
    kept = sum(each.advised is not None and each.advised.share >= share for each in advised)
    lines = [
        f"{len(could)} loads that a fleet can serve: {len(advised)} advised, {kept} with the share by fresh seeds."
    ]
    for name, found in (("in hindsight", ratios), ("on both parts", both)):
        within, found = sum(ratio <= WITHIN for ratio in found), [ratio for ratio in found if ratio < np.inf]
        lines.append(
            f"Within 3 % of the best {name}: {within} of {len(could)}; cost over it of the {len(found)} that have one: "
            f"median {np.median(found):.3f}, highest {found[-1]:.3f}."
        )
    lines.append(f"{len(refused)} loads that none can serve: said so {sum(each.advised is None for each in refused)}.")
    return "\n".join(lines)


def _of_file(file: Path) -> list[Result]:
    return [msgspec.json.decode(line, type=Result) for line in file.read_bytes().splitlines()] if file.exists() else []


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=50, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seconds", type=int, default=600, help="length of a load")
    parser.add_argument("--scalers", default="", help="comma-separated names (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="file of results, continued")
    parser.add_argument("--table", action="store_true", help="print what is in the file, play nothing")
    given = parser.parse_args()
    if given.table:
        results = _of_file(given.out)
        print(f"{summary(results, SHARE)}\n\n{table(results, SHARE)}")
        return
    for number in range(given.first, given.first + given.loads):
        if any(each.number == number for each in _of_file(given.out)):
            continue
        result = evaluate(number, given.seconds, given.scalers)
        with given.out.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
        print(
            table([result], SHARE).splitlines()[-1], f"{result.trials} trials, {result.cpu_s:.0f} s of CPU", flush=True
        )


if __name__ == "__main__":
    main()
