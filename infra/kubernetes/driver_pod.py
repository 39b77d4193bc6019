"""The driver's pod, for overlays whose brokers and pods cannot be reached from this machine.

A command is run in the pod. Its output is shown here, Ctrl-C is forwarded, and the directories of its runs are copied
here at its end. It survives a lost connection, which is made again.
"""

import os
import secrets
import shlex
import shutil
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from infra.kubernetes.kubectl import Kubectl, unpack
from infra.kubernetes.services import DRIVER, NAMESPACE
from penstock.errors import PenstockError
from penstock.world import Progress

RUNS: Final = "/runs"
"""PENSTOCK_RUNS of the pod, in driver.yaml."""
HERE: Final = "PENSTOCK_DRIVER"
"""Variable that is set in the pod itself."""
LOST_CONNECTIONS: Final = 20
"""Lost connections in a row before the command is given up."""
RECONNECT_S: Final = 3.0
FORWARD_AGAIN_S: Final = 1.0

START = """
mkdir -p {session}
touch {session}/began
exec 9>{runs}/.lock
flock --nonblock 9 || {{ echo 'another run is active on this cluster' >&2; exit 75; }}
setsid sh -c '{command} >{session}/output 2>&1 & echo $! >{session}/pid.partial; mv {session}/pid.partial {session}/pid;
    wait $!; echo $? >{session}/code.partial; mv {session}/code.partial {session}/code' </dev/null >/dev/null 2>&1 &
until [ -e {session}/pid ]; do sleep 0.05; done
cat {session}/pid
"""
"""The command holds the lock until it ends. Background processes of a shell ignore Ctrl-C, hence ``env``."""
STATE = """
for i in $(seq 20); do
    if [ -e {session}/code ]; then cat {session}/code; exit 0; fi
    if kill -0 {pid} 2>/dev/null; then echo running; exit 0; fi
    sleep 0.1
done
echo gone
"""
"""The exit code is written shortly after the end."""
COPY = """
cd {runs}
find . -mindepth 1 -maxdepth 1 -type d -newer {session}/began ! -name '.*' -print0 | tar --null --files-from=- -cf -
"""


