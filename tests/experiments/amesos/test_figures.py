"""AMESoS' experiments can be described, and their figures made."""

import csv
import re
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from controller.scalers.amesos import THRESHOLDS_S
from experiments.amesos import figures
from experiments.amesos.experiments import EXPERIMENTS, PIPELINES
from experiments.experiment import Experiment, Options, run_spec, system_at_speed
from penstock.command import build
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.registry import make_scaler
from penstock.systems import FunctionSystem
from producers.schedule import make_schedule
from producers.workloads.azure import AmesosWorkload
from simulator.function import make_engine
from simulator.in_memory_run import run_to_end

AMESOS = "amesos"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_run_is_described_with_its_pipeline_and_threshold(experiment: Experiment) -> None:
    spec = run_spec(experiment, AMESOS, Options(world="sim"), run="r")
    assert spec.system == experiment.system
    assert isinstance(spec.system, FunctionSystem)
    assert spec.slo_s == spec.system.deadline_s
    threshold_s = THRESHOLDS_S["coherent"][spec.pipeline]
    assert spec.scaler.parameters["threshold_s"] == threshold_s
    fast = run_spec(experiment, AMESOS, Options(world="sim", speed=4), run="r")
    assert fast.scaler.parameters["threshold_s"] == threshold_s / 4
    assert fast.system == system_at_speed(experiment.system, 4)
    assert isinstance(fast.system, FunctionSystem)
    assert fast.system.deadline_s == spec.system.deadline_s / 4
    assert fast.system.functions[0].service_time_s == spec.system.functions[0].service_time_s / 4


def test_pipelines_are_those_of_table_1_and_thresholds_lie_within_their_laxity() -> None:
    table_1 = {"document": (4, 0.05, 0.5), "synthetic": (3, 0.7, 1.5), "matrix": (6, 1.3, 3.5)}
    for name, system in PIPELINES.items():
        functions, execution_s, deadline_s = table_1[name]
        assert len(system.functions) == functions
        assert Graph(system.functions).total_s == pytest.approx(execution_s)
        assert system.deadline_s == deadline_s
        assert 0 < THRESHOLDS_S["coherent"][name] < deadline_s - execution_s


def test_a_run_has_its_figures_and_series() -> None:
    run = figures.simulate("synthetic", "amesos", 1, figures.AmesosSettings(from_s=60, seconds=30))
    missed, waiting, replicas = run.series
    assert len(missed) == len(waiting) == len(replicas) == 31
    assert missed[-1] <= run.missed <= run.requests
    assert replicas[0] == 3 and replicas.max() > 3
    assert run.peak_waiting == waiting.max() > 0
    assert run.replica_minutes == pytest.approx(np.trapezoid(replicas, dx=1) / 60, rel=0.1)


def test_every_scaler_of_the_figures_scales_up_a_pipeline_that_is_too_small() -> None:
    for scaler in figures.SCALERS:
        run = figures.simulate("matrix", scaler, 1, figures.AmesosSettings(from_s=120, seconds=20))
        assert run.series[2][-1] > 6, scaler


def test_with_the_printed_thresholds_the_synthetic_pipeline_never_scales_down() -> None:
    """Its laxity cannot exceed 0.8 s, the printed threshold is 1.3 s (A9)."""
    falling = figures.AmesosSettings(from_s=180, seconds=100)
    printed = figures.simulate("synthetic", "amesos", 1, msgspec.structs.replace(falling, thresholds="printed"))
    coherent = figures.simulate("synthetic", "amesos", 1, falling)
    assert (np.diff(printed.series[2]) >= 0).all()
    assert (np.diff(coherent.series[2]) < 0).any()


def test_the_queues_and_replicas_of_the_functions_add_up() -> None:
    run = figures.simulate("matrix", "rps", 1, figures.AmesosSettings(from_s=120, seconds=20))
    _, waiting, replicas = run.series
    parts = run.functions.values()
    assert np.sum([each.waiting for each in parts], axis=0).tolist() == waiting.tolist()
    assert np.sum([each.replicas for each in parts], axis=0).tolist() == replicas.tolist()
    assert waiting.max() > 0


def test_rps_scales_one_function_after_the_other_and_amesos_all_at_once() -> None:
    """Section 6.3.1; RPS' target is the rate of a saturated replica (A18)."""
    rise = figures.AmesosSettings(from_s=60, seconds=60)
    for seed in (1, 2, 3):
        amesos, rps = (figures.simulate("document", scaler, seed, rise) for scaler in ("amesos", "rps"))
        ups_s = [[each.first_up_s or 0.0 for each in run.functions.values()] for run in (amesos, rps)]
        assert all(up_s > 0 for run in ups_s for up_s in run)
        assert max(ups_s[0]) - min(ups_s[0]) <= 2.5
        assert ups_s[1] == sorted(ups_s[1]) and ups_s[1][-1] - ups_s[1][0] >= 5.0


def test_rps_misses_more_than_amesos_only_near_saturation() -> None:
    rise = figures.AmesosSettings(from_s=60, seconds=60)
    for seed in (1, 2, 3):
        missed = {
            name: figures.simulate("document", name, seed, rise).missed for name in ("amesos", "rps", "rps at 0.7 μ")
        }
        assert missed["rps at 0.7 μ"] == 0
        assert missed["amesos"] < 0.3 * missed["rps"]


# --- what is printed -------------------------------------------------------------------------------------------------

