"""One request from its trace to its advice, in a folder that a later session can continue."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from experiments.advise.advice import Advice, Row, advise, rows_of
from experiments.advise.manifests import trials_of
from experiments.advise.needs import constant_fleet, needs_of
from experiments.advise.parts import confirming_of, parts_of, seeds_of
from experiments.advise.request import AdviceRequest
from experiments.advise.search import Proof, Search
from experiments.advise.settings import Space, space_of
from experiments.advise.trial import Outcome, Trial
from experiments.advise.trials import Part, PartName, Trials, Wanted
from experiments.advise.workers import CarryOut, Tell, on_processes, on_spark
from experiments.experiment import Options, world_facts
from experiments.processes import cores
from experiments.replay.plan import TracePlan, default_scalers, make_plan, names, options_of
from penstock.errors import PenstockError
from penstock.parameters import parse_settings
from penstock.registry import find_scaler, is_clairvoyant, parse_scaler

TRIALS = "trials.jsonl"
ADVICE = "advice.json"
ALLOWED = 0.9
"""Part of the late events that the SLO allows which a setting may have when it is chosen, and on the mean of the seeds
when it is proven.
"""


@dataclass(frozen=True, slots=True)
class Session:
    """A request in its folder, before its first trial. ``options``: of each scaler."""

    request: AdviceRequest
    folder: Path
    plan: TracePlan
    options: dict[str, Options]
    parts: dict[PartName, Part]


@dataclass(frozen=True, slots=True)
class Found:
    """The advice, the best row of each scaler, and the number of trials."""

    advice: Advice
    rows: list[Row]
    trials: int


def prepare(request: AdviceRequest, folder: Path) -> Session:
    """Read the trace and write both parts. PenstockError for a request that cannot be carried out."""
    _check(request)
    plan = make_plan(request, folder)
    if request.tick_phase is not None:
        plan = replace(plan, experiment=replace(plan.experiment, tick_phase_s=request.tick_phase))
    scalers = names(request.scalers) or default_scalers(plan.experiment)
    options = options_of(plan, scalers)
    for scaler in scalers:
        if is_clairvoyant(find_scaler(parse_scaler(scaler))):
            alone = f"`penstock replay TRACE --scaler {scaler} …` runs it alone"
            raise PenstockError(f"{scaler} knows all rates in advance and cannot be advised: {alone}")
    first = next(iter(options))
    return Session(request, folder, plan, options, parts_of(plan, request, options[first], first, folder))


def carry_out(session: Session, phase: Callable[[str], None], told: Callable[[int], None]) -> Found:
    """Search, prove and advise. ``phase`` is called with each step, ``told`` with the number of trials known so far."""
    request = session.request
    known = Trials(session.parts, session.options, session.folder / TRIALS, lambda: told(known.number))
    spaces = [space_for(session, scaler) for scaler in session.options]
    first = Wanted(spaces[0].scaler, (), "first", request.seed)
    with workers(request, known, first) as run_trials:
        proofs: list[Proof] = []
        # What keeps the share by a hair with these seeds may miss it with others: a margin, if that can be had.
        for wanted_share in () if session.plan.hopeless else (1 - ALLOWED * (1 - request.share), request.share):
            search = Search(
                known,
                run_trials,
                wanted_share=wanted_share,
                lowest_share=request.share,
                seeds=seeds_of(request),
                confirming=confirming_of(request, session.parts),
                phase=phase,
            )
            search.choose(spaces)
            proofs = search.prove(spaces)
            if any(proof.met for proof in proofs):
                break
        met = any(proof.met for proof in proofs)
        phase("constant fleet")
        beside = _told(run_trials, known, told)
        constant = None if session.plan.hopeless else constant_fleet(session.parts, request, beside)
        closest = proofs[0] if proofs else None
        needs = None
        if not met:
            needs = needs_of(session.plan, known, constant, closest, request, session.folder, beside, phase)
        advice = advise(session.plan, request, known, proofs, constant, needs)
        rows = rows_of(proofs, request.price)[0]
        advice = msgspec.structs.replace(advice, manifests=_as_promised(advice, rows, known, run_trials))
    (session.folder / ADVICE).write_bytes(msgspec.json.format(msgspec.json.encode(advice), indent=2) + b"\n")
    return Found(advice, rows, known.number)


def _told(run_trials: CarryOut, known: Trials, told: Callable[[int], None]) -> CarryOut:
    """The same, with progress of trials that are not kept."""
    number = known.number

    def carry_out(trials: Sequence[Trial], tell: Tell) -> None:
        def tell_both(index: int, outcome: Outcome) -> None:
            nonlocal number
            number += 1
            tell(index, outcome)
            told(number)

        run_trials(trials, tell_both)

    return carry_out


def _as_promised(advice: Advice, rows: Sequence[Row], known: Trials, run_trials: CarryOut) -> dict[str, str]:
    """The YAML that, read back and simulated on the rest of the trace, gives the figures of its row."""
    kept = {}
    for row in rows:
        if text := advice.manifests.get(row.scaler):
            setting = tuple(row.setting.items())
            wanted = (Wanted(row.scaler, setting, "rest", seed) for seed in known.parts["rest"].arrivals)
            promised = {each.seed: found for each in wanted if (found := known.found(each)) is not None}
            outcomes: dict[int, Outcome] = {}
            run_trials(trials_of(text, known, list(promised)), outcomes.__setitem__)
            if [outcomes[number] for number in range(len(promised))] == list(promised.values()):
                kept[row.scaler] = text
    return kept


def _check(request: AdviceRequest) -> None:
    if request.engine not in ("local", "spark"):
        raise PenstockError(f"--engine {request.engine}: choose local or spark")
    for option, value in (("--jobs", request.jobs), ("--seeds", request.seeds)):
        if value is not None and value < 1:
            raise PenstockError(f"{option} {value}: has to be at least 1")
    if not 0 < request.chosen_on < 1:
        raise PenstockError(f"--chosen-on {request.chosen_on:g}: a part of the trace between 0 and 1, such as 0.5")


def space_for(session: Session, scaler: str) -> Space:
    """The space of a scaler; what ``--set`` has fixed is not searched."""
    experiment, spec = session.parts["first"].experiment, parse_scaler(scaler)
    facts = world_facts(experiment, experiment.worker, experiment.system, experiment.max_replicas)
    fixed = parse_settings(session.request.settings or ()).get(spec.name, {})
    space = space_of(
        scaler, find_scaler(spec), {**facts, **experiment.common}, tick_phase=session.request.tick_phase is None
    )
    return replace(space, values={name: values for name, values in space.values.items() if name not in fixed})


@contextlib.contextmanager
def workers(request: AdviceRequest, known: Trials, first: Wanted) -> Iterator[CarryOut]:
    """Processes or Spark, as requested; ``first`` warms them up."""
    jobs = request.jobs or cores()
    with on_spark(jobs) if request.engine == "spark" else on_processes(jobs, known.trial(first)) as run_trials:
        yield run_trials
