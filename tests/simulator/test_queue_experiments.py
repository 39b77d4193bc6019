"""The two papers' set-ups as they run: printed tables against formula, simulation and golden vectors; the stories."""

import json
from math import isnan
from pathlib import Path

import pytest

from controller.fleets.queue.container_ramp import check_system
from experiments.elastic_faas import tables as faas
from experiments.elastic_faas.experiments import EXPERIMENTS as FAAS_EXPERIMENTS
from experiments.experiment import Experiment
from experiments.multiqueue import tables as multiqueue
from experiments.multiqueue.experiments import EXPERIMENTS as MULTIQUEUE_EXPERIMENTS
from experiments.multiqueue.steady import MultiqueueSettings
from experiments.paper import Request
from penstock.systems import QueueSystem
from producers.schedule import make_schedule
from producers.workloads import parse_workload
from simulator.engine import COMPLETED, REJECTED
from simulator.queue_measures import measure
from tests.simulator.queue_playing import bank, schedule_at

GOLDEN = Path(__file__).parents[1] / "golden"
MMSK = json.loads((GOLDEN / "mmsk.json").read_text())["given"]
FAAS = json.loads((GOLDEN / "faas.json").read_text())["given"]


@pytest.mark.parametrize("experiment", [*MULTIQUEUE_EXPERIMENTS, *FAAS_EXPERIMENTS], ids=lambda e: e.name)
def test_an_experiment_can_be_scheduled_and_simulated(experiment: Experiment) -> None:
    assert isinstance(experiment.system, QueueSystem)
    check_system(experiment.system)
    workload = parse_workload(experiment.workload)
    assert workload.duration_s == experiment.seconds
    assert len(make_schedule(workload, seed=1, partitions=1, arrivals=experiment.arrivals, seconds=5)) > 0


@pytest.mark.parametrize(("table", "rate_per_s"), [("table1", 200), ("table2", 100)])
def test_the_printed_rows_are_those_of_the_golden_file(table: str, rate_per_s: int) -> None:
    columns = MMSK["columns"]
    wanted = [columns.index(name) for name in ("PK", "lam_e", "lam_lost", "Lq", "L", "Wq", "W")]
    rows = [tuple(row[at] for at in wanted) for row in MMSK[table]["rows"]]
    assert list(multiqueue.PRINTED_ROWS[rate_per_s]) == rows[:10]
    assert rows[9:] == [rows[9]] * 3


def test_the_formula_gives_every_printed_cell_but_four() -> None:
    assert multiqueue.differences(200) == []
    assert [text.split(":")[0] for text in multiqueue.differences(100)] == [
        "λ = 100, s = 10, λ(1-P_K)",
        "λ = 100, s = 10, λ P_K",
        "λ = 100, s = 10, L_q",
        "λ = 100, s = 10, L",
    ]


def test_a_simulated_row_is_near_the_formula() -> None:
    exact, simulated = multiqueue.by_formula(200, 10), multiqueue.steady(200, 10, replications=5)
    for value, mean, half in zip(exact, simulated.mean, simulated.half, strict=True):
        assert abs(mean - value) <= 4 * half


def test_a_function_that_starts_with_nothing_loses_less_at_first_than_the_steady_state_says() -> None:
    """The queue of 50 has to fill before it loses anything."""
    first, second, *_ = multiqueue.ramps(200, 1, replications=40)
    p_full = multiqueue.MEASURES.index("p_full")
    assert first.mean[p_full] < 0.75 < 0.95 == pytest.approx(multiqueue.by_formula(200, 1)[p_full])
    assert abs(second.mean[p_full] - multiqueue.by_formula(200, 2)[p_full]) <= 4 * second.half[p_full]


def test_two_queues_lose_less_than_one_and_the_damped_split_less_than_the_printed() -> None:
    story = MULTIQUEUE_EXPERIMENTS[0]
    played = {scaler: multiqueue.run_experiment(story.name, scaler) for scaler in multiqueue.SCALERS}
    outcomes = {scaler: multiqueue.outcome(run, scaler) for scaler, run in played.items()}
    single, printed, damped = (outcomes[name] for name in ("single-queue", "multiqueue", "multiqueue-damped"))
    assert single["late_lost_share"] == pytest.approx(0.5, abs=0.02)
    assert damped["late_lost_share"] < printed["late_lost_share"] < single["late_lost_share"]
    assert (single["most_queues"], printed["most_queues"], damped["most_queues"]) == (1, 2, 2)
    # All of it goes to one queue, then to the other: the ratios as printed never settle (spec 1.12).
    late = list(multiqueue.timeline(played["multiqueue"], "multiqueue"))[20:60]
    assert {row["shares"] for row in late} == {"0.00 1.00", "1.00 0.00"}


def test_the_printed_constants_go_out_and_in_again_every_three_cycles() -> None:
    printed = MULTIQUEUE_EXPERIMENTS[1]
    played = multiqueue.run_experiment(printed.name, "multiqueue")
    cycles = [row["cycle"] for row in multiqueue.timeline(played, "multiqueue")][9:69]
    assert cycles == ["scale_out", "cancel", "scale_in"] * 20
    assert multiqueue.run_experiment(MULTIQUEUE_EXPERIMENTS[0].name, "single-queue").results.id.size > 0


