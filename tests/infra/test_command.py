"""What the commands of services tell."""

from types import SimpleNamespace

import pytest

from infra import command


def test_up_on_a_cluster_ends_with_the_command_that_deletes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_cluster", lambda _: SimpleNamespace(up=lambda: None))
    command.up("kind")
    told = capsys.readouterr()
    assert "to delete it: penstock down --target kind" in told.out + told.err
