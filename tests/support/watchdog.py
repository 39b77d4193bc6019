"""A pod of a function image as a process: the stand-in of of-watchdog in the environment of the template's image."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import psutil

from functions.loading import TEMPLATE
from infra.local.ports import free_port
from tests.support.eventually import PATIENCE_S, eventually

STANDIN = Path(__file__).parents[2] / "infra/images/standins/of-watchdog/fwatchdog"


def image_environment() -> dict[str, str]:
    """What the template's Dockerfile sets."""
    instruction = re.search(r"^ENV ((?:.*\\\n)*.*)", (TEMPLATE / "Dockerfile").read_text(), re.M)
    assert instruction is not None
    found = re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', instruction[1])
    return {name: quoted or plain for name, quoted, plain in found}


def lay_out(folder: Path, handler: Path) -> Path:
    """The build context that `faas-cli build` makes of template and handler."""
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(handler, folder / "function", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


class WatchdogPod:
    """One pod that runs in ``context``, with its files in ``folder``. ``environment`` overrides the image's."""

    def __init__(self, folder: Path, context: Path, **environment: str) -> None:
        folder.mkdir()
        self.port, self.metrics_port, upstream_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.lock = folder / ".lock"
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            (sys.executable, str(STANDIN)),
            cwd=context,
            env={
                **image_environment(),
                "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
                "TMPDIR": str(folder),
                "port": str(self.port),
                "metrics_port": str(self.metrics_port),
                "upstream_url": f"http://127.0.0.1:{upstream_port}",
                **environment,
            },
            stdout=self._log,
            stderr=self._log,
        )
        eventually(lambda: self.health() is not None or self.process.poll() is not None, self.log)
        self.function = next(iter(self._children()), None)  # asked once: it may end between two questions

    def health(self, path: str = "/_/health") -> int | None:
        """Status of a probe, None without an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def await_health(self) -> None:
        """Until the health probe passes."""
        eventually(lambda: self.health() == 200, self.log)

    def call(self, do: str = "", *, timeout_s: float = PATIENCE_S, **options: object) -> httpx.Response:
        """A request on a connection of its own. ``do``: for the handler ``probe``."""
        headers = {"X-Do": do, **options.pop("headers", {})}  # type: ignore[dict-item]
        with httpx.Client(timeout=timeout_s, trust_env=False) as client:
            return client.request(str(options.pop("method", "POST")), self.url, headers=headers, **options)  # type: ignore[arg-type]

    def terminate(self) -> None:
        """SIGTERM, as the kubelet sends it: to the watchdog alone."""
        self.process.send_signal(signal.SIGTERM)

    def log(self) -> str:
        """All that watchdog and function said."""
        return Path(self._log.name).read_text(errors="replace")

    def close(self) -> None:
        """End it and what it started."""
        left = [*self._children(), *([self.function] if self.function is not None else [])]
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=PATIENCE_S)
        self._log.close()

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


@contextmanager
def closing_all(pods: Iterable[WatchdogPod]) -> Iterator[None]:
    """Close all of them at the end, also those that were added meanwhile."""
    try:
        yield
    finally:
        for pod in pods:
            pod.close()