SAID = re.compile(
    r"((?:up to )?(?:\d+ %|slightly)) (\w+) (?:\w+ )*?than (?:with )?(\w+(?:(?:, | and )(?:with )?[A-Z]\w+)*)"
)
SCALERS = {"RPS": "rps", "DwP": "dwp", "LaSS": "lass"}
SUBJECTS = {"misses": "misses", "peak queue": "queue|peak", "replica-minutes": "resources"}


def said(sentence: str) -> dict[str, str]:
    """By scaler, how much and in which direction AMESoS differs from it."""
    found = {}
    for amount, direction, others in SAID.findall(sentence):
        for name in re.findall("RPS|DwP|LaSS", others):
            found[SCALERS[name]] = f"{amount} {direction}"
    return found


def test_a_sentence_is_read_with_each_number_beside_its_scaler() -> None:
    assert said("a 5 % better than with DwP, 7 % worse than with RPS and LaSS") == {
        "dwp": "5 % better",
        "rps": "7 % worse",
        "lass": "7 % worse",
    }


@pytest.mark.parametrize("claim", figures.CLAIMS, ids=lambda claim: "-".join(list(claim.values())[:3]))
def test_each_printed_value_is_that_of_its_sentence(claim: dict[str, str]) -> None:
    sentence = figures.SENTENCES[claim["sentence"]]
    assert re.search(SUBJECTS[claim["measure"]], sentence["says"])
    assert claim["pipeline"] in sentence["pipelines"].split()
    assert said(sentence["says"])[claim["AMESoS against"]] == claim["printed"]


def test_each_sentence_is_used_for_all_that_it_says() -> None:
    for name, sentence in figures.SENTENCES.items():
        claimed = {(c["AMESoS against"], c["pipeline"]) for c in figures.CLAIMS if c["sentence"] == name}
        assert claimed == set(product(said(sentence["says"]), sentence["pipelines"].split())), name


def test_the_sentences_have_the_numbers_of_the_paper() -> None:
    papers = (parent / "shared" / "papers" / "amesos.txt" for parent in Path(__file__).parents)
    text = next((paper.read_text() for paper in papers if paper.exists()), None)
    if text is None:
        pytest.skip("the paper's text is not on this machine")
    for sentence in figures.SENTENCES.values():
        section = text.partition(f"\n{sentence['section']} ")[2].partition("\n\n6.3.")[0]
        for scaler, value in said(sentence["says"]).items():
            name = next(name for name, key in SCALERS.items() if key == scaler)
            number = re.search(r"\d+", value)
            if number is None:
                continue
            # The number and the scaler stand in one sentence; side by side where there are several.
            near = rf"{number[0]}% \w+ than {name}" if "better" in value else rf"{number[0]}%"
            assert re.search(near, section), (sentence["says"], name)


def test_changes_are_said_in_words() -> None:
    said = [figures.change(*pair) for pair in ((30, 100), (113, 100), (0, 0), (5, 0))]
    assert said == ["70 % fewer", "13 % more", "both none", "5 against none"]


def test_an_unknown_service_distribution_is_an_error() -> None:
    done = CliRunner().invoke(build(), ["paper", "amesos", "all", "--set", "law=weibull"])
    assert isinstance(done.exception, PenstockError) and done.exception.exit_code == 2
    assert "weibull" in str(done.exception)


def test_the_figures_are_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        build(), ["paper", "amesos", "all", "--out", str(tmp_path), "--seeds", "2", "--from", "60", "--seconds", "10"]
    )
    assert done.exit_code == 0, done.output
    assert "AMESoS compared, by medians" in done.output
    rows = {path.name: list(csv.DictReader(path.read_text().splitlines())) for path in tmp_path.glob("*.csv")}
    assert sorted(rows) == [
        "claims.csv", "figure4.csv", "figures5-10.csv", "figures5-12.csv", "first-ups.csv", "functions.csv", "runs.csv",
        "summary.csv",
    ]  # fmt: skip
    variants, functions = len(figures.VARIANTS), 4 + 3 + 6
    assert len(rows["figure4.csv"]) == 17
    assert len(rows["summary.csv"]) == 3 * variants
    assert len(rows["runs.csv"]) == 3 * variants * 2
    assert len(rows["figures5-12.csv"]) == 3 * 4 * 11
    assert len(rows["figures5-10.csv"]) == functions * 4 * 11
    assert len(rows["functions.csv"]) == functions * 4
    assert len(rows["first-ups.csv"]) == 3 * 4
    assert {row["AMESoS against"] for row in rows["claims.csv"]} == {
        name for name, (scaler, _) in figures.VARIANTS.items() if scaler in ("rps", "dwp", "lass")
    }


def test_a_faster_run_is_the_same_run() -> None:
    experiment = next(e for e in EXPERIMENTS if e.name == "amesos-aes")
    outcomes = []
    for speed in (1.0, 4.0):
        spec = run_spec(experiment, AMESOS, Options(world="sim", speed=speed, from_s=60, seconds=40), run="r")
        schedule = make_schedule(AmesosWorkload("synthetic"), seed=1, partitions=1, from_s=60, seconds=40, speed=speed)
        played = run_to_end(spec, make_engine(spec, schedule), make_scaler(spec.scaler))
        outcomes.append((played.responses()[1] * speed, played.replica_minutes() * speed))
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], rel=1e-6)
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], abs=1e-6)
