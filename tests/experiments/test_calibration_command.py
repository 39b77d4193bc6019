"""``penstock calibrate functions``: what it says can be given to the scalers, and what is wrong is one line."""

import shlex
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from experiments.catalogue import find_experiment
from experiments.experiment import Options, run_spec
from functions.calibration import FunctionCalibration, PipelineCalibration, Times
from penstock.command import build
from penstock.errors import PenstockError
from penstock.parameters import parse_settings
from penstock.records import payment_decoder
from penstock.systems import FunctionSystem

FLOOR_S = 0.0125
RATES_PER_S = {"sha256": 78.0, "qrcode": 70.0, "pdf": 60.0, "store": 75.5}


def calibrated(gateway: str, name: str, system: Any, payloads: list[bytes], **_: Any) -> PipelineCalibration:
    """As if it had been measured."""
    assert gateway == "http://nobody:1"
    assert len({payment_decoder.decode(payload) for payload in payloads}) == 20
    service, work = Times(100, 0.013, 0.0128, 0.015), Times(50, 0.002, 0.0018, 0.004)
    return PipelineCalibration(
        pipeline=name,
        deadline_s=system.deadline_s,
        functions=tuple(
            FunctionCalibration(
                name=function.name,
                floor_s=function.service_time_s,
                work=work,
                service=service,
                service_rate_per_s=RATES_PER_S[function.name],
            )
            for function in system.functions
        ),
        total_estimate_s=0.052,
        whole=Times(90, 0.056, 0.055, 0.06),
        call_s=0.0015,
    )


def invoke(monkeypatch: pytest.MonkeyPatch, *arguments: str, measured: Any = calibrated) -> str:
    monkeypatch.setattr("functions.calibration.calibrate_pipeline", measured)
    done = CliRunner().invoke(
        build(), ["calibrate", "functions", *arguments], env={"PENSTOCK_GATEWAY": "http://nobody:1", "COLUMNS": "160"}
    )
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_the_targets_that_it_names_are_what_rps_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    said = invoke(monkeypatch, "amesos-document")
    options = shlex.split(said.rpartition("For scalers: ")[2].splitlines()[0])
    assert options[::2] == ["--set"] * 4
    settings = parse_settings(options[1::2])
    spec = run_spec(find_experiment("amesos-document"), "rps", Options(settings=settings), "run")
    assert spec.scaler.parameters["target_by_fleet_per_s"] == {
        name: pytest.approx(rate_per_s, rel=1e-3) for name, rate_per_s in RATES_PER_S.items()
    }
    fast = run_spec(find_experiment("amesos-document"), "rps", Options(settings=settings, speed=4), "run")
    assert fast.scaler.parameters["target_by_fleet_per_s"]["pdf"] == pytest.approx(4 * 60, rel=1e-3)
    assert "totalEstimate of document: 52.00 ms along the longest path" in said
    assert "assume 50.00 ms" in said
    assert "mean 56.00 ms, p50 55.00 ms, p99 60.00 ms of 90, deadline 500.00 ms" in said


def test_the_sim_world_is_told_what_a_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    option, setting = shlex.split(invoke(monkeypatch, "amesos-document").splitlines()[-1].rpartition(": ")[2])
    assert option == "--set"
    options = Options(system=parse_settings([setting])["system"])
    spec = run_spec(find_experiment("amesos-document"), "rps", options, "run")
    assert isinstance(spec.system, FunctionSystem)
    assert spec.system.call_s == 0.0015


def test_as_json_it_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = msgspec.json.decode(invoke(monkeypatch, "amesos-document", "--json"), type=PipelineCalibration)
    assert {each.name: each.service_rate_per_s for each in found.functions} == RATES_PER_S


def test_images_and_secrets_of_the_user_are_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    systems: list[FunctionSystem] = []

    def taken(gateway: str, name: str, system: FunctionSystem, payloads: list[bytes], **more: Any) -> Any:
        systems.append(system)
        return calibrated(gateway, name, system, payloads, **more)

    given = ("--set", "system.image=me/{function}:1", "--set", "system.secrets=redis-url")
    invoke(monkeypatch, "amesos-document", *given, measured=taken)
    assert [(each.image, each.secrets) for each in systems] == [("me/{function}:1", "redis-url")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["amesos-documents"], r"unknown experiment 'amesos-documents' \(did you mean amesos-document"),
        (["multiqueue"], r"multiqueue has no functions: choose one of amesos-document, amesos-aes, amesos-matrix"),
        (["amesos-document", "--set", "rps.rho=1"], r"--set rps\.…: a calibration has settings of the system alone"),
        (["amesos-document", "--set", "system.images=x"], r"unknown system setting 'system\.images' \(did you mean"),
        (["amesos-document", "--seconds", "0"], r"--seconds 0: expected more than 0 and less than 3600"),
    ],
)
def test_bad_input_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    with pytest.raises(PenstockError, match=message):
        invoke(monkeypatch, *arguments)