def test_table_1_of_elastic_faas_is_met_by_formula_and_simulation() -> None:
    printed = [list(row.values()) for row in faas.PRINTED]
    assert printed == FAAS["table1"]["rows"]
    assert list(map(list, faas.simulated_table_1())) == printed
    cells = [cell for row in faas.table_1() for title, cell in row.items() if title not in ("time", "live")]
    assert len(cells) == 4 * len(printed) and all(cell["printed"] == cell["formula"] for cell in cells)
    assert (faas.time_to(30, (0.0,)), faas.time_to(30, (0.0, 10.0, 20.0))) == (58, 28)


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_intent_sheds_less_than_one_function_and_the_printed_rule_does_not(seed: int) -> None:
    outcomes = {name: faas.outcome(faas.run_experiment(name, seed), name, name) for name in faas.SCALERS}
    one, intent, printed = (outcomes[name] for name in ("faas", "elastic-faas", "elastic-faas-published"))
    assert intent["shed"] < one["shed"] / 2 and intent["mean_latency_s"] < 0.6 * one["mean_latency_s"]
    assert intent["thirty_containers_s"] < one["thirty_containers_s"] == 58
    # n = √(2 NSP' - 1) is above L = 10 only if NSP' is above 50, 505 events; 330 are the most there can be.
    assert (printed["ups"], printed["shed"]) == (0, one["shed"])
    assert intent["most_functions"] <= 4


@pytest.mark.parametrize("seed", range(1, 6))
def test_with_a_lower_l_the_printed_rule_takes_back_what_it_asked_for(seed: int) -> None:
    """F6: it divides by all containers, so that a second function halves what is wanted."""
    scaler, parameters = faas.CASES["elastic-faas-published, L = PPT = 5"]
    seen = faas.outcome(faas.run_experiment(scaler, seed, **parameters), scaler, "")
    assert seen["ups"] > 10 and seen["downs"] >= seen["ups"] - 1


def test_damped_ratios_stop_at_three_of_four_queues_and_shedding_does_not_end() -> None:
    name = "multiqueue-more"
    seen = multiqueue.outcome(multiqueue.run_experiment(name, "multiqueue-damped", 2), "multiqueue-damped")
    assert (seen["most_queues"], seen["downs"]) == (3, 0)
    assert 0.2 < seen["late_lost_share"] < 0.45  # below maxPk


@pytest.mark.parametrize("scaler", ["multiqueue", "multiqueue-damped"])
def test_a_falling_load_takes_the_second_queue_away_in_one_step(scaler: str) -> None:
    run = multiqueue.run_experiment("multiqueue-falling", scaler, 3)
    seen = multiqueue.outcome(run, scaler)
    assert (seen["most_queues"], seen["queues_at_end"]) == (2, 1)
    cycles = [row["cycle"] for row in multiqueue.timeline(run, scaler) if float(row["second"]) > 60]
    assert cycles.count("scale_in") == 1


def test_a_story_is_told_over_seeds() -> None:
    request = Request(settings=MultiqueueSettings(seeds=(1, 2, 3)))
    row = next(row for row in multiqueue.story(request) if row["scaler"] == "single-queue")
    shares = sorted(
        multiqueue.outcome(multiqueue.run_experiment("multiqueue", "single-queue", seed), "single-queue")["lost_share"]
        for seed in (1, 2, 3)
    )
    assert row["lost_share"] == "{1:.3f} ({0:.3f}–{2:.3f})".format(*shares)
    assert row["with removals"] == "0 of 3"


def test_time_lines_add_up() -> None:
    played = faas.run_experiment("elastic-faas")
    moments = list(faas.moments(played))
    assert sum(moment["arrived"] for moment in moments) == len(played.results)
    assert sum(moment["shed"] for moment in moments) == (played.results.outcome == REJECTED).sum()


# --- measures --------------------------------------------------------------------------------------------------------


def test_measures_of_a_run_that_can_be_reckoned_by_hand() -> None:
    """One server, a second each, room for two: events at 0, .5 and .75 s; the third is lost, the second waits .5 s."""
    system = QueueSystem(
        service_rate_per_s=1, service_law="deterministic", scaled="containers", capacity=2, when_full="drop"
    )
    engine = bank(system, schedule_at([0.0, 0.5, 0.75]), initial_replicas=1)
    engine.advance(10)
    table = engine.results()
    assert table.outcome.tolist() == [COMPLETED, COMPLETED, REJECTED]
    seen = measure(table, 0, 4)
    assert seen.arrived == 3
    assert seen.p_full == pytest.approx(1 / 3)
    assert (seen.entered_per_s, seen.lost_per_s) == (0.5, 0.25)
    assert (seen.in_system, seen.waiting) == (2.5 / 4, 0.5 / 4)
    assert (seen.response_time_s, seen.waiting_time_s) == (1.25, 0.25)
    # From .5 to 1: two events in the system, one of them waits.
    part = measure(table, 0.5, 1)
    assert (part.in_system, part.waiting, part.arrived) == (2, 1, 2)
    assert measure(table, 0, 4, "bank") == seen
    empty = measure(table, 5, 6)
    assert empty.arrived == 0 and isnan(empty.p_full) and isnan(empty.response_time_s) and empty.in_system == 0
