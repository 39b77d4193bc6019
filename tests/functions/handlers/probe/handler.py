"""Does what the request's headers say: sleep, wait, fail, end the process, hang; then answers what it was sent."""

import os
import time
from pathlib import Path
from typing import Any


def handle(event: Any, context: Any) -> dict[str, Any]:
    """``X-Do``: sleep:SECONDS, until:FILE is there, raise, exit, hang."""
    del context
    what, _, value = event.headers.get("X-Do", "").partition(":")
    if what == "sleep":
        time.sleep(float(value))
    elif what == "until":
        while not Path(value).exists():
            time.sleep(0.01)
    elif what == "raise":
        raise ValueError("as it was told")
    elif what == "exit":
        os._exit(9)
    elif what == "hang":
        time.sleep(3600)
    told = {"X-Path": event.path, "X-Pid": str(os.getpid()), "X-Called-By": event.headers.get("X-Call-Id", "")}
    return {"body": event.body, "headers": told}
