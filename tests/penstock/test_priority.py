import os
import subprocess
import sys

import pytest

from penstock.priority import NICENESS, take_precedence

SHOW = "import os; from penstock.priority import take_precedence as go; print(go(), os.getpriority(os.PRIO_PROCESS, 0))"


def test_precedence_is_taken_where_the_system_allows_it() -> None:
    shown = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True).stdout.split()
    allowed, niceness = shown[0] == "True", int(shown[1])
    assert allowed == (niceness == NICENESS)
    assert allowed or os.geteuid() != 0


def test_a_refusal_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    assert not take_precedence()
