"""The supervisor: a real daemon, which the tests share, and real processes, which each test leaves none of."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.local.orphans import marked, stop_marked
from infra.local.state import MARKER, StateFolder
from penstock.adapters.process_manager import (
    NoSupervisorError,
    Program,
    Supervisor,
    UnknownProgramError,
    base_environment,
)
from penstock.errors import PenstockError
from tests.support.eventually import eventually

STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"


def start_daemon(folder: Path) -> Supervisor:
    state = StateFolder(folder)
    state.create()
    subprocess.run(
        (sys.executable, "-m", "infra.local.daemon", str(folder)),
        env={**base_environment(), MARKER: str(folder)},
        check=True,
        timeout=30,
        start_new_session=True,
    )
    return Supervisor(state.supervisor_endpoint)


@pytest.fixture(scope="module")
def daemon_folder() -> Iterator[Path]:
    """State folder of the shared daemon."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    start_daemon(folder)
    yield folder
    stop_marked(folder, grace_s=0)
    shutil.rmtree(folder)


@pytest.fixture
def supervisor(daemon_folder: Path) -> Iterator[Supervisor]:
    """The shared daemon without a program."""
    client = Supervisor(StateFolder(daemon_folder).supervisor_endpoint)
    yield client
    for name, status in client.programs().items():
        client.remove(name, wait=False)
        if status.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(status.pid, signal.SIGKILL)
    eventually(lambda: client.programs() == {} and len(marked(daemon_folder)) == 1)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    def make(name: str = "sleeper", *command: str, **settings: object) -> Program:
        return Program(
            name=name,
            command=command or ("sleep", "600"),
            folder=tmp_path,
            log=tmp_path / "logs" / f"{name}.log",
            **settings,  # type: ignore[arg-type]
        )

    return make


def script(text: str) -> tuple[str, str, str]:
    return ("/bin/sh", "-c", text)


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = supervisor.programs()[name].pid
    assert pid is not None
    return pid


def stubborn_pid(supervisor: Supervisor, name: str) -> int:
    """The pid of ``STUBBORN``, once it ignores SIGTERM."""
    pid = pid_of(supervisor, name)
    eventually(lambda: ignored_signals(pid) >> (signal.SIGTERM - 1) & 1 == 1)
    return pid


