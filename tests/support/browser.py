"""A headless Chromium, driven by its DevTools protocol over a pipe."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)


class Browser:
    """One page at a time; ``problems`` are its errors and console messages since ``open``."""

    def __init__(self, process: subprocess.Popen[bytes], asks: IO[bytes], answers: IO[bytes]) -> None:
        self._process, self._asks, self._answers = process, asks, answers
        self._last = 0
        self._session: str | None = None
        self.problems: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, page: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Load a file and wait until it is loaded and drawn."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self.problems.clear()
        self._ask("Page.navigate", url=page.resolve().as_uri())
        self.run(
            "new Promise(done => { const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));"
            " document.readyState === 'complete' ? drawn() : addEventListener('load', drawn); })"
        )

    def run(self, script: str) -> Any:
        """Value of a script in the page; a promise is awaited."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self, out: Path, *, height: int | None = None) -> None:
        """The whole page, or its top, as PNG."""
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        shot = self._ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        out.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        asked = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        self._asks.write(json.dumps(asked).encode() + b"\0")
        self._asks.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            if answer.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.problems.append(json.dumps(answer["params"]))

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise AssertionError("the browser has ended")
            text += byte
        found: dict[str, Any] = json.loads(text)
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with its own profile, ended at the end."""
    assert CHROMIUM is not None
    asks_from, asks_to = os.pipe()
    answers_from, answers_to = os.pipe()
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    shell = f'exec "$@" 3<&{asks_from} 4>&{answers_to}'
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=(asks_from, answers_to),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(asks_from)
    os.close(answers_to)
    with os.fdopen(asks_to, "wb") as asks, os.fdopen(answers_from, "rb") as answers:
        try:
            yield Browser(process, asks, answers)
        finally:
            process.terminate()
            process.wait()
