"""One live run at a time in a state folder."""

import os
from pathlib import Path

import pytest

from infra.local.services import LocalServices
from infra.local.settings import ServiceSettings
from infra.local.state import StateFolder
from infra.runs.local_world import LocalWorld
from penstock.errors import PenstockError
from penstock.settings import Folders


def test_a_second_run_is_refused_until_the_first_has_ended(state_folder: Path) -> None:
    state = StateFolder(state_folder)
    said = rf"another run \(pid {os.getpid()}\) uses the services of .*PENSTOCK_STATE"
    with state.running(), pytest.raises(PenstockError, match=said), state.running():
        raise AssertionError("two at once")
    with state.running():
        pass


def test_a_local_world_is_refused_before_it_starts_anything(state_folder: Path) -> None:
    services = LocalServices(Folders(state=state_folder), ServiceSettings.load())
    there, refused = StateFolder(state_folder).running(), pytest.raises(PenstockError, match="another run")
    with there, refused, LocalWorld(services=services):
        raise AssertionError("two at once")
    assert not services.is_up()
