"""One notation for times on the command line: ``500ms``, ``5m``, ``1h``; a number without unit is in seconds."""

import math
import re
from functools import partial
from typing import Final

import typer

DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(us|µs|ms|s|min|m|h|d)?", re.IGNORECASE)
UNIT_S: Final = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0
}  # fmt: skip


def duration_s(text: str | float) -> float:
    """Seconds. Raises BadParameter, which names the option, for anything else than a duration of at least 0."""
    # A default comes as the number that it is.
    found = DURATION.fullmatch(str(text).strip())
    seconds = float(found[1]) * UNIT_S[(found[2] or "s").lower()] if found else math.nan
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{text!r} is not a duration of at least 0, such as 500ms, 5m or 1h (us, ms, s, m, h)")
    return seconds


def duration_text(seconds: float) -> str:
    """As ``duration_s`` reads it: ``500ms``, ``1.2s``."""
    return f"{1000 * seconds:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


duration_option = partial(typer.Option, parser=duration_s, metavar="DURATION")
"""``typer.Option`` of a time in seconds."""
