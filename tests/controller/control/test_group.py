"""Which state folder and fleet a consumer group of the user's gets."""

from pathlib import Path

import pytest

from controller.control import group as group_module
from controller.control.group import GroupController, fleet_of
from penstock.runspec import ScalerSpec

ALIKE = ("orders.v1", "orders-v1", "Orders_V1", "支付", "订单", "fleet")


class ReachedError(Exception):
    pass


def folder_of(group: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The state folder of the group's replicas, as ``penstock control`` asks for it."""
    asked: list[Path] = []

    def supervisor(folder: Path, _: str) -> None:
        asked.append(folder)
        raise ReachedError

    monkeypatch.setattr(group_module, "count_partitions", lambda *_: 4)
    monkeypatch.setattr(group_module, "GroupSupervisor", supervisor)
    with pytest.raises(ReachedError):
        GroupController(
            kafka="127.0.0.1:1", topic="t", group=group, scaler=ScalerSpec(name="linear"), shadows=(),
            command=("true",), initial_replicas=1, max_replicas=None, slo_s=0.5, tick_phase_s=0.0, grace_s=10.0,
        )  # fmt: skip
    return asked[0].name


def test_groups_whose_names_are_alike_have_folders_and_replicas_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [folder_of(group, monkeypatch) for group in ALIKE]
    assert len(set(folders)) == len(ALIKE)
    assert folders == [f"control-{fleet_of(group)}" for group in ALIKE]
    assert folders[0].startswith("control-orders-v1-")
    assert folders[3].startswith("control-fleet-")


def test_a_plain_name_stays_as_it_is() -> None:
    assert [fleet_of(group) for group in ("own", "orders-v1", "fleet")] == ["own", "orders-v1", "fleet"]
