"""Options of a load session: fields of Locust's page, and the command line of the session."""

from collections.abc import Sequence
from typing import Any, Final

OPTIONS: Final[dict[str, tuple[str, Any, str]]] = {
    "workload": ("--workload", "binpack-workload-1", "a workload of `penstock workloads`, or FILE.csv"),
    "rate": ("--rate", 0.0, "mean events per second; 0: the workload's own"),
    "from_s": ("--from", "0s", "start within the workload, such as 7m"),
    "seconds": ("--seconds", "0s", "length of the part that is sent, such as 90s; 0s: to the end of the workload"),
    "slo": ("--slo", "500ms", "latency limit from the intended time, such as 500ms or 2s"),
    "scaler": ("--scaler", "binpack-tail", "scaler of the consumers"),
    "settings": ("--set", "", "scaler.parameter=value, separated by blanks"),
    "partitions": ("--partitions", 5, "partitions of the topic, and the maximum of replicas"),
    "seed": ("--seed", 1, "seed of all random draws"),
}
"""By name: flag, default, help."""


def add_options(parser: Any, scalers: Sequence[str] | None = None) -> None:
    """Add the options to an ``argparse`` parser. ``scalers``: the permitted ones, None for any."""
    for name, (flag, default, text) in OPTIONS.items():
        choices = scalers if name == "scaler" else None
        parser.add_argument(flag, dest=name, type=type(default), default=default, help=text, choices=choices)


def command_line(options: Any) -> list[str]:
    """The parsed options as arguments again."""
    return [text for name, (flag, _, _) in OPTIONS.items() for text in (flag, str(getattr(options, name)))]