def ignored_signals(pid: int) -> int:
    """The mask in ``/proc``: bit n - 1 is signal n."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("SigIgn:")), 16)


def test_an_added_program_exists_when_add_returns(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    supervisor.add(program())
    status = supervisor.programs()["sleeper"]
    assert status.state == "active"
    assert status.pid is not None
    assert psutil.pid_exists(status.pid)


def test_a_program_gets_its_environment_and_the_mark_and_nothing_else(
    supervisor: Supervisor, program: Callable[..., Program], daemon_folder: Path
) -> None:
    supervisor.add(program(env={"COLOUR": "blue"}))
    process = psutil.Process(pid_of(supervisor, "sleeper"))
    eventually(lambda: process.name() == "sleep")
    environment = process.environ()
    environment.pop("PWD", None)  # the shell that redirects the output sets it
    assert environment == {"COLOUR": "blue", MARKER: str(daemon_folder)}


def test_what_a_program_says_is_in_its_log_to_the_last_word(
    supervisor: Supervisor, program: Callable[..., Program], tmp_path: Path
) -> None:
    supervisor.add(program("speaker", *script("echo first; echo last >&2")))
    eventually(lambda: supervisor.programs()["speaker"].state == "stopped")
    assert (tmp_path / "logs" / "speaker.log").read_text() == "first\nlast\n"


def test_arguments_reach_the_program_as_they_are(
    supervisor: Supervisor, program: Callable[..., Program], tmp_path: Path
) -> None:
    arguments = ("two words", "$HOME", "it's", '"quoted"', "a;b|c", "")
    supervisor.add(program("echo", sys.executable, "-c", "import sys; print(sys.argv[1:])", *arguments))
    eventually(lambda: supervisor.programs()["echo"].state == "stopped")
    assert (tmp_path / "logs" / "echo.log").read_text().strip() == str(list(arguments))


def test_a_killed_program_is_respawned(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    supervisor.add(program(respawn=True))
    first = pid_of(supervisor, "sleeper")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: supervisor.programs()["sleeper"].pid not in (None, first))


def test_a_program_without_respawn_stays_ended_and_listed(
    supervisor: Supervisor, program: Callable[..., Program]
) -> None:
    supervisor.add(program())
    os.kill(pid_of(supervisor, "sleeper"), signal.SIGKILL)
    eventually(lambda: supervisor.programs()["sleeper"].state == "stopped")
    assert supervisor.programs()["sleeper"].pid is None


def test_a_program_that_only_crashes_is_given_up(
    supervisor: Supervisor, program: Callable[..., Program], tmp_path: Path
) -> None:
    supervisor.add(program("crash", *script("echo attempt; exit 3"), respawn=True))
    eventually(lambda: supervisor.programs()["crash"].state == "failed")
    assert (tmp_path / "logs" / "crash.log").read_text().splitlines() == ["attempt"] * 5


def test_removal_asks_first(supervisor: Supervisor, program: Callable[..., Program], tmp_path: Path) -> None:
    supervisor.add(
        program("polite", *script("trap 'echo leaving; exit' TERM; echo ready; while :; do sleep 0.1; done"))
    )
    log = tmp_path / "logs" / "polite.log"
    eventually(lambda: log.exists() and "ready" in log.read_text())
    supervisor.remove("polite")
    assert log.read_text() == "ready\nleaving\n"
    assert supervisor.programs() == {}


def test_what_ignores_the_question_is_killed_after_its_grace(
    supervisor: Supervisor, program: Callable[..., Program]
) -> None:
    supervisor.add(program("stubborn", *script(STUBBORN), grace_s=0.5))
    pid = stubborn_pid(supervisor, "stubborn")
    supervisor.remove("stubborn")
    assert not psutil.pid_exists(pid)


def test_removal_takes_the_children_along(
    supervisor: Supervisor, program: Callable[..., Program], daemon_folder: Path
) -> None:
    supervisor.add(program("parent", *script("sleep 601 & sleep 602 & wait"), grace_s=1.0))
    eventually(lambda: len(marked(daemon_folder)) == 4)  # the daemon, the parent and two children
    supervisor.remove("parent")
    eventually(lambda: len(marked(daemon_folder)) == 1)  # what was killed is there until the kernel has seen to it


def test_a_slow_removal_keeps_nobody_waiting(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    supervisor.add(program("stubborn", *script(STUBBORN), grace_s=600.0))
    stubborn_pid(supervisor, "stubborn")
    supervisor.remove("stubborn", wait=False)
    supervisor.add(program("other", respawn=True))
    other = pid_of(supervisor, "other")
    os.kill(other, signal.SIGKILL)
    eventually(lambda: supervisor.programs()["other"].pid not in (None, other))
    supervisor.remove("other")
    assert supervisor.programs()["stubborn"].state == "stopping"


def test_a_removed_program_is_not_respawned(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    supervisor.add(program("polite", *script("trap 'sleep 0.7; exit' TERM; while :; do sleep 0.1; done"), respawn=True))
    supervisor.remove("polite", wait=False)
    supervisor.remove("polite")
    assert supervisor.programs() == {}


def test_a_signal_reaches_the_program(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    supervisor.add(program())
    process = psutil.Process(pid_of(supervisor, "sleeper"))
    supervisor.signal("sleeper", signal.SIGSTOP)
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    supervisor.signal("sleeper", signal.SIGCONT)
    eventually(lambda: process.status() == psutil.STATUS_SLEEPING)


def test_programs_are_listed_by_prefix(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    for name in ("one:a", "one:b", "two:a"):
        supervisor.add(program(name))
    assert list(supervisor.programs("one:")) == ["one:a", "one:b"]


def test_an_unknown_name_is_told_but_nothing_to_remove(supervisor: Supervisor) -> None:
    with pytest.raises(UnknownProgramError, match=r"nobody: no such program"):
        supervisor.signal("nobody", signal.SIGTERM)
    supervisor.remove("nobody")


def test_a_taken_name_is_an_error_that_keeps_secrets(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    supervisor.add(program())
    with pytest.raises(PenstockError, match=r"sleeper: a program of that name") as raised:
        supervisor.add(program(env={"PASSWORD": "hidden"}))
    assert "hidden" not in str(raised.value)


def test_what_cannot_be_started_is_told_by_name(supervisor: Supervisor, program: Callable[..., Program]) -> None:
    with pytest.raises(PenstockError, match=r"ghost: there is no program /nowhere/ghost"):
        supervisor.add(program("ghost", "/nowhere/ghost"))
    assert supervisor.programs() == {}


def test_a_program_that_does_not_run_cannot_be_signalled(
    supervisor: Supervisor, program: Callable[..., Program]
) -> None:
    supervisor.add(program("brief", *script("exit 0")))
    eventually(lambda: supervisor.programs()["brief"].pid is None)
    with pytest.raises(PenstockError, match=r"brief: cannot be signalled, it does not run"):
        supervisor.signal("brief", signal.SIGTERM)


def test_without_a_supervisor_the_way_out_is_told_at_once(state_folder: Path) -> None:
    with pytest.raises(NoSupervisorError, match=r"start the local world with `penstock up`"):
        Supervisor(StateFolder(state_folder).supervisor_endpoint, timeout_s=600.0).programs()


def test_two_state_folders_do_not_see_each_other(
    supervisor: Supervisor, program: Callable[..., Program], tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = start_daemon(tmp_path_factory.mktemp("o"))
    try:
        supervisor.add(program())
        other.add(program())
        assert pid_of(supervisor, "sleeper") != pid_of(other, "sleeper")
        other.remove("sleeper")
        assert supervisor.programs()["sleeper"].state == "active"
    finally:
        other.quit()


def test_a_second_daemon_does_not_take_the_state_folder_over(
    supervisor: Supervisor, program: Callable[..., Program], daemon_folder: Path
) -> None:
    supervisor.add(program())
    with pytest.raises(subprocess.CalledProcessError):
        start_daemon(daemon_folder)
    assert supervisor.programs()["sleeper"].state == "active"


def test_quitting_ends_all_programs_and_the_daemon(program: Callable[..., Program], state_folder: Path) -> None:
    supervisor = start_daemon(state_folder)
    supervisor.add(program("a"))
    supervisor.add(program("b", *script(STUBBORN), grace_s=0.5))
    stubborn_pid(supervisor, "b")
    supervisor.remove("b", wait=False)
    supervisor.quit()
    eventually(lambda: marked(state_folder) == [])
