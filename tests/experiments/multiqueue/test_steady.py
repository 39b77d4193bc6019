"""M/M/s/K measured by batch means: against the formula in virtual time, and on RabbitMQ."""

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.experiment import Options
from experiments.multiqueue import steady
from experiments.multiqueue.steady import CLAIMED, Point, Steady
from experiments.multiqueue.tables import HEADINGS, WARM_UP_S, Estimate, by_formula
from penstock.command import build
from penstock.systems import QueueSystem
from tests.experiments.conftest import Play
from tests.support.changed import LIVE_RUN

SMALL = Point(80, capacity=15)
MEASURED = [HEADINGS.index(heading) for heading in CLAIMED]
QUIET = Console(quiet=True)


def test_all_containers_are_there_before_the_warm_up_is_over() -> None:
    system = steady.experiment(Point(100), 60).system
    assert isinstance(system, QueueSystem)
    assert (system.capacity, system.max_containers, system.when_full) == (50, 10, "drop")
    assert 1 + system.ramp_step >= system.max_containers
    assert system.ramp_s < WARM_UP_S


def test_batch_means_cover_the_formula_in_virtual_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    (found,) = steady.measure_points([SMALL], 1500.0, Options(world="sim", analytics=False), QUIET)
    assert found.controlled is None, "it would be its own control"
    for k in range(len(HEADINGS)):
        # All of them miss together, once in twenty times by one half-width, practically never by two.
        assert abs(found.measured.mean[k] - found.exact[k]) <= 2 * found.measured.half[k], HEADINGS[k]
        assert 0 < found.measured.half[k] <= 0.1 * found.exact[k], HEADINGS[k]


def test_another_speed_gives_the_measures_of_the_same_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    slow, fast = (
        steady.measure_points([SMALL], 100.0, Options(world="sim", analytics=False, speed=speed), QUIET)[0].measured
        for speed in (1.0, 10.0)
    )
    for k in MEASURED:
        assert fast.mean[k] == pytest.approx(slow.mean[k], abs=2 * (fast.half[k] + slow.half[k]))


def estimates(control: float) -> Steady:
    """Something live that is 2 % above the formula, whose simulation is ``control`` above it."""
    exact = by_formula(SMALL.rate_per_s, SMALL.servers, SMALL.capacity)
    one = Estimate(exact, (0.0,) * len(exact))
    controlled = Estimate(tuple(x * (1.02 - control) for x in exact), one.half)
    return Steady(SMALL, "VALID", exact, one, one, controlled)


@pytest.mark.parametrize(("control", "said"), [(0.0, "+2.0%"), (-0.1, "+12.0%")])
def test_the_conclusion_is_about_what_the_machine_does_to_the_queue(control: float, said: str) -> None:
    text = steady.conclusion(estimates(control))
    assert said in text
    assert ("DOES NOT HOLD" in text) == (control != 0)


def test_the_program_keeps_its_runs_and_prints_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    first, again = (CliRunner().invoke(build(), ["paper", "multiqueue", "steady", "--seconds", "20"]) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.stdout.count("farthest from the formula") == 3
    assert again.stdout == first.stdout
    assert len(list(tmp_path.glob("*/manifest.json"))) == 3


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.when_changed(*LIVE_RUN)
def test_a_queue_on_rabbitmq_is_the_queue_of_the_formula(play: Play, tmp_path: Path) -> None:
    """20 s of load after the warm-up, beyond what ten containers serve, so that a sender on a busy machine that is late
    now and then finds the queue full all the same. The control takes out what chance did to this one run.
    """
    point, seconds = Point(120), 20.0
    options = Options(world="local", analytics=False)
    live, summary = play(steady.experiment(point, seconds), steady.SCALER, options)
    assert summary.conservation.exact, summary.conservation
    (twin,) = steady.runs_of([point], seconds, Options(world="sim", analytics=False), tmp_path, QUIET)
    found = steady.steady(point, seconds, live, twin)
    assert found.controlled is not None
    for k in MEASURED:
        name, exact = HEADINGS[k], found.exact[k]
        assert found.controlled.half[k] < found.measured.half[k], f"{name}: the control knows nothing of this run"
        assert abs(found.controlled.mean[k] - exact) <= 0.1 * exact + found.controlled.half[k], (name, found)
        assert abs(found.measured.mean[k] - exact) <= 0.1 * exact + 2 * found.measured.half[k], (name, found)
