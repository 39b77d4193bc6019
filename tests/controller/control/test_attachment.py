"""What the scaler of a fleet of the user's is told."""

from typing import Any

import pytest
from typer.testing import CliRunner

from controller.control.attachment import with_slo
from penstock.command import build
from penstock.registry import make_scaler
from penstock.runspec import ScalerSpec

KAFKA = "control --kafka 127.0.0.1:1 --topic t --group g --slo 250ms"


def test_a_scaler_is_told_the_slo_unless_it_is_set_or_has_no_parameter() -> None:
    assert with_slo(ScalerSpec(name="linear"), 0.25).parameters == {"slo_s": 0.25}
    given = ScalerSpec(name="linear", parameters={"slo_s": "2", "f_up": "0.8"})
    assert with_slo(given, 0.25) == given
    assert with_slo(ScalerSpec(name="hpa"), 0.25) == ScalerSpec(name="hpa")
    make_scaler(with_slo(ScalerSpec(name="binpack-tail"), 0.25))


def test_the_slo_of_the_command_reaches_acting_scaler_and_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class MadeError(Exception):
        pass

    def controller(**given: Any) -> None:
        made.append(given)
        raise MadeError

    monkeypatch.setattr("controller.control.group.GroupController", controller)
    asked = f"{KAFKA} --scaler linear --shadows binpack,hpa --set binpack.slo_s=2 -- true"
    result = CliRunner().invoke(build(), asked.split())
    assert isinstance(result.exception, MadeError), result.output
    assert made[0]["scaler"].parameters == {"slo_s": 0.25}
    assert [each.parameters for each in made[0]["shadows"]] == [{"slo_s": "2"}, {}]
