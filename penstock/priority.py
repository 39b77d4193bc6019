"""Precedence of what measures over what is measured: sender and controller run before the replicas they time."""

import os

NICENESS = -10
"""Replicas, broker and services stay at 0, Spark is at 10 (``pipelines.stream``)."""


def take_precedence() -> bool:
    """Raise this thread's priority and that of all it starts; whether the system lets it (root or CAP_SYS_NICE).

    A laptop's user goes on without: late ticks and sends are measured and reported either way. Call it before other
    threads exist, since Linux keeps a niceness per thread.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    except PermissionError:
        return False
    return True
