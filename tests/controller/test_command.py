"""``penstock scalers`` and ``penstock explain``, as a user meets them."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from controller import command as controller_command
from controller.journal import DecisionsFile, TickRecord
from penstock.contracts import Accepted, Decision, ReplicaCounts, StreamObservation, hold
from penstock.errors import PenstockError
from penstock.fleet_kinds import fleet_kinds
from penstock.parameters import split_unit
from penstock.rundir import RunDirectory
from report import command as report_command

app = typer.Typer()
controller_command.register(app)
report_command.register(app)


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, PenstockError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Ticks at 0.1, 1.1 and 2.1 s, a shadow every other one."""
    directory = RunDirectory(tmp_path / "a-run")
    directory.path.mkdir()
    directory.spec_file.write_text("{}")
    journal = DecisionsFile(directory)
    for tick in range(3):
        decisions = {"binpack": Decision(action="up", targets={"pay": tick + 2}, why={"pay": {"replicas": tick + 1}})}
        if tick != 1:
            decisions["linear"] = hold("pay", f"reason {tick}")
        journal.tick(
            TickRecord(
                tick=tick,
                time_s=tick + 0.1,
                at_ns=tick,
                phase_s=0.1,
                observation=StreamObservation(time_s=tick + 0.1, fleet="pay", replicas=ReplicaCounts()),
                decisions=decisions,
                acting="binpack",
                accepted=Accepted({"pay": 2}, {"pay": f"{tick + 2} → 2: cap 2"} if tick else {}),
                plan_epoch=tick,
            )
        )
    journal.close()
    return directory.path


def test_named_scalers_are_listed_alone_also_those_of_a_file() -> None:
    own = f"{Path(__file__).parents[2]}/docs/examples/steady_pace.py:SteadyPace"
    listed = json.loads(said("scalers", "linear", own, "--json"))
    assert [each["name"] for each in listed] == ["linear", "steady-pace"]
    shown = said("scalers", own)
    assert "patience_s=20.0 s" in shown
    assert "linear" not in shown


def test_no_parameter_is_cut_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "…" not in said("scalers")


def test_every_registered_scaler_is_listed_with_units_and_defaults() -> None:
    listed = {each["name"]: each for each in json.loads(said("scalers", "--json"))}
    assert {"binpack", "binpack-tail", "linear"} <= set(listed)
    parameters = {parameter["name"]: parameter for parameter in listed["binpack"]["parameters"]}
    assert parameters["service_rate_per_s"] == {"name": "service_rate_per_s", "default": 200.0, "unit": "1/s"}
    assert parameters["slo_s"]["unit"] == "s"
    assert listed["binpack"]["fleet"] == "stream"
    assert listed["hpa"]["fleet"] == "any"
    assert "fleet: any" in said("scalers", "hpa")
    assert {each["fleet"] for each in listed.values()} == {"any", *fleet_kinds()}
    assert (listed["binpack"]["emulates"], listed["keda-kafka"]["emulates"]) == ("", "KEDA")
    assert "emulation" in said("scalers", "ds2")
    assert "emulation" not in said("scalers", "linear")
    assert "binpack-tail" in said("scalers")


@pytest.mark.parametrize(("name", "wanted"), [("rate_per_s", "1/s"), ("slo_s", "s"), ("f_up", ""), ("hold_ms", "ms")])
def test_the_unit_is_in_the_name(name: str, wanted: str) -> None:
    assert split_unit(name)[1] == wanted


def test_a_decision_is_explained_with_its_arithmetic_and_what_was_accepted(run: Path) -> None:
    text = said("explain", str(run), "--at", "1.5")
    assert "tick 1 at 1.1 s of a-run (binpack: acting)" in text
    assert "|G| = 2" in text
    assert "accepted: pay 3 → 2: cap 2; plan epoch then 1" in text


def test_the_tick_of_a_second_is_found_by_that_second(run: Path) -> None:
    assert "tick 2 at 2.1 s" in said("explain", str(run), "--at", "2")


def test_a_shadow_is_explained_at_its_own_last_decision(run: Path) -> None:
    text = said("explain", str(run), "--at", "1.9", "--scaler", "linear")
    assert "tick 0 at 0.1 s of a-run (linear: a shadow; binpack was acting)" in text
    assert "reason 0" in text


def test_a_second_outside_the_run_is_refused_with_the_valid_range(run: Path) -> None:
    with pytest.raises(PenstockError, match=r"--at 9: outside the run; .* has decisions from 0 to 3 s"):
        said("explain", str(run), "--at", "9")


def test_a_negative_second_is_refused(run: Path) -> None:
    result = CliRunner().invoke(app, ["explain", str(run), "--at", "-1"])
    assert result.exit_code == 2
    assert "'-1' is not a duration of at least 0" in result.output


def test_a_scaler_that_was_not_there_is_refused_with_those_that_were(run: Path) -> None:
    with pytest.raises(PenstockError, match="no scaler 'kpa' decided in that run; those that did: binpack, linear"):
        said("explain", str(run), "--at", "1", "--scaler", "kpa")


def test_an_incomplete_run_directory_is_named(run: Path, tmp_path: Path) -> None:
    (run / "decisions.jsonl").unlink()
    with pytest.raises(PenstockError, match=r"incomplete run directory, missing decisions\.jsonl"):
        said("explain", str(run), "--at", "1")
    with pytest.raises(PenstockError, match=r"not a run directory \(no run\.json\)"):
        said("explain", str(tmp_path), "--at", "1")


def test_a_journal_without_decisions_says_so(run: Path) -> None:
    (run / "decisions.jsonl").write_bytes(b"")
    with pytest.raises(PenstockError, match="its journal has no decision"):
        said("explain", str(run), "--at", "1")
