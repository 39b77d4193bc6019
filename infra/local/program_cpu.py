"""CPU time of the supervisor's programs with all their descendants: of those, too, that tell no metrics (Kafka, Redis,
RabbitMQ, HAProxy, Spark's JVM, replicas of functions).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping

import psutil

from penstock.adapters.process_manager import ProgramStatus


class ProgramCpu:
    """A counter per program that never falls: what a process used stays counted when it has ended. What it uses after
    its last reading is lost.
    """

    def __init__(self, programs: Callable[[], Mapping[str, ProgramStatus]]) -> None:
        self._programs = programs
        self._used_s: defaultdict[str, float] = defaultdict(float)
        self._read_s: dict[tuple[int, float], float] = {}

    def read(self) -> dict[str, float]:
        """Seconds by program, of those that run now. Raises PenstockError without the supervisor."""
        programs = {status.pid: name for name, status in self._programs().items() if status.pid is not None}
        processes = {
            each.pid: each.info
            for each in psutil.process_iter(["ppid", "create_time", "cpu_times"])
            if each.info["cpu_times"] is not None
        }
        running, read_s = dict.fromkeys(programs.values(), 0.0), {}
        for pid, found in processes.items():
            if (name := _program_of(pid, programs, processes)) is None:
                continue
            key = pid, found["create_time"]  # a pid is used again
            used_s = read_s[key] = found["cpu_times"].user + found["cpu_times"].system
            self._used_s[name] += max(0.0, used_s - self._read_s.get(key, 0.0))
        self._read_s = read_s
        return {name: self._used_s[name] for name in running}


def _program_of(pid: int, programs: Mapping[int, str], processes: Mapping[int, Mapping[str, int]]) -> str | None:
    """The program that is the process or its nearest ancestor; None for a process of somebody else."""
    while pid not in programs:
        if pid not in processes or pid == processes[pid]["ppid"]:
            return None
        pid = processes[pid]["ppid"]
    return programs[pid]
