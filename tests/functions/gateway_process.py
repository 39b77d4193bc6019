"""A gateway of a test's own: real processes, a free port, a folder that is removed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from functions.loading import HANDLERS
from infra.local.orphans import marked
from infra.local.ports import free_port
from infra.local.state import MARKER

PASSWORD = "open sesame"
TEST_HANDLERS = Path(__file__).parent / "handlers"
PATIENCE_S = 90.0


class GatewayProcess:
    """``python -m functions.gateway`` in ``folder``. ``client`` speaks to it as admin."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment = dict(environment or {})
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a control plane and wait until it answers."""
        self.client = httpx.Client(base_url=self.url, auth=("admin", PASSWORD), timeout=PATIENCE_S, trust_env=False)
        password = self.folder / "password"
        password.write_text(PASSWORD)
        with (self.folder / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(
                (
                    *(sys.executable, "-m", "functions.gateway", "--state", str(self.folder), "--port", str(self.port)),
                    *("--handlers", str(TEST_HANDLERS), "--handlers", str(HANDLERS)),
                    *("--password-file", str(password), "--pass-on", MARKER),
                    *(argument for name in self.environment for argument in ("--pass-on", name)),
                ),
                env={**os.environ, **self.environment, MARKER: str(self.folder)},
                stdout=log,
                stderr=log,
            )
        self.wait(self._answers)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the control plane and wait for its end; returns its exit code."""
        assert self.process is not None
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def left(self) -> list[psutil.Process]:
        """Processes of this gateway that there are."""
        return marked(self.folder)

    def log(self) -> str:
        """All that it said."""
        return (self.folder / "gateway.log").read_text()

    # --- shorthands --------------------------------------------------------------------------------------------------

    def deploy(self, name: str = "probe", *, replicas: int = 1, queue: int = 100, **env_vars: str) -> None:
        """Deploy a function and wait until its replicas take requests."""
        answer = self.client.post("/system/functions", json=body(name, replicas=replicas, queue=queue, **env_vars))
        assert answer.status_code == 202, answer.text
        self.wait(lambda: self.available(name) == replicas)

    def scale(self, replicas: int, name: str = "probe") -> None:
        """Ask for so many replicas."""
        answer = self.client.post(f"/system/scale-function/{name}", json={"serviceName": name, "replicas": replicas})
        assert answer.status_code == 202, answer.text

    def available(self, name: str = "probe") -> int:
        """Replicas that take requests."""
        return int(self.client.get(f"/system/function/{name}").json()["availableReplicas"])

    def report(self, name: str = "probe") -> dict[str, Any]:
        """What /penstock/functions says of a function."""
        found: dict[str, Any] = next(
            each for each in self.client.get("/penstock/functions").json() if each["name"] == name
        )
        return found

    def events(self, since: int = 0) -> list[dict[str, Any]]:
        """What happened to replicas."""
        found: list[dict[str, Any]] = self.client.get(f"/penstock/events?since={since}").json()["events"]
        return found

    def call(self, do: str = "", content: bytes = b"{}", name: str = "probe") -> httpx.Response:
        """Call a function, on a connection of its own."""
        return httpx.post(
            f"{self.url}/function/{name}", content=content, headers={"X-Do": do}, timeout=PATIENCE_S, trust_env=False
        )

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until, f"waited for {PATIENCE_S:g} s in vain; the gateway's log:\n{self.log()}"
            assert self.process is None or self.process.poll() is None, self.log()
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False


def body(name: str, *, replicas: int = 1, queue: int = 100, **env_vars: str) -> dict[str, Any]:
    """Of POST and PUT /system/functions."""
    return {
        "service": name,
        "image": f"penstock/{name}:latest",
        "envVars": env_vars,
        "labels": {"com.openfaas.scale.min": str(replicas)},
        "annotations": {"com.penstock.queue-limit": str(queue)},
    }
