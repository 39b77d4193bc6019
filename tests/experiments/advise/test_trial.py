"""A trial is given up as soon as it exceeds a limit; limits that it keeps change nothing."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from controller.scalers.shared.base import TOLERANCE_S
from experiments.advise.request import AdviceRequest
from experiments.advise.session import prepare
from experiments.advise.trial import NO_LIMITS, Limits, Trial, simulate
from experiments.advise.trials import Trials, Wanted
from penstock.errors import PenstockError
from penstock.measures import replica_seconds
from penstock.registry import make_scaler
from penstock.schedule import Schedule
from simulator.clock import nanos
from simulator.in_memory_run import run_to_end
from simulator.stream import make_engine

RatesFile = Callable[[Iterable[float]], Path]


@pytest.fixture
def trial(tmp_path: Path, rates_file: RatesFile) -> Trial:
    """A fleet of rps under load that it is too small for at first."""
    request = AdviceRequest(trace=rates_file(([50.0] * 20 + [600.0] * 20) * 4), slo=0.5, scalers="rps")
    session = prepare(request, tmp_path)
    return Trials(session.parts, session.options, tmp_path / "trials.jsonl").trial(Wanted("rps", (), "first", 1))


def limited(trial: Trial, late_share: float, replica_minutes: float) -> Trial:
    return msgspec.structs.replace(trial, limits=Limits(late_share=late_share, replica_minutes=replica_minutes))


def test_a_trial_has_the_figures_of_a_run_with_all_its_results(trial: Trial) -> None:
    exponential = msgspec.structs.replace(trial.spec.worker, service_law="exponential")
    for spec in (
        trial.spec,
        msgspec.structs.replace(trial.spec, worker=exponential),
        msgspec.structs.replace(trial.spec, seed=2),
    ):
        run = run_to_end(spec, make_engine(spec, Schedule.read(Path(trial.schedule))), make_scaler(spec.scaler))
        intended_s, response_s = run.responses()
        # The first time with service times that are drawn, then with those that are remembered.
        for lead_in_s in (0.0, trial.lead_in_s):
            outcome = simulate(msgspec.structs.replace(trial, spec=spec, lead_in_s=lead_in_s))
            response_s = response_s[intended_s >= lead_in_s]
            cost = replica_seconds(run.events, nanos(lead_in_s), nanos(spec.duration_s)) / 60
            assert outcome.replica_minutes == cost
            assert outcome.slo_share == (response_s <= spec.slo_s + TOLERANCE_S).mean()
            assert outcome.p99_s == np.quantile(response_s, 0.99, method="inverted_cdf")


def test_limits_that_are_kept_change_nothing(trial: Trial) -> None:
    outcome = simulate(trial)
    assert 0 < outcome.slo_share < 0.99, "the test needs late events"
    assert simulate(limited(trial, 1 - outcome.slo_share, 1.1 * outcome.replica_minutes)) == outcome


def test_too_many_late_events_or_too_high_a_cost_end_a_trial(trial: Trial) -> None:
    outcome = simulate(trial)
    late = simulate(limited(trial, (1 - outcome.slo_share) / 2, 1e9))
    dear = simulate(limited(trial, 1.0, outcome.replica_minutes / 2))
    assert late.given_up and dear.given_up and not outcome.given_up
    assert late.slo_share < 0.99, "an estimate from what has arrived so far"
    assert dear.replica_minutes == pytest.approx(outcome.replica_minutes, rel=0.5)


def test_what_was_given_up_is_tried_again_without_limits_and_stays_given_up_with_them(
    tmp_path: Path, rates_file: RatesFile
) -> None:
    request = AdviceRequest(trace=rates_file(([50.0] * 20 + [600.0] * 20) * 2), slo=0.5, scalers="rps")
    session = prepare(request, tmp_path)
    file, wanted, limits = tmp_path / "trials.jsonl", Wanted("rps", (), "first", 1), Limits(late_share=0.001)
    known = Trials(session.parts, session.options, file)

    def carry_out(trials: list[Trial], tell: Callable[[int, object], None]) -> None:
        for number, each in enumerate(trials):
            tell(number, simulate(each))

    known.measure([wanted], carry_out, limits)  # type: ignore[arg-type]
    assert known.found(wanted) is None
    given_up = known.found(wanted, limits)
    known.measure([wanted], carry_out)  # type: ignore[arg-type]
    for trials in (known, Trials(session.parts, session.options, file)):  # as it was, and as it is read again
        whole = trials.found(wanted)
        assert whole is not None and not whole.given_up
        assert trials.found(wanted, limits) == given_up and trials.number == 1


@pytest.mark.parametrize("limits", [NO_LIMITS, Limits(late_share=0.5)])
def test_without_events_there_is_no_share(trial: Trial, limits: Limits) -> None:
    with pytest.raises(PenstockError, match="no event after the lead-in of 1000 s"):
        simulate(msgspec.structs.replace(trial, lead_in_s=1000.0, limits=limits))


def test_the_tick_phase_that_is_asked_for_is_simulated(tmp_path: Path, rates_file: RatesFile) -> None:
    for asked_s, phase_s in ((None, 0.1), (0.35, 0.35)):
        request = AdviceRequest(trace=rates_file([300.0] * 40), slo=0.5, scalers="rps", tick_phase=asked_s)
        session = prepare(request, tmp_path)
        known = Trials(session.parts, session.options, tmp_path / "trials.jsonl")
        assert known.spec(Wanted("rps", (), "first", 1)).tick_phase_s == phase_s
        assert known.spec(Wanted("rps", (("--tick-phase", 0.6),), "first", 1)).tick_phase_s == 0.6
