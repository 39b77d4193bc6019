"""From an experiment and the command line to the description of one run."""

from pathlib import Path

import pytest

from experiments.catalogue import find_experiment
from experiments.compare import begin
from experiments.driver import schedule_of
from experiments.experiment import Options, at_speed, parse_faults, run_spec, slice_seconds
from penstock.errors import PenstockError
from penstock.runspec import Fault, WorldName

WORKLOAD_1 = find_experiment("binpack-workload-1")


def test_the_experiment_fixes_the_parameters_of_every_scaler() -> None:
    spec = run_spec(WORKLOAD_1, "binpack-tail", Options(), "r")
    assert spec.scaler.name == "binpack-tail"
    for scaler in (spec.scaler, *spec.shadows):
        if "hold_s" in scaler.parameters:
            assert scaler.parameters["hold_s"] == 10
        if "service_rate_per_s" in scaler.parameters:
            assert scaler.parameters["service_rate_per_s"] == pytest.approx(200)


def test_the_experiments_shadows_advise_in_a_live_run_and_the_acting_scaler_is_none_of_them() -> None:
    spec = run_spec(WORKLOAD_1, "linear", Options(), "r")
    assert {shadow.name for shadow in spec.shadows} == set(WORKLOAD_1.shadows) - {"linear"}
    assert {"binpack", "binpack-tail"} <= set(WORKLOAD_1.shadows)


def test_shadows_are_those_that_were_named() -> None:
    def names(shadows: tuple[str, ...] | None, world: WorldName = "local") -> set[str]:
        spec = run_spec(WORKLOAD_1, "linear", Options(world=world, shadows=shadows), "r")
        return {shadow.name for shadow in spec.shadows}

    assert names(("hpa", "linear")) == {"hpa"}
    assert names(()) == set()
    assert names(None, "sim") == set()
    assert {"hpa", "kpa", "keda-kafka", "binpack"} <= names(("all",))
    assert "amesos" not in names(("all",))
    with pytest.raises(PenstockError, match="unknown shadow 'amesos'"):
        names(("amesos",))


def test_settings_of_the_command_line_win_over_the_experiment() -> None:
    spec = run_spec(WORKLOAD_1, "binpack", Options(settings={"binpack": {"f_up": "0.8", "hold_s": "3"}}), "r")
    assert (spec.scaler.parameters["f_up"], spec.scaler.parameters["hold_s"]) == (0.8, 3)


def test_parameters_of_the_workload_are_set_beside_its_own() -> None:
    document = find_experiment("amesos-document")

    def played(**workload: str) -> tuple[str, int]:
        options = Options(workload=workload)
        spec = run_spec(document, "rps", options, "r")
        return spec.workload["workload"], len(schedule_of(document, options, spec))

    text, events = played()
    assert text == "amesos:pipeline=document"
    quarter_text, quarter = played(scale="0.25")
    assert quarter_text == "amesos:pipeline=document,scale=0.25"
    assert quarter == pytest.approx(events / 4, rel=0.05)
    assert played(pipeline="matrix")[0] == "amesos:pipeline=matrix"
    with pytest.raises(PenstockError, match=r"unknown parameter 'amesos.scal' \(did you mean amesos.scale "):
        played(scal="2")
    with pytest.raises(PenstockError, match=r"--set workload.scale: the jobs of pubsub-mintime arrive by rule"):
        run_spec(find_experiment("pubsub-mintime"), "min-time", Options(workload={"scale": "2"}), "r")


def test_speed_multiplies_rates_and_divides_durations() -> None:
    values = {"service_rate_per_s": 200.0, "slo_s": 0.5, "f_up": 0.9, "max_replicas": 5, "hysteresis": True}
    assert at_speed(values, 4) == {
        "service_rate_per_s": 800.0,
        "slo_s": 0.125,
        "f_up": 0.9,
        "max_replicas": 5,
        "hysteresis": True,
    }
    spec = run_spec(WORKLOAD_1, "binpack", Options(speed=4, faults=parse_faults(["stop-broker@40+8"])), "r")
    assert (spec.duration_s, spec.slo_s, spec.tick_phase_s) == (150, 0.125, 0.025)
    assert (spec.worker.service_time_s, spec.worker.heartbeat_s) == (0.00125, 0.125)
    assert spec.faults == (Fault("stop-broker", 10, 2),)


