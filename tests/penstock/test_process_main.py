"""``main`` of processes: exit codes, signals, logs."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.errors import PenstockError
from penstock.process_main import (
    NICENESS,
    configure_log,
    on_termination,
    process_parser,
    run_main,
    take_precedence,
)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_exit_code_of_work_and_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise PenstockError("run.json: missing")

    assert run_main(lambda: None) == 0
    assert run_main(fail) == 2
    assert capsys.readouterr().err == "error: run.json: missing\n"


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_main(lambda: 1 // 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_termination_calls_stop(number: signal.Signals) -> None:
    stopped: list[str] = []
    on_termination(lambda: stopped.append("stopped"))
    os.kill(os.getpid(), number)
    assert stopped == ["stopped"]


def test_quiet_loggers() -> None:
    configure_log({"penstock.test.chatty": logging.ERROR})
    assert not logging.getLogger("penstock.test.chatty").isEnabledFor(logging.WARNING)


def test_parser_requires_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        process_parser("some.module", "Something.").parse_args([])
    assert "python -m some.module: error" in capsys.readouterr().err


SHOW = """
import os
from penstock.process_main import take_precedence
print(take_precedence(), os.getpriority(os.PRIO_PROCESS, 0))
"""


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
