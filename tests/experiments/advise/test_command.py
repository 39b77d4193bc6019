"""The advice: cheaper than a constant fleet and proven on what did not choose it; or what would be needed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from experiments import scheduled_scaler
from experiments.advise.page import on_lines
from penstock import __version__
from penstock.command import build
from penstock.errors import PenstockError

PENSTOCK = Path(sys.executable).with_name("penstock")
Invoke = Callable[..., Result]
RatesFile = Callable[[Iterable[float]], Path]
FEW = ("--scalers", "rps,mwf-rscore,overprovision", "--seeds", "2", "--jobs", "1", "--tick-phase", "100ms")
SPIKES = ([80.0] * 45 + [700.0] * 15) * 4


@pytest.fixture
def invoke(runs: Path) -> Invoke:
    def invoked(*arguments: object) -> Result:
        return CliRunner().invoke(build(), list(map(str, arguments)))

    return invoked


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_on_spikes_the_advice_is_cheaper_than_a_constant_fleet_and_meets_the_share_where_it_was_not_chosen(
    invoke: Invoke, runs: Path, rates_file: RatesFile
) -> None:
    few = (*FEW, "--scalers", "rps,overprovision")
    found = told(invoke("advise", rates_file(SPIKES[:120]), "--slo", "2s", "--share", "0.95", *few, "--json"))
    advice = found["advice"]
    best = advice["best"]
    assert best["met"] and best["rest_share"] >= 0.95 and best["first_share"] >= 0.95
    assert best["replica_minutes"] < advice["constant_fleet"]["replica_minutes"]
    assert advice["saved"] == pytest.approx(1 - best["replica_minutes"] / advice["constant_fleet"]["replica_minutes"])
    assert advice["sentence"].startswith(f"cheapest that meets the SLO: {best['scaler']}")
    met = [row for row in found["scalers"] if row["met"]]
    assert best["replica_minutes"] == min(row["replica_minutes"] for row in met)
    page = unescape((Path(found["folder"]) / "report.html").read_text("utf-8"))
    sentence = f"{advice['sentence'][0].upper()}{advice['sentence'][1:]}."
    for text in (sentence, on_lines(advice["replay"]), *(row["scaler"] for row in found["scalers"])):
        assert text in page
    # The command that is told plays the whole trace under the advised setting.
    program, *words = shlex.split(advice["replay"])
    assert program == "penstock"
    (run,) = told(invoke(*words, "--json"))["runs"]
    assert run["slo_share"] >= 0.95
    spec = json.loads((runs / run["run"] / "run.json").read_bytes())
    for name, value in best["setting"].items():
        assert spec["scaler"]["parameters"][name] == value


@pytest.mark.long
def test_more_scalers_never_make_the_advice_dearer(invoke: Invoke, rates_file: RatesFile) -> None:
    def cheapest(scalers: str) -> float:
        words = ("--slo", "500ms", "--share", "0.95", *FEW, "--scalers", scalers, "--json")
        best = told(invoke("advise", rates_file(SPIKES), *words))["advice"]["best"]
        assert best["met"]
        return float(best["replica_minutes"])

    # rps meets the share only after its settings were refined, overprovision at once.
    assert cheapest("rps,mwf-rscore,overprovision") <= min(cheapest("rps"), cheapest("overprovision"))


def test_a_trace_that_nobody_can_serve_says_so_and_what_would_be_enough(invoke: Invoke, rates_file: RatesFile) -> None:
    trace = rates_file([500.0] * 60)
    asked = ("advise", trace, "--slo", "500ms", "--partitions", "2", *FEW)
    found = told(invoke(*asked, "--json"))
    advice = found["advice"]
    assert "the advised setting by" not in (Path(found["folder"]) / "report.html").read_text("utf-8")
    assert advice["best"] is None and advice["replay"] == ""
    assert advice["sentence"].startswith("none meets the SLO")
    assert advice["needs"]["replicas"] == 3, "500 events/s at 200 a replica"
    assert 250 <= advice["needs"]["service_rate_per_s"] < 300
    assert "3 replicas (as many partitions; now 2)" in advice["sentence"]


def test_where_start_up_is_in_the_way_the_longest_that_would_do_is_told(invoke: Invoke, rates_file: RatesFile) -> None:
    trace = rates_file(SPIKES)
    slow = ("--scalers", "rps", "--set", "rps.target_per_replica_per_s=80", "--set", "rps.decision_interval_s=1")
    asked = ("--slo", "3s", "--start-up", "30s", *slow, "--seeds", "1", "--jobs", "1", "--tick-phase", "0.1")
    advice = told(invoke("advise", trace, *asked, "--json"))["advice"]
    assert advice["best"] is None
    assert 0 < advice["needs"]["start_up_s"] < 30


def test_a_resumed_request_repeats_no_trial(tmp_path: Path, invoke: Invoke, runs: Path, rates_file: RatesFile) -> None:
    one = (*FEW, "--scalers", "rps", "--set", "rps.decision_interval_s=1", "--seeds", "1")
    asked = ("advise", rates_file(([80.0] * 15 + [700.0] * 5) * 2), "--slo", "3s", "--share", "0.95", *one, "--json")
    first = told(invoke(*asked))
    (folder,) = runs.glob("*-advise-load")
    (folder / "advice.json").unlink()
    trials = folder / "trials.jsonl"
    lines = trials.read_bytes().splitlines(keepends=True)
    trials.write_bytes(b"".join(lines[:8]) + lines[8][:30])  # as a killed process leaves it
    again = told(invoke(*asked, "--resume"))
    assert list(runs.glob("*-advise-load*")) == [folder]
    assert again["advice"] == first["advice"]
    written = trials.read_bytes().splitlines(keepends=True)
    assert (written[:8], written[9:]) == (lines[:8], lines[9:]), "each trial once; the torn line stays before its own"
    other = told(invoke("advise", tmp_path / "load.csv", "--slo", "4s", "--share", "0.95", *one, "--json", "--resume"))
    assert other["folder"] != str(folder), "another request"


def test_what_is_set_of_the_fleet_is_simulated_told_and_in_the_commands(
    invoke: Invoke, runs: Path, rates_file: RatesFile
) -> None:
    fleet = ("--set", "worker.service_time_s=.012", "--set", "system.rebalance_s=0.2", "--set", "system.start_up_s=2")
    own = ("--set", "overprovision.decision_interval_s=1", "--tick-phase", "350ms", "--seeds", "1", "--jobs", "1")
    few = ("--slo", "500ms", "--scalers", "overprovision", *fleet, *own)
    found = told(invoke("advise", rates_file([300.0] * 40), *few, "--json"))
    assert (found["service_time_s"], found["rebalance_s"], found["start_up_s"]) == (0.012, 0.2, 2.0)
    page = unescape((Path(found["folder"]) / "report.html").read_text("utf-8")).replace("\u00a0", " ")
    assert "start-up of a replica 2.00 s, rebalance 200 ms, 12.0 ms an event" in page
    advice = found["advice"]
    assert advice["constant_fleet"]["replicas"] == 5, "4 replicas of 83 events/s have two partitions of 60 on one"
    assert "; as much as a constant fleet of 5" in advice["sentence"]
    assert "--tick-phase 350ms" in advice["control"] and "worker." not in advice["control"]
    for line in (advice["replay"], advice["control"]):
        assert "--set overprovision.decision_interval_s=1" in line, "also where it is the default"
    words = shlex.split(advice["replay"])[1:]
    (run,) = told(invoke(*words, "--json"))["runs"]
    spec = json.loads((runs / run["run"] / "run.json").read_bytes())
    assert spec["tick_phase_s"] == pytest.approx(0.35)
    assert (spec["worker"]["service_time_s"], spec["system"]["rebalance_s"]) == (0.012, 0.2)


def test_the_tick_phase_of_the_trials_is_in_the_command_that_deploys(invoke: Invoke, rates_file: RatesFile) -> None:
    few = ("--slo", "500ms", "--scalers", "keda-kafka", "--share", "0.5", "--seeds", "1", "--jobs", "1")
    advice = told(invoke("advise", rates_file([100.0] * 20), *few, "--json"))["advice"]
    assert "--tick-phase" not in advice["best"]["setting"], "the ticks of an emulated system are not searched"
    assert "--tick-phase 100ms" in advice["control"] and "--tick-phase 100ms" in advice["replay"]


def test_where_a_deployment_differs_from_the_simulation_is_told(invoke: Invoke, rates_file: RatesFile) -> None:
    def asked(scaler: str) -> Any:
        few = ("--slo", "500ms", "--scalers", scaler, "--share", "0.5", "--seeds", "1", "--jobs", "1", "--json")
        return told(invoke("advise", rates_file([100.0] * 20), *few))

    assert asked("keda-kafka")["advice"]["deployed"] == ""
    packs = asked("binpack")["advice"]["deployed"]
    assert packs.startswith("binpack also decides which partitions a consumer reads") and "late events" not in packs
    found = asked("newsvendor")
    assert "it keeps the price and the service rate that it begins with" in found["advice"]["deployed"]
    page = unescape((Path(found["folder"]) / "report.html").read_text("utf-8"))
    assert "Newsvendor also decides which partitions" in page


def test_outcomes_of_other_scaler_code_are_not_continued(
    tmp_path: Path, invoke: Invoke, runs: Path, rates_file: RatesFile
) -> None:
    own, source = tmp_path / "own.py", Path(scheduled_scaler.__file__).read_text("utf-8")
    own.write_text(
        source.replace('"timetable"', '"own"').replace("interval_s: NotNegative = 10.0", "interval_s: NotNegative = 0")
    )
    few = ("--slo", "500ms", "--scalers", f"{own}:ScheduledScaler", "--tick-phase", "0", "--seeds", "1", "--jobs", "1")
    asked = ("advise", rates_file([200.0] * 40), *few, "--json", "--resume")
    result = invoke(*asked)
    first = told(result)
    assert "nothing to continue" in result.stderr
    (Path(first["folder"]) / "advice.json").unlink()
    result = invoke(*asked)
    assert told(result)["folder"] == first["folder"] and "nothing to continue" not in result.stderr
    (Path(first["folder"]) / "advice.json").unlink()
    own.write_text(own.read_text("utf-8").replace("replicas: Count = 3", "replicas: Count = 4"), encoding="utf-8")
    result = invoke(*asked)
    changed = told(result)
    assert changed["folder"] != first["folder"] and "nothing to continue" in result.stderr
    assert changed["advice"]["best"]["replica_minutes"] > first["advice"]["best"]["replica_minutes"]
    request = json.loads((Path(changed["folder"]) / "request.json").read_bytes())
    assert request["penstock"] == __version__ and request["git_revision"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--jobs 0", "--jobs 0: has to be at least 1"),
        ("--seeds 0", "--seeds 0: has to be at least 1"),
        ("--engine abacus", "choose local or spark"),
        ("--chosen-on 1", "a part of the trace between 0 and 1"),
        ("--chosen-on 0.01", "each part needs at least 10 s"),
        ("--share 1", "--share 1: a share of the events between 0 and 1"),
        ("--share 0.999", "can be proven on 1,000 at least"),
        ("--scalers optimal", "optimal knows all rates in advance"),
        ("--scalers hpa --set linear.f_up=0.8", "it is not among those that are run: hpa"),
    ],
)
def test_what_cannot_be_advised_is_one_line_and_leaves_nothing_behind(
    runs: Path, invoke: Invoke, arguments: str, said: str, rates_file: RatesFile
) -> None:
    result = invoke("advise", rates_file([10.0] * 60), "--slo", "500ms", *arguments.split())
    assert isinstance(result.exception, PenstockError), result.output
    assert said in str(result.exception) and "\n" not in str(result.exception)
    assert list(runs.glob("*")) == []


def test_ctrl_c_ends_every_process_and_keeps_the_trials(tmp_path: Path, rates_file: RatesFile) -> None:
    runs = tmp_path / "runs"
    command = [str(PENSTOCK), "advise", str(rates_file([400.0] * 60)), "--slo", "500ms", "--jobs", "2"]
    environment = {**os.environ, "PENSTOCK_RUNS": str(runs)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline_s = time.monotonic() + 120
        while not any(path.stat().st_size for path in runs.glob("*/trials.jsonl")):
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.05)
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command with --resume continues it" in said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.live
@pytest.mark.when_changed("experiments/advise", "experiments/replay", "pipelines/session.py")
def test_spark_and_local_processes_advise_the_same(tmp_path: Path, rates_file: RatesFile) -> None:
    trace = rates_file(SPIKES[:120])

    def advice(engine: str) -> Any:
        # A process of its own: the pool forks, and what other tests left in this one does not outlive a fork.
        few = ["--scalers", "rps,overprovision", "--seeds", "1", "--jobs", "2", "--tick-phase", "100ms"]
        command = [str(PENSTOCK), "advise", str(trace), "--slo", "500ms", *few, "--json", "--engine", engine]
        environment = {**os.environ, "PENSTOCK_RUNS": str(tmp_path / engine)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=True)
        return json.loads(done.stdout[done.stdout.index("{") :])["advice"]

    assert advice("local") == advice("spark")
