"""A worker of a distributed Locust: it sends its shard of a session's schedule with a sender of its own."""

import logging
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from penstock.rundir import RunDirectory

log = logging.getLogger("penstock")

SEND, STOP, SENT = "penstock-send", "penstock-stop", "penstock-sent"
"""Messages between Locust's master and its workers."""
QUIT_S: Final = 10.0
"""How long a worker that ends waits for its sender; its pod is killed after 15 s."""
ERROR_LENGTH: Final = 500
"""Last characters of a sender's log that are reported."""


class Worker:
    """Handles the master's messages."""

    def __init__(self) -> None:
        self._sender: subprocess.Popen[bytes] | None = None
        self._run = ""
        self._stopped: set[str] = set()
        self._idle = threading.Event()
        self._idle.set()

    def send(self, environment: Any, msg: Any, **_: Any) -> None:
        """Send a shard and report the outcome to the master."""
        run, shard = msg.data["run"], msg.data["shard"]
        outcome = {"run": run, "number": msg.data["number"], "deliveries": b"", "trouble": ""}
        log.info("sending shard %s", shard)
        self._idle.clear()
        try:
            outcome |= self._send(run, shard, msg.data["files"])
        except (OSError, subprocess.SubprocessError, LookupError) as error:
            outcome["trouble"] = f"{type(error).__name__}: {error}"
        finally:
            self._sender = None
            environment.runner.send_message(SENT, outcome)
            self._idle.set()
        log.info("shard %s: %s", shard, outcome["trouble"] or "sent")

    def _send(self, run: str, shard: str, files: dict[str, bytes]) -> dict[str, Any]:
        self._run = run
        with tempfile.TemporaryDirectory(prefix="shard-") as folder:
            directory = RunDirectory(Path(folder))
            for name, content in files.items():
                (directory.path / name).write_bytes(content)
            self._sender = sender = subprocess.Popen(
                [sys.executable, "-m", "producers.send", "--run", folder, "--shard", shard],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            if run in self._stopped:
                sender.terminate()
            _, err = sender.communicate()
            if sender.returncode == 0:
                return {"deliveries": directory.delivery_file.read_bytes()}
            if sender.returncode == -signal.SIGTERM:  # stopped before it had read its schedule
                return {}
            error = err.decode(errors="replace").strip()[-ERROR_LENGTH:]
            return {"trouble": f"the sender ended with exit code {sender.returncode}: {error}"}

    def stop(self, msg: Any, **_: Any) -> None:
        """Send nothing more of a run; events in flight are waited for."""
        self._stop(msg.data["run"])

    def _stop(self, run: str) -> None:
        self._stopped.add(run)
        if self._sender is not None and run == self._run:
            self._sender.terminate()

    def quit(self) -> None:
        """Stop, and report what was sent as long as there is time."""
        self._stop(self._run)
        self._idle.wait(QUIT_S)
