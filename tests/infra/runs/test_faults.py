"""A fault is done and undone once; one that meets something that does not run has no effect, and says so."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.catalogue import EXPERIMENTS
from infra.runs.context import RunContext
from infra.runs.faults import Faults, Injected, fill_disk, kill_part
from infra.runs.kinds import check_live_faults
from infra.runs.programs import ProgramReplicas
from penstock.adapters.process_manager import NotRunningError, ProgramStatus, Supervisor, UnknownProgramError
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, read_lines
from penstock.runspec import Fault, FaultKind, FaultRecord

LONG_S = 3600.0


class Programs(Supervisor):
    """A supervisor whose programs are these; the signals that they got."""

    def __init__(self, pid: int = 7, /, **states: str) -> None:
        super().__init__("")
        self.pid, self.states, self.sent = pid, states, []  # type: ignore[var-annotated]

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        running = {
            name: ProgramStatus(name, self.pid if state == "active" else None, state) for name, state in self.known()
        }
        return {name: status for name, status in running.items() if name.startswith(prefix)}

    def known(self) -> Any:
        return [(f"r:{name}", state) for name, state in self.states.items()]

    def _ask(self, program: str, command: str, wait_s: float = 0.0, **properties: Any) -> dict[str, Any]:
        if program not in dict(self.known()):
            raise UnknownProgramError(program)
        self.sent.append((program, properties["signum"]))
        return {"status": "ok"}


def context_of(tmp_path: Path, programs: Supervisor) -> RunContext:
    context = RunContext.__new__(RunContext)
    context.directory, context.supervisor = RunDirectory(tmp_path), programs
    context.spec = SimpleNamespace(run="r")  # type: ignore[assignment]
    context.check_services = lambda: None  # type: ignore[method-assign]
    return context


def faults_of(tmp_path: Path, actions: Mapping[FaultKind, Callable[[], Injected]]) -> Faults:
    return Faults(context_of(tmp_path, Programs()), actions)


def records(tmp_path: Path) -> list[FaultRecord]:
    return list(read_lines(RunDirectory(tmp_path).faults_file, FaultRecord))


@pytest.mark.parametrize("state", ["starting", "stopped", None])
def test_a_program_that_does_not_run_cannot_be_killed_and_the_record_says_so(tmp_path: Path, state: str | None) -> None:
    context = context_of(tmp_path, Programs(**({} if state is None else {"controller": state})))
    faults = Faults(context, {"kill-controller": lambda: kill_part(context, "controller")})
    faults.inject(Fault("kill-controller", 5.0))
    faults.close()
    (record,) = records(tmp_path)
    assert not record.hit
    assert "r:controller" in record.detail


def test_a_program_that_runs_is_killed(tmp_path: Path) -> None:
    programs = Programs(controller="active")
    context = context_of(tmp_path, programs)
    faults = Faults(context, {"kill-controller": lambda: kill_part(context, "controller")})
    faults.inject(Fault("kill-controller", 5.0))
    faults.close()
    assert records(tmp_path)[0].hit
    assert programs.sent == [("r:controller", signal.SIGKILL)]


def test_a_program_on_a_full_disk_writes_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    code = (
        "import errno, sys\n"
        "with open('file', 'wb', buffering=0) as file:\n"
        "    for line in sys.stdin:\n"
        "        try:\n"
        "            print(file.write(line.encode()), flush=True)\n"
        "        except OSError as error:\n"
        "            print(errno.errorcode[error.errno], flush=True)\n"
    )
    with subprocess.Popen((sys.executable, "-c", code), cwd=tmp_path, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = []
        context = context_of(tmp_path, Programs(process.pid, controller="active"))
        injected = None
        for act in ("before", "full", "after"):
            if act == "full":
                injected = fill_disk(context, "controller")
            if act == "after" and injected is not None and injected.undo is not None:
                injected.undo()
            process.stdin.write(f"{act}\n")
            process.stdin.flush()
            said.append(process.stdout.readline().strip())
        process.stdin.close()
    assert said == ["7", "EFBIG", "6"]
    assert (tmp_path / "file").read_text() == "before\nafter\n"


def test_the_disk_of_a_program_that_does_not_run_is_not_filled(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="r:controller"):
        fill_disk(context_of(tmp_path, Programs(controller="starting")), "controller")


def test_any_other_failure_of_a_fault_ends_the_run(tmp_path: Path) -> None:
    def fail() -> Injected:
        raise PenstockError("no answer from the supervisor")

    faults = faults_of(tmp_path, {"kill-worker": fail})
    with pytest.raises(PenstockError, match="no answer"):
        faults.inject(Fault("kill-worker", 1.0))
    faults.close()


def test_a_frozen_replica_that_has_ended_does_not_keep_the_others_frozen(tmp_path: Path) -> None:
    programs = Programs(one="active", two="active")
    frozen = ProgramReplicas(context_of(tmp_path, programs)).freeze()
    del programs.states["one"]
    assert frozen.undo is not None
    frozen.undo()
    assert programs.sent[-1] == ("r:two", signal.SIGCONT)


def test_a_lasting_fault_that_still_lasts_is_not_begun_again(tmp_path: Path) -> None:
    begun: list[str] = []
    undone: list[str] = []

    def stop() -> Injected:
        begun.append("")
        return Injected("kafka", lambda: undone.append(""))

    faults = faults_of(tmp_path, {"stop-broker": stop})
    for _ in range(2):
        faults.inject(Fault("stop-broker", 1.0, LONG_S))
    faults.end()
    faults.inject(Fault("stop-broker", 2.0, LONG_S))
    faults.close()
    assert (len(begun), len(undone)) == (2, 2)
    assert [record.hit for record in records(tmp_path)] == [True, False, True]


def test_the_end_of_a_run_waits_for_an_undo_that_has_begun_and_does_not_repeat_it(tmp_path: Path) -> None:
    undone: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def undo() -> None:
        began.set()
        go_on.wait()
        undone.append("")

    faults = faults_of(tmp_path, {"stop-broker": lambda: Injected("kafka", undo)})
    faults.inject(Fault("stop-broker", 1.0, 0.0))
    began.wait()
    ending = threading.Thread(target=faults.close)
    ending.start()
    go_on.set()
    ending.join()
    assert len(undone) == 1


def test_a_fault_that_cannot_be_undone_is_told_and_the_others_are_undone(tmp_path: Path) -> None:
    undone: list[str] = []

    def fail() -> None:
        raise PenstockError("kafka has died")

    actions: dict[FaultKind, Callable[[], Injected]] = {
        "restart-redis": lambda: Injected("redis", lambda: undone.append("redis")),
        "stop-broker": lambda: Injected("kafka", fail),
        "freeze-workers": lambda: Injected("workers", lambda: undone.append("workers")),
    }
    faults = faults_of(tmp_path, actions)
    for kind in actions:
        faults.inject(Fault(kind, 1.0, LONG_S))
    with pytest.raises(PenstockError, match="kafka has died"):
        faults.close()
    assert sorted(undone) == ["redis", "workers"]


def test_a_fault_that_a_live_run_lacks_is_refused_before_it_begins() -> None:
    system = EXPERIMENTS["binpack-workload-1"].system
    check_live_faults(system, "local", (Fault("kill-controller", 1.0),))
    with pytest.raises(PenstockError, match="--world local has kill-worker"):
        check_live_faults(system, "local", (Fault("kill-forwarder", 1.0),))
    with pytest.raises(PenstockError, match="--world kubernetes has kill-worker"):
        check_live_faults(system, "kubernetes", (Fault("stop-broker", 1.0, 2.0),))


def test_not_running_is_told_apart_from_other_errors() -> None:
    with pytest.raises(NotRunningError):
        Programs(one="stopped").signal("r:one", signal.SIGKILL)
