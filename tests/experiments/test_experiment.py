"""From an experiment and the command line to the description of one run."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.catalogue import find_experiment
from experiments.compare import begin
from experiments.driver import schedule_of
from experiments.experiment import Options, at_speed, changed, parse_faults, run_spec, slice_seconds, tuning_line
from penstock.errors import PenstockError
from penstock.measured import JOIN_TIMEOUT_S, POD_JOIN_TIMEOUT_S, REBALANCE_S, START_UP_S
from penstock.registry import make_scaler, parse_scaler, scaler_classes
from penstock.runspec import Fault, WorldName
from penstock.systems import StreamSystem
from simulator.in_memory_run import run_to_end
from simulator.stream import make_engine

WORKLOAD_1 = find_experiment("binpack-workload-1")


def test_the_experiment_fixes_the_parameters_of_every_scaler() -> None:
    spec = run_spec(WORKLOAD_1, "binpack-tail", Options(), "r")
    assert spec.scaler.name == "binpack-tail"
    for scaler in (spec.scaler, *spec.shadows):
        if "hold_s" in scaler.parameters:
            assert scaler.parameters["hold_s"] == 10
        if "service_rate_per_s" in scaler.parameters:
            assert scaler.parameters["service_rate_per_s"] == pytest.approx(200)


SCALER = """
from dataclasses import dataclass
import msgspec
from penstock.contracts import Decision, StreamObservation

@dataclass(frozen=True)
class Parameters:
    slo_s: float = 0.0
    slo_share: float = 0.0
    start_up_s: float = 0.0
    rebalance_time_s: float = 0.0
    cooperative: bool | None = None
    max_replicas: int = 0
    hold_s: float = 7.0

class Nothing(msgspec.Struct, frozen=True): ...

class Told:
    name, paper, fleets, period_s, Parameters, State = "told", "", StreamObservation, 1.0, Parameters, Nothing
    def __init__(self, parameters): self.parameters = parameters
    def start(self, seed): return Nothing()
    def decide(self, observation, state): return Decision(action="none", targets={}), state
