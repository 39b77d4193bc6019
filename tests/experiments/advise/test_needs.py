"""What would have to change is searched by simulation, here by made-up outcomes: the least, and in few trials."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from experiments.advise.advice import advise
from experiments.advise.needs import ConstantFleet, Needs, needs_of
from experiments.advise.request import AdviceRequest
from experiments.advise.search import Proof
from experiments.advise.session import Session, prepare
from experiments.advise.trial import Outcome, Trial
from experiments.advise.trials import Trials
from experiments.advise.workers import Tell
from penstock.runspec import RunSpec
from penstock.systems import StreamSystem

RatesFile = Callable[[Iterable[float]], Path]
CLOSEST = Proof(
    scaler="rps",
    setting=(),
    met=False,
    first_shares=(1.0,),
    rest_shares=(0.985,),
    replica_minutes=(1.0,),
    p99_s=None,
)
TWO = ConstantFleet(replicas=2, replica_minutes=1.0)


class Fleets:
    """Carries out trials: a run keeps all events or none."""

    def __init__(self, keeps: Callable[[RunSpec], bool]) -> None:
        self._keeps = keeps
        self.trials: list[Trial] = []

    def __call__(self, trials: Sequence[Trial], tell: Tell) -> None:
        self.trials += trials
        for number, each in enumerate(trials):
            tell(number, Outcome(slo_share=float(self._keeps(each.spec)), replica_minutes=1.0))


@pytest.fixture
def session(tmp_path: Path, rates_file: RatesFile) -> Session:
    request = AdviceRequest(trace=rates_file([300.0] * 40), slo=0.5, scalers="rps", seeds=1, share=0.98)
    return prepare(request, tmp_path)


def needs(session: Session, fleets: Fleets, constant: ConstantFleet | None = TWO) -> tuple[Needs, list[str]]:
    known, phases = Trials(session.parts, session.options, session.folder / "trials.jsonl"), list[str]()
    found = needs_of(
        session.plan, known, constant, CLOSEST, session.request, session.folder, fleets, phases.append
    )  # fmt: skip
    return found, phases


def start_up_s(spec: RunSpec) -> float:
    assert isinstance(spec.system, StreamSystem)
    return spec.system.start_up_s


def test_a_start_up_is_searched_by_the_seeds_that_confirm_too(session: Session) -> None:
    fleets = Fleets(lambda spec: spec.seed == 1 or start_up_s(spec) <= 0.9)
    found, phases = needs(session, fleets)
    assert found.start_up_s is not None and 0.85 < found.start_up_s <= 0.9, "seeds from 2 on confirm"
    assert phases == ["needs: replicas", "needs: service rate", "needs: start-up"]


def test_a_start_up_that_is_not_in_the_way_is_not_told(session: Session) -> None:
    fleets = Fleets(lambda _: True)
    assert needs(session, fleets)[0].start_up_s is None
    assert len(fleets.trials) < 10


def test_a_start_up_that_is_hardly_too_long_is_found_in_few_trials(session: Session) -> None:
    fleets = Fleets(lambda spec: start_up_s(spec) < 1.2)
    found, _ = needs(session, fleets)
    assert found.start_up_s == 1.19, "never rounded to the present one"
    assert len(fleets.trials) < 100


def test_the_constant_fleet_that_would_be_enough_is_the_least_one(session: Session) -> None:
    found, _ = needs(session, Fleets(lambda spec: spec.scaler.name == "timetable"))
    assert found.replicas == TWO.replicas
    sentence = advise(
        session.plan, session.request, Trials(session.parts, session.options, session.folder / "none"), [CLOSEST],
        TWO, found,
    ).sentence  # fmt: skip
    assert "a constant fleet of 2 replicas" in sentence
    assert (
        "closest is rps, which keeps 98.5\u00a0% of the events within 500\u00a0ms (98.0\u00a0% wanted, by every seed)"
        in (sentence)
    )


def test_where_no_allowed_fleet_is_enough_a_larger_one_is_searched(session: Session) -> None:
    found, _ = needs(session, Fleets(lambda spec: spec.initial_replicas >= 7), constant=None)
    assert found.replicas == 7


def test_shares_of_partitions_that_are_given_allow_no_larger_fleet(tmp_path: Path, rates_file: RatesFile) -> None:
    request = AdviceRequest(trace=rates_file([300.0] * 40), slo=0.5, scalers="rps", seeds=1, skew="0.5,0.5")
    found, _ = needs(prepare(request, tmp_path), Fleets(lambda _: True), constant=None)
    assert found.replicas is None
