"""Naming scalers and their parameters, with errors that show the way out."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from controller.scalers.linear import Linear
from controller.scalers.rps import RpsParameters
from penstock import registry
from penstock.errors import PenstockError
from penstock.parameters import make_parameters, parse_settings
from penstock.registry import ScalerClass, emulated_scalers, emulated_system, parse_scaler, validate
from penstock.runspec import ScalerSpec


@dataclass(frozen=True)
class Parameters:
    f_up: float = 0.9
    max_replicas: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.f_up <= 1:
            raise ValueError("f_up must lie between 0 and 1")


def test_settings_are_grouped_by_scaler() -> None:
    assert parse_settings(["binpack-tail.f_up=0.8", "binpack-tail.hold_s=10"]) == {
        "binpack-tail": {"f_up": "0.8", "hold_s": "10"}
    }


def test_an_entry_of_a_mapping_is_set_by_its_own_name() -> None:
    targets = ["rps.target_by_fleet_per_s.pdf=50", "rps.target_by_fleet_per_s.left-reduce=2.5"]
    settings = parse_settings([*targets, "rps.rho=0.6"])
    given = {"target_by_fleet_per_s": {"store": 70}, **settings["rps"]}
    parameters = make_parameters("rps", RpsParameters, given)
    assert parameters.target_by_fleet_per_s == {"store": 70.0, "pdf": 50.0, "left-reduce": 2.5}
    assert parameters.rho == 0.6
    with pytest.raises(PenstockError, match=r"rps.rho.pdf=1: Expected `float`, got `object`"):
        make_parameters("rps", RpsParameters, {"rho.pdf": "1"})


@pytest.mark.parametrize("text", ["f_up=0.8", "binpack.f_up", ".f_up=1", "binpack.=1"])
def test_a_malformed_setting_shows_the_form(text: str) -> None:
    with pytest.raises(PenstockError, match=r"expected scaler.parameter=value"):
        parse_settings([text])


def test_text_becomes_the_type_of_the_parameter() -> None:
    assert make_parameters("s", Parameters, {"f_up": "0.8", "max_replicas": "7"}) == Parameters(0.8, 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"f_upp": "1"}, r"unknown parameter 's.f_upp' \(did you mean s.f_up\?\): it has f_up, max_replicas"),
        ({"f_up": "much"}, "s.f_up=much: expected a number"),
        ({"f_up": "7"}, "s.f_up=7: f_up must lie between 0 and 1"),
    ],
)
def test_a_bad_parameter_is_one_clear_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        make_parameters("s", Parameters, given)


def test_a_scaler_says_itself_what_it_emulates() -> None:
    class Rival:
        emulates = "another system"

    assert emulated_system(cast(ScalerClass, Rival)) == "another system"
    assert emulated_system(cast(ScalerClass, object)) == ""
    assert emulated_scalers() == {
        "ds2": "DS2",
        "flink": "Flink's autoscaler",
        "hpa": "Kubernetes HPA",
        "keda-kafka": "KEDA",
        "keda-rabbitmq": "KEDA",
        "kpa": "Knative KPA",
        "openfaas-ce": "OpenFaaS CE",
        "openfaas-pro": "OpenFaaS Pro",
    }


def test_an_unknown_scaler_names_its_neighbours() -> None:
    with pytest.raises(PenstockError, match=r"unknown scaler 'binpak-tail' \(did you mean .*binpack-tail"):
        parse_scaler("binpak-tail")


def test_a_scaler_from_a_file_takes_part_under_its_own_name(tmp_path: Path) -> None:
    methods = ("def start(self, seed): ...", "def decide(self, observation, state): ...")
    (tmp_path / "mine.py").write_text("\n    ".join(("class Mine:", "name = 'mine'", *methods)))
    spec = parse_scaler(f"{tmp_path}/mine.py:Mine", {"mine": {"x": "1"}})
    assert (spec.name, dict(spec.parameters)) == ("mine", {"x": "1"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{folder}/none.py:Mine", "no such file"),
        ("{folder}/taken.py:Mine", "the name 'linear' is that of a registered scaler; choose another"),
        ("{folder}/empty.py:Mine", "no scaler class 'Mine'"),
        ("{folder}/broken.py:Mine", "SyntaxError while importing"),
        ("{folder}/short.py:Mine", r"short\.py:2: .*; an installed Penstock has it as penstock\.controller\.nothing"),
    ],
)
def test_a_file_without_a_scaler_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "taken.py").write_text(
        "class Mine:\n    name = 'linear'\n    def decide(self, observation, state): ..."
    )
    (tmp_path / "broken.py").write_text("class Mine(:")
    (tmp_path / "short.py").write_text("import math\nfrom controller.nothing import Mine\n")
    with pytest.raises(PenstockError, match=message):
        parse_scaler(text.format(folder=tmp_path))


def test_a_scaler_that_decides_for_long_in_its_trial_is_named_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Slow(Linear):
        name = "slow"

        def decide(self, observation: Any, state: Any) -> Any:
            if observation.unknown:
                time.sleep(0.3)
            return super().decide(observation, state)

    monkeypatch.setattr(registry, "LONG_TRIAL_S", 0.05)
    validate(cast(ScalerClass, Slow), ScalerSpec(name="slow", file="slow.py:Slow"))
    told = "slow.py:Slow: scaler slow decides on what is unknown, a trial before the run, for more than 0.05 s\n"
    assert capfd.readouterr().err == told
