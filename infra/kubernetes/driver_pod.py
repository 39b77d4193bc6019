"""The driver's pod, for overlays that have one: where the cluster's brokers and pods can be reached, and not from here.

A command is typed here and played there. What it says is shown here as it comes, Ctrl-C here is Ctrl-C there, and the
directories of its runs are copied here at its end. It does not end with the connection: that is made again.
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
"""Of the pod: PENSTOCK_RUNS in driver.yaml."""
HERE: Final = "PENSTOCK_DRIVER"
"""Set in the pod itself."""
LOST_CONNECTIONS: Final = 20
"""In a row, before it is given up."""
RECONNECT_S: Final = 3.0
FORWARD_AGAIN_S: Final = 1.0

START = """
mkdir -p {session}
touch {session}/began
exec 9>{runs}/.lock
flock --nonblock 9 || {{ echo 'another run is being played on this cluster' >&2; exit 75; }}
setsid sh -c '{command} >{session}/output 2>&1 & echo $! >{session}/pid.partial; mv {session}/pid.partial {session}/pid;
    wait $!; echo $? >{session}/code.partial; mv {session}/code.partial {session}/code' </dev/null >/dev/null 2>&1 &
until [ -e {session}/pid ]; do sleep 0.05; done
cat {session}/pid
"""
"""The lock is held as long as the command lives. What a shell has in the background ignores Ctrl-C, hence ``env``."""
STATE = """
for i in $(seq 20); do
    if [ -e {session}/code ]; then cat {session}/code; exit 0; fi
    if kill -0 {pid} 2>/dev/null; then echo running; exit 0; fi
    sleep 0.1
done
echo gone
"""
"""The exit code comes a moment after the end."""
COPY = """
cd {runs}
find . -mindepth 1 -maxdepth 1 -type d -newer {session}/began ! -name '.*' -print0 | tar --null --files-from=- -cf -
"""


class DriverPod:
    """Of the cluster that the current kubeconfig names. ``tell`` is given a line for what takes a while."""

    def __init__(self, tell: Progress = lambda _: None, runs: str = RUNS) -> None:
        self._kubectl = Kubectl(NAMESPACE)
        self._tell = tell
        self._runs = runs
        self._session = f"{runs}/.sessions/{secrets.token_hex(4)}"
        self._pod = ""
        self._pid = 0

    def there(self) -> bool:
        """Whether runs are to be played in it. Not if this is that pod itself, nor where no overlay is up."""
        if HERE in os.environ:
            return False
        self._kubectl.require_cluster()
        return bool(self._kubectl.run("get", f"deployment/{DRIVER}", "--ignore-not-found").strip())

    def play(self, arguments: Sequence[str], runs: Path, out: BinaryIO) -> int:
        """Play ``penstock arguments…`` there: its exit code. What it says goes to ``out``, its directories to ``runs``.

        Raises PenstockError if the pod is not ready, is in use, or goes away in the middle.
        """
        self._pod = self._ready_pod()
        self._start(arguments)
        try:
            code = self._follow(out)
        except KeyboardInterrupt:
            self._tell("interrupted: the run is being ended on the cluster; Ctrl-C again leaves it alone with that")
            self._interrupt()
            code = self._follow(out)
        except SystemExit:
            self._interrupt()  # it ends by itself, and is not waited for
            raise
        for name in self._fetch(runs):
            self._tell(f"copied from the driver's pod: {runs / name}")
        self._execute(f"rm -rf {self._session}")
        return code

    @contextmanager
    def forwarding(self, port: int) -> Iterator[None]:
        """Meanwhile, who connects to ``port`` of this machine's loopback is connected to it in the pod."""
        over = threading.Event()
        processes = []

        def forward() -> None:
            while not over.is_set():
                with self._kubectl.open("port-forward", f"deployment/{DRIVER}", str(port)) as process:
                    processes.append(process)
                    if over.is_set():
                        process.terminate()
                    for _ in process.stdout or ():  # it tells of every connection, and ends if one is refused
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
        quoted = shlex.join(command).replace("'", "'\\''")  # it stands between quotes
        said = self._execute(START.format(session=self._session, runs=self._runs, command=quoted))
        self._pid = int(said)

    def _follow(self, out: BinaryIO) -> int:
        """Hand on what it says until it ends: its exit code."""
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
        """Hand on what comes after the first ``shown`` bytes, until command or connection ends: how much came."""
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
        """False only where the API server says so."""
        try:
            return bool(self._kubectl.run("get", "pod", self._pod, "--ignore-not-found").strip())
        except PenstockError:
            return True

    def _fetch(self, runs: Path) -> list[str]:
        """Copy the directories that the command has made or changed; their names."""
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