def test_worker_settings_change_the_service_rate_that_scalers_are_told() -> None:
    spec = run_spec(
        WORKLOAD_1, "binpack", Options(worker={"service_time_s": "0.01", "directed_rebalance": "false"}), "r"
    )
    assert spec.worker.service_time_s == 0.01
    assert spec.worker.directed_rebalance is False
    assert spec.scaler.parameters["service_rate_per_s"] == pytest.approx(100)


def test_a_slice_ends_with_the_workload_unless_told_otherwise() -> None:
    assert slice_seconds(WORKLOAD_1, Options(from_s=420)) == 180
    assert slice_seconds(WORKLOAD_1, Options(from_s=420, seconds=110)) == 110


def test_a_slice_begins_with_enough_replicas_for_its_first_second() -> None:
    assert run_spec(WORKLOAD_1, "binpack", Options(), "r").initial_replicas == 1
    assert run_spec(WORKLOAD_1, "binpack", Options(from_s=420), "r").initial_replicas == 3
    assert run_spec(WORKLOAD_1, "binpack", Options(from_s=420, initial_replicas=2), "r").initial_replicas == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(from_s=600), r"--from 600: binpack-workload-1 lasts 600 s"),
        (Options(from_s=590, seconds=20), r"--seconds 20: binpack-workload-1 has 10 s from second 590"),
        (Options(seconds=0), r"--seconds 0:"),
        (Options(speed=0), r"--speed 0: must be greater than 0"),
        (
            Options(settings={"binpack": {"f_op": "1"}}),
            r"unknown parameter 'binpack.f_op' \(did you mean binpack.f_up",
        ),
        (Options(settings={"binpak": {"f_up": "1"}}), r"unknown scaler 'binpak' \(did you mean binpack"),
        (Options(worker={"sevice_time_s": "1"}), r"unknown worker setting 'worker.sevice_time_s'"),
        (Options(worker={"service_time_s": "long"}), r"--set worker.service_time_s=long: Expected `float`"),
        (Options(seconds=60, faults=(Fault("kill-worker", 60),)), r"--fault kill-worker@60: the run has 60 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_line_that_names_thing_value_and_way_out(options: Options, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as refused:
        run_spec(WORKLOAD_1, "binpack", options, "r")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["kill-worker", "kill-worker@", "burn@5", "stop-broker@5+x"])
def test_a_malformed_fault_shows_the_form_and_the_kinds(text: str) -> None:
    with pytest.raises(PenstockError, match=r"expected kind@second.*stop-broker@30\+5; kinds are kill-worker"):
        parse_faults([text])


def test_an_unknown_experiment_names_its_neighbours() -> None:
    with pytest.raises(
        PenstockError, match=r"unknown experiment 'binpack-workload1' \(did you mean binpack-workload-1"
    ):
        find_experiment("binpack-workload1")


def test_settings_of_another_scaler_of_the_comparison_are_no_mistake() -> None:
    options = Options(settings={"own": {"x": "1"}}, compared=("own", "linear"))
    assert run_spec(WORKLOAD_1, "linear", options, "r").scaler.name == "linear"
    with pytest.raises(PenstockError, match="unknown scaler 'own'"):
        run_spec(WORKLOAD_1, "linear", Options(settings={"own": {"x": "1"}}), "r")


def test_two_comparisons_of_one_second_have_their_own_directories(tmp_path: Path) -> None:
    made = {begin(WORKLOAD_1, ["linear"], Options(world="sim"), 1, tmp_path, resume=False).path for _ in range(5)}
    assert len(made) == 5