"""


def test_a_scaler_is_told_what_the_run_knows_of_its_world(tmp_path: Path) -> None:
    file = tmp_path / "told.py"
    file.write_text(SCALER)
    options = Options(world="sim", speed=2.0, system={"start_up_s": "3"}, worker={"rebalance_pause_s": "1"})
    told = run_spec(WORKLOAD_1, f"{file}:Told", options, "r").scaler.parameters
    assert told == {
        "slo_s": 0.25,
        "slo_share": 0.99,
        "start_up_s": 1.5,
        "rebalance_time_s": pytest.approx((REBALANCE_S + 1) / 2),
        "cooperative": False,
        "max_replicas": 5,
        "hold_s": 3.5,
    }


def test_algorithm_2_is_told_the_rebalance_time_of_the_world() -> None:
    spec = run_spec(WORKLOAD_1, "binpack-tail", Options(world="sim"), "r")
    assert spec.scaler.parameters["rebalance_time_s"] == REBALANCE_S == StreamSystem().rebalance_s


@pytest.mark.parametrize("name", ["hpa", "keda-kafka", "kpa", "flink", "ds2", "mwf-rscore", "lass"])
def test_a_rival_keeps_its_own_defaults_where_a_paper_tunes_its_scalers(name: str) -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(scaler_classes()[name].Parameters)}
    parameters = run_spec(WORKLOAD_1, name, Options(world="sim"), "r").scaler.parameters
    for parameter in ("decision_interval_s", "hold_s"):
        assert parameters.get(parameter) == defaults.get(parameter), parameter
    everybody = Options(world="sim", settings={"all": {"decision_interval_s": "3", "hold_s": "4"}})
    assert run_spec(WORKLOAD_1, name, everybody, "r").scaler.parameters["decision_interval_s"] == 3
    assert run_spec(WORKLOAD_1, "linear", everybody, "r").scaler.parameters["hold_s"] == 4


def test_one_line_says_who_is_tuned() -> None:
    line = tuning_line(WORKLOAD_1, [parse_scaler(name) for name in ("binpack-tail", "hpa", "linear")], Options())
    assert line == (
        "Parameters: binpack-tail, linear: hold_s 10, f_up 0.9, f_down 0.4, decision_interval_s 1; "
        "hpa: its own defaults"
    )


def test_the_line_says_what_was_set() -> None:
    options = Options(settings={"all": {"hold_s": "5"}, "hpa": {"tolerance": "0.2"}})
    line = tuning_line(WORKLOAD_1, [parse_scaler("linear"), parse_scaler("hpa")], options)
    assert "linear: hold_s 10, f_up 0.9, f_down 0.4, decision_interval_s 1, set: hold_s 5" in line
    assert line.endswith("hpa: its own defaults, set: tolerance 0.2")


# --- another workload ------------------------------------------------------------------------------------------------


def test_another_workload_has_its_own_length_arrivals_and_name(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("rate_per_s\n300\n300\n100\n")
    options = Options(world="sim", own_workload=str(tmp_path / "load.csv"))
    experiment = changed(WORKLOAD_1, options)
    assert (experiment.name, experiment.seconds) == ("binpack-workload-1 with load.csv", 3)
    spec = run_spec(experiment, "linear", options, "r")
    assert spec.initial_replicas == 3, "300 events of 5 ms within 500 ms"
    made = schedule_of(experiment, options, spec)
    assert made.description["arrivals"] == "uniform"
    assert made.arrivals_per_second().tolist() == [300, 300, 100]
    assert WORKLOAD_1.printed and not experiment.printed, "a paper's values are of its own workload"


def test_its_parameters_can_be_set_and_its_length_follows() -> None:
    step = Options(own_workload="step:before_per_s=10,after_per_s=20,at_s=5", workload={"duration_s": "30"})
    assert changed(WORKLOAD_1, step).seconds == 30
    with pytest.raises(PenstockError, match=r"unknown parameter 'step\.length'.*it has before_per_s"):
        changed(WORKLOAD_1, dataclasses.replace(step, workload={"length": "30"}))
    with pytest.raises(PenstockError, match=r"'binpack-workload-1\.path': it has no parameters"):
        run_spec(WORKLOAD_1, "linear", Options(from_s=1, workload={"path": "x"}), "r")


def test_a_network_has_no_workload_to_replace() -> None:
    with pytest.raises(PenstockError, match="the rates of pubsub are in its system"):
        changed(find_experiment("pubsub"), Options(own_workload="poisson:rate_per_s=10"))


def test_a_fault_that_happens_at_once_has_no_duration() -> None:
    with pytest.raises(PenstockError, match=r"kill-worker@5\+3: kill-worker happens at once .* leave out \+3"):
        parse_faults(["kill-worker@5+3"])
    assert parse_faults(["kill-worker@5+0", "restart-redis@5+3", "restart-redis@5"])[1].seconds == 3


def test_the_sim_world_assumes_what_live_runs_measure_and_says_so() -> None:
    spec = run_spec(WORKLOAD_1, "linear", Options(world="sim"), "r")
    assert spec.system == StreamSystem()
    assert (StreamSystem().start_up_s, StreamSystem().rebalance_s) == (START_UP_S, REBALANCE_S)
    assert 0.9 <= START_UP_S <= 3.4
    assert spec.assumptions.startswith(
        "Assumed in virtual time: start-up of a replica 1.2 s, rebalance 0.03 s (eager), stop of a replica 0.7 s"
    )
    assert run_spec(WORKLOAD_1, "linear", Options(), "r").assumptions == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(max_replicas=0), "--max-replicas 0: has to be at least 1"),
        (Options(initial_replicas=-1), "--initial-replicas -1: from 0 to 5"),
        (Options(initial_replicas=99), "--initial-replicas 99: from 0 to 5"),
        (Options(initial_replicas=4, max_replicas=3), "--initial-replicas 4: from 0 to 3"),
        (Options(join_timeout_s=0), "--join-timeout 0: must be above 0"),
    ],
)
def test_numbers_that_no_fleet_can_have_are_refused(options: Options, said: str) -> None:
    with pytest.raises(PenstockError, match=re.escape(said)):
        run_spec(WORKLOAD_1, "linear", options, "r")


def test_a_consumer_group_may_begin_without_a_replica_and_no_other_fleet() -> None:
    assert run_spec(WORKLOAD_1, "keda-kafka", Options(initial_replicas=0, from_s=420), "r").initial_replicas == 0
    with pytest.raises(PenstockError, match="--initial-replicas 0: from 1 to 20"):
        run_spec(find_experiment("pubsub"), "min-time", Options(initial_replicas=0), "r")


def test_an_assignment_waits_as_long_as_the_world_or_the_user_says() -> None:
    def waits_s(**options: Any) -> float:
        return run_spec(WORKLOAD_1, "linear", Options(**options), "r").join_timeout_s

    assert waits_s(world="sim") == waits_s() == JOIN_TIMEOUT_S > 5.1, "the longest start-up measured"
    assert waits_s(world="kubernetes") == POD_JOIN_TIMEOUT_S > 10, "the start of a pod"
    assert waits_s(join_timeout_s=20.0, speed=2.0) == 10


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
    with pytest.raises(PenstockError, match=r"--set workload.scale: the rates of pubsub-mintime are in its system"):
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
        (Options(speed=0), r"--speed 0: must be above 0"),
        (
            Options(settings={"binpack": {"f_op": "1"}}),
            r"unknown parameter 'binpack.f_op' \(did you mean binpack.f_up",
        ),
        (Options(settings={"binpak": {"f_up": "1"}}), r"unknown scaler 'binpak' \(did you mean binpack"),
        (Options(worker={"sevice_time_s": "1"}), r"unknown worker setting 'worker.sevice_time_s'"),
        (Options(worker={"service_time_s": "long"}), r"--set worker.service_time_s=long: expected a number$"),
        (
            Options(worker={"service_time_s": "0.004"}, system={"start_up_s": "soon"}),
            r"--set system.start_up_s=soon: expected a number$",
        ),
        (Options(speed=1e9), r"--speed 1e\+09: decision periods \[1e-09\]: each must be at least 1 ms"),
        (
            Options(settings={"binpack": {"decision_interval_s": "1e-6"}}),
            r"^decision periods \[1e-06, 1.0\]: each must be at least 1 ms",
        ),
        (Options(seconds=60, faults=(Fault("kill-worker", 60),)), r"--fault kill-worker@60: the run has 60 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_line_that_names_thing_value_and_way_out(options: Options, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as refused:
        run_spec(WORKLOAD_1, "binpack", options, "r")
    assert "\n" not in str(refused.value)


def test_newsvendor_decides_once_a_second_of_the_run_at_any_speed() -> None:
    assert run_spec(WORKLOAD_1, "newsvendor", Options(speed=2), "r").scaler.parameters["decision_interval_s"] == 0.5
    other = Options(settings={"newsvendor": {"decision_interval_s": "2"}})
    with pytest.raises(PenstockError, match=r"newsvendor.decision_interval_s=2: newsvendor decides every 1 s, "):
        run_spec(WORKLOAD_1, "newsvendor", other, "r")


def test_the_times_of_a_fault_have_the_notation_of_all_times() -> None:
    assert parse_faults(["stop-broker@1m+500ms", "kill-worker@1.5"]) == (
        Fault("stop-broker", 60.0, 0.5),
        Fault("kill-worker", 1.5),
    )


@pytest.mark.parametrize("text", ["kill-worker", "kill-worker@", "burn@5", "stop-broker@5+x"])
def test_a_malformed_fault_shows_the_form_and_the_kinds(text: str) -> None:
    with pytest.raises(PenstockError, match=r"expected kind@time.*stop-broker@30s\+500ms; kinds are kill-worker"):
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


@pytest.mark.parametrize("world", ["sim", "local", "kubernetes"])
def test_arrivals_by_slot_are_read_only_for_a_scaler_that_wants_them(world: WorldName) -> None:
    assert run_spec(WORKLOAD_1, "newsvendor", Options(world=world), "r").reads_arrivals
    assert run_spec(WORKLOAD_1, "linear", Options(world=world, shadows=("newsvendor",)), "r").reads_arrivals
    assert not run_spec(WORKLOAD_1, "linear", Options(world=world, shadows=("hpa",)), "r").reads_arrivals


def test_guards_are_given_the_facts_of_the_run_at_its_speed() -> None:
    assert run_spec(WORKLOAD_1, "linear", Options(world="sim"), "r").guard is None
    spec = run_spec(WORKLOAD_1, "linear", Options(world="sim", guard=True, speed=2.0, max_replicas=4), "r")
    assert spec.guard is not None
    assert (spec.guard.slo_s, spec.guard.slo_share, spec.guard.max_replicas) == (0.25, 0.99, 4)
    assert spec.guard.service_rate_per_s == pytest.approx(400.0)
    assert spec.reads_arrivals, "the guards count late events"


def test_a_guarded_run_undoes_scale_ins_and_an_unguarded_one_does_not() -> None:
    settings = {"linear": {"f_up": "0.95", "f_down": "0.9", "hold_s": "0"}}

    def notes(*, guard: bool) -> list[str]:
        options = Options(world="sim", guard=guard, settings=settings, from_s=100, seconds=200)
        spec = run_spec(WORKLOAD_1, "linear", options, "r")
        engine = make_engine(spec, schedule_of(WORKLOAD_1, options, spec))
        ticks = run_to_end(spec, engine, make_scaler(spec.scaler), keep=lambda _: True).ticks
        terms = [each for tick in ticks for each in tick.decisions["linear"].why.values()]
        return [str(each["guard"]) for each in terms if "guard" in each]

    assert any("it is undone" in note for note in notes(guard=True))
    assert notes(guard=False) == []
