"""Simulations on all cores: how a process of them begins, and those that tables share, each of which is made once."""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import update_wrapper
from typing import Any, Generic, TypeVar

Outcome = TypeVar("Outcome")


def cores() -> int:
    """Cores that this process may use; all of the machine where the system (macOS) does not restrict them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def begin_process() -> None:
    """Ignore Ctrl-C, which reaches the whole group: the parent ends its children in order. Inherited objects are left
    to the parent's garbage collector: a client library's objects cannot be finalised in a fork.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Remembered(Generic[Outcome]):
    """A function of a module, as a decorator: what it returned for some arguments is kept."""

    def __init__(self, function: Callable[..., Outcome]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._known: dict[tuple[Hashable, ...], Outcome] = {}

    def __reduce__(self) -> str:
        return self._function.__qualname__

    def __call__(self, *arguments: Any) -> Outcome:
        """What the function returned, or now returns."""
        if arguments not in self._known:
            self._known[arguments] = self._function(*arguments)
        return self._known[arguments]

    def each(self, calls: Iterable[tuple[Hashable, ...]]) -> list[Outcome]:
        """The outcome of each call, in order; missing ones are made on all cores."""
        wanted = list(calls)
        missing = list(dict.fromkeys(call for call in wanted if call not in self._known))
        jobs = min(cores(), len(missing) - 1)
        if jobs > 1:
            self(*missing.pop(0))  # before the fork: its processes share the loaded modules and compiled loops
            fork = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(jobs, mp_context=fork, initializer=begin_process) as pool:
                self._known.update(zip(missing, pool.map(self, *zip(*missing, strict=True)), strict=True))
        return [self(*call) for call in wanted]