class DriverPod:
    """The driver's pod on the current cluster. ``tell`` receives a line for each step that takes a while."""

    def __init__(self, tell: Progress = lambda _: None, runs: str = RUNS) -> None:
        self._kubectl = Kubectl(NAMESPACE)
        self._tell = tell
        self._runs = runs
        self._session = f"{runs}/.sessions/{secrets.token_hex(4)}"
        self._pod = ""
        self._pid = 0

    def exists(self) -> bool:
        """Whether runs take place in it: not in that pod itself, nor where no overlay is up."""
        if HERE in os.environ:
            return False
        self._kubectl.require_cluster()
        return bool(self._kubectl.run("get", f"deployment/{DRIVER}", "--ignore-not-found").strip())

    def run(self, arguments: Sequence[str], runs: Path, out: BinaryIO) -> int:
        """Run ``penstock arguments…`` in the pod; return its exit code. ``out`` gets output, ``runs`` directories.

        Raises PenstockError if the pod is not ready, is in use, or is deleted meanwhile.
        """
        self._pod = self._ready_pod()
        self._start(arguments)
        try:
            code = self._follow(out)
        except KeyboardInterrupt:
            self._tell("interrupted: stopping the run on the cluster; Ctrl-C again does not wait for that")
            self._interrupt()
            code = self._follow(out)
        except SystemExit:
            self._interrupt()  # it ends without being waited for
            raise
        for name in self._fetch(runs):
            report = runs / name / "report.html"
            self._tell(f"copied from the driver's pod: {report if report.exists() else runs / name}")
        self._execute(f"rm -rf {self._session}")
        return code

    @contextmanager
    def forwarding(self, port: int) -> Iterator[None]:
        """Forward ``port`` of this machine's loopback to the pod."""
        over = threading.Event()
        processes = []

        def forward() -> None:
            while not over.is_set():
                with self._kubectl.open("port-forward", f"deployment/{DRIVER}", str(port)) as process:
                    processes.append(process)
                    if over.is_set():
                        process.terminate()
                    for _ in process.stdout or ():  # a line per connection; it ends if one is refused
                        pass
                over.wait(FORWARD_AGAIN_S)

        thread = threading.Thread(target=forward, name="forward", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            for process in processes:
                process.terminate()
            thread.join()

    def _interrupt(self) -> None:
        self._execute(f"kill -INT {self._pid} 2>/dev/null || true")

    # --- one command -------------------------------------------------------------------------------------------------

    def _ready_pod(self) -> str:
        pods = self._kubectl.pods_of(DRIVER)
        ready = [pod.name for pod in pods if pod.ready and not pod.ending]
        if not ready:
            reasons = "; ".join(pod.trouble for pod in pods if pod.trouble) or "see `kubectl get pods`"
            raise PenstockError(f"the driver's pod is not ready: {reasons}")
        return ready[0]

    def _start(self, arguments: Sequence[str]) -> None:
        columns = f"COLUMNS={shutil.get_terminal_size().columns}"
        command = ("env", "--default-signal=INT", columns, "penstock", *arguments)
        quoted = shlex.join(command).replace("'", "'\\''")  # inside single quotes
        self._pid = int(self._execute(START.format(session=self._session, runs=self._runs, command=quoted)))

    def _follow(self, out: BinaryIO) -> int:
        """Copy its output until it ends; return its exit code."""
        shown = 0
        lost = 0
        while True:
            came = self._tail(shown, out)
            shown += came
            lost = 0 if came else lost + 1
            try:
                state = self._execute(STATE.format(session=self._session, pid=self._pid)).strip()
            except PenstockError:
                if lost > LOST_CONNECTIONS or not self._pod_lives():
                    raise
                time.sleep(RECONNECT_S)
                continue
            if state == b"gone":
                raise PenstockError(f"pod {self._pod}: the command was killed; what it wrote is still in {self._runs}")
            if state != b"running":
                self._tail(shown, out)
                return int(state)

    def _tail(self, shown: int, out: BinaryIO) -> int:
        """Copy the output after the first ``shown`` bytes until command or connection ends; return how many."""
        follow = ("tail", f"--pid={self._pid}", "--sleep-interval=0.5", f"--bytes=+{shown + 1}", "--follow")
        came = 0
        with self._kubectl.open(
            "exec", self._pod, f"--container={DRIVER}", "--", *follow, f"{self._session}/output"
        ) as tail:
            try:
                assert tail.stdout is not None
                while chunk := os.read(tail.stdout.fileno(), 65536):
                    out.write(chunk)
                    out.flush()
                    came += len(chunk)
            finally:
                tail.kill()
        return came

    def _pod_lives(self) -> bool:
        """False only if the API server reports it as gone."""
        try:
            return bool(self._kubectl.run("get", "pod", self._pod, "--ignore-not-found").strip())
        except PenstockError:
            return True

    def _fetch(self, runs: Path) -> list[str]:
        """Copy the directories that the command has created or changed; return their names."""
        runs.mkdir(parents=True, exist_ok=True)
        script = COPY.format(runs=self._runs, session=self._session)
        with self._kubectl.open("exec", self._pod, f"--container={DRIVER}", "--", "sh", "-euc", script) as copy:
            try:
                assert copy.stdout is not None
                return sorted(unpack(copy.stdout, runs))
            except (tarfile.TarError, OSError) as error:
                copy.kill()
                raise PenstockError(
                    f"the runs could not be copied ({error}): `kubectl --namespace {self._kubectl.namespace} cp "
                    f"{self._pod}:{self._runs} {runs}` does it"
                ) from None

    def _execute(self, script: str) -> bytes:
        return self._kubectl.execute(self._pod, DRIVER, script)
