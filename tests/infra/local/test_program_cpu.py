"""CPU time of programs: with their descendants, and never less than before."""

from collections.abc import Mapping
from types import SimpleNamespace

import psutil
import pytest

from infra.local.program_cpu import ProgramCpu
from penstock.adapters.process_manager import ProgramStatus

PROGRAMS = {
    status.name: status
    for status in (
        ProgramStatus("kafka", 10, "active"),
        ProgramStatus("pipelines", 20, "active"),
        ProgramStatus("stopped", None, "stopped"),
    )
}


def process(ppid: int, used_s: float, created_s: float = 1.0) -> Mapping[str, object]:
    times = SimpleNamespace(user=used_s, system=0.5)
    return {"ppid": ppid, "create_time": created_s, "cpu_times": times}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[int, Mapping[str, object]]:
    """The machine's processes by pid."""
    found: dict[int, Mapping[str, object]] = {1: process(0, 9.0), 5: process(1, 9.0), 10: process(5, 1.0)}
    monkeypatch.setattr(
        psutil, "process_iter", lambda _: [SimpleNamespace(pid=pid, info=info) for pid, info in found.items()]
    )
    return found


def test_a_programs_descendants_are_its_own_and_other_processes_nobodys(
    table: dict[int, Mapping[str, object]],
) -> None:
    table |= {20: process(5, 1.0), 21: process(20, 2.0), 22: process(21, 3.0), 30: process(1, 99.0)}
    assert ProgramCpu(lambda: PROGRAMS).read() == {"kafka": 1.5, "pipelines": 7.5}


def test_what_an_ended_process_used_stays_counted_and_its_pid_may_come_again(
    table: dict[int, Mapping[str, object]],
) -> None:
    cpu = ProgramCpu(lambda: {"kafka": PROGRAMS["kafka"]})
    table[11] = process(10, 4.0)
    assert cpu.read() == {"kafka": 6.0}
    del table[11]
    assert cpu.read() == {"kafka": 6.0}
    table[11] = process(10, 1.0, created_s=7.0)
    table[10] = process(5, 1.25)
    assert cpu.read() == {"kafka": 7.75}


def test_a_process_that_cannot_be_read_is_left_out(table: dict[int, Mapping[str, object]]) -> None:
    table[11] = {"ppid": 10, "create_time": None, "cpu_times": None}
    assert ProgramCpu(lambda: {"kafka": PROGRAMS["kafka"]}).read() == {"kafka": 1.5}
