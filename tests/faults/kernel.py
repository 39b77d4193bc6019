"""Virtual time for code with threads, event loops and blocking calls.

A thread is a greenlet: it runs until it waits, and the kernel resumes the one whose time has come. Nothing else
switches, so that a seed decides everything. A process is a set of threads that dies as a whole, at any of its calls to
a service.
"""

import asyncio
import concurrent.futures
import heapq
import itertools
import queue as real_queue
import random
import threading as real_threading
import time as real_time
import zlib
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

SECOND = 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND
BOOT_NS = 1_000 * SECOND
MOST_AT_ONCE = 20_000
"""Switches at one instant: more are a loop that waits for nothing."""


class Violation(Exception):  # noqa: N818 - the word of the checks
    """An invariant does not hold."""


class Process:
    """A simulated process. ``exited`` is called once, with the exit code or the signal's name."""

    def __init__(self, kernel: "Kernel", kind: str, name: str, exited: Callable[[str], None]) -> None:
        self.kernel, self.kind, self.name = kernel, kind, name
        self.exited = exited
        self.pid = next(kernel.pids)
        self.dead = False
        self.frozen_until = 0
        self.crash_after: int | None = None
        self.threads: list[Thread] = []
        self.on_term: Callable[[], None] = self.kill
        self.on_death: list[Callable[[], None]] = []

    def start(self, main: Callable[[], Any]) -> None:
        """Run ``main`` as its first thread; the process ends with it."""

        def run() -> None:
            try:
                main()
            except GreenletExit:
                raise
            except Violation:
                raise
            except BaseException as error:
                self.kernel.unexpected(self, "main", error)
                self.end(f"error {type(error).__name__}")
            else:
                self.end("exit 0")

        self.kernel.spawn(self, run, "main")

    def kill(self) -> None:
        """SIGKILL."""
        self.end("killed")

    def terminate(self) -> None:
        """SIGTERM: the handler runs at once, as a thread of its own that does not wait."""
        if not self.dead:
            self.kernel.spawn(self, self.on_term, "signal")

    def end(self, how: str) -> None:
        """Every thread ends where it is; what it has sent is on its way."""
        if self.dead:
            return
        self.dead = True
        self.kernel.note(f"{self.name}#{self.pid} {how}")
        for call in self.on_death:
            call()
        kernel, me = self.kernel, getcurrent()
        mine = [thread for thread in self.threads if thread.greenlet is not me]
        self.threads.clear()

        def reap() -> None:
            for thread in mine:
                kernel.end(thread)

        kernel.soon(reap)
        kernel.soon(lambda: self.exited(how))


class Thread:
    """One greenlet. ``token`` changes with each wait, so that a late wake-up of an earlier one is void."""

    __slots__ = ("alive", "greenlet", "joiners", "name", "process", "token")

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.token = 0
        self.alive = True
        self.joiners: list[Thread] = []
        self.greenlet: Any = None

    def ended(self) -> None:
        self.alive = False
        for joiner in self.joiners:
            self.process.kernel.wake(joiner)
        self.joiners.clear()


class Kernel:
    """The clock, the threads and what may happen to a message. ``random`` draws delays; one seed, one history."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.random = random.Random(f"noise {seed}")
        self.now_ns = BOOT_NS
        self.wall_ns = EPOCH_NS - BOOT_NS
        self.current: Thread | None = None
        self.pids = itertools.count(100)
        self.violations: list[str] = []
        self._history: list[str] = []
        self.switches = 0
        self.traced = traced
        self.trace: list[str] = []
        self.processes: list[Process] = []
        self._heap: list[tuple[int, int, Any, int, Any]] = []
        self._order = itertools.count()
        self._next = self._order.__next__
        self._hub = greenlet(self._serve)
        self._until_ns = 0
        self._at_once = 0

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Virtual seconds since the beginning."""
        return (self.now_ns - BOOT_NS) / SECOND

    @property
    def digest(self) -> int:
        """The checksum of the history."""
        return zlib.crc32("".join(self._history).encode())

    def step_clock(self, seconds: float) -> None:
        """Wall clocks jump; monotonic ones do not."""
        self.wall_ns += round(seconds * SECOND)

    def run(self, seconds: float, done: Callable[[], bool] = lambda: False, step_s: float = 0.25) -> bool:
        """Let time pass until ``done()``, asked every ``step_s``, or for ``seconds``; whether it was done."""
        end_ns = self.now_ns + round(seconds * SECOND)
        while not self.violations:
            if done():
                return True
            if self.now_ns >= end_ns:
                return False
            self._until_ns = min(end_ns, self.now_ns + round(step_s * SECOND))
            self._hub.switch()
        raise Violation(self.violations[0])

    def _serve(self) -> None:
        heap, pop, violations = self._heap, heapq.heappop, self.violations
        main = self._hub.parent
        while True:  # until ``close``
            until_ns = self._until_ns
            while heap and heap[0][0] <= until_ns and not violations:
                at_ns, _, target, token, value = pop(heap)
                if at_ns > self.now_ns:
                    self.now_ns, self._at_once = at_ns, 0
                if token < 0:
                    target()
                    continue
                if target.token != token or not target.alive:
                    continue
                process = target.process
                if process.frozen_until > self.now_ns:
                    heapq.heappush(heap, (process.frozen_until, self._next(), target, token, value))
                    continue
                target.token += 1
                self.switches += 1
                self._at_once += 1
                if self._at_once > MOST_AT_ONCE:
                    self.violate(f"{process.name}/{target.name} runs without end and without time")
                self.current = target
                target.greenlet.switch(value)
                self.current = None
            self.now_ns = max(self.now_ns, self._until_ns) if not self.violations else self.now_ns
            main.switch()

    # --- threads -----------------------------------------------------------------------------------------------------

    def process(self, kind: str, name: str, exited: Callable[[str], None] = lambda _: None) -> Process:
        """A process without threads yet."""
        process = Process(self, kind, name, exited)
        self.processes.append(process)
        return process

    def spawn(self, process: Process, work: Callable[[], Any], name: str) -> Thread:
        """A thread that begins at once, after what is due now."""
        thread = Thread(process, name)

        def run(_: Any) -> None:
            try:
                work()
            except GreenletExit:
                pass
            except Violation as violation:
                self.violate(str(violation))
            except BaseException as error:
                self.unexpected(process, name, error)
            thread.ended()

        thread.greenlet = greenlet(run, parent=self._hub)
        process.threads.append(thread)
        heapq.heappush(self._heap, (self.now_ns, self._next(), thread, thread.token, None))
        return thread

    def soon(self, call: Callable[[], None], delay_ns: int = 0) -> None:
        """Call in the kernel, which must not wait."""
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._next(), call, -1, None))

    def park(self, timeout_ns: int | None = None) -> Any:
        """Wait for ``wake``; its value, or None after the time-out."""
        me = self.current
        assert me is not None, "only a simulated thread can wait"
        if me.process.dead:
            raise GreenletExit
        if timeout_ns is not None:
            due_ns = self.now_ns + timeout_ns if timeout_ns > 0 else self.now_ns
            heapq.heappush(self._heap, (due_ns, self._next(), me, me.token, None))
        loop = events._get_running_loop()
        if loop is not None:
            events._set_running_loop(None)
        value = self._hub.switch()
        if loop is not None:
            events._set_running_loop(loop)
        if me.process.dead:
            raise GreenletExit
        return value

    def wake(self, thread: Thread, value: Any = True) -> None:
        """End the wait that a thread is in now."""
        heapq.heappush(self._heap, (self.now_ns, self._next(), thread, thread.token, value))

    def sleep(self, seconds: float) -> None:
        """Wait in one piece."""
        self.park(max(0, round(seconds * SECOND)))

    def step(self, what: str) -> None:
        """A point at which the process of the current thread may die."""
        me = self.current
        if me is None:
            return
        process = me.process
        if process.dead:
            raise GreenletExit
        self._history.append(f"{self.now_ns} {process.name} {what}")
        if self.traced:
            self.trace.append(f"{self.seconds:9.4f} {process.name}/{me.name} {what}")
        if process.crash_after is not None:
            process.crash_after -= 1
            if process.crash_after < 0:
                self.note(f"crash of {process.name} at: {what}")
                process.kill()
                raise GreenletExit

    # --- findings ----------------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """A line of the history."""
        self._history.append(f"{self.now_ns} {what}")
        if self.traced:
            self.trace.append(f"{self.seconds:9.4f} -- {what}")

    def violate(self, what: str) -> None:
        """An invariant does not hold: the run ends."""
        self.note(f"VIOLATION {what}")
        self.violations.append(f"at {self.seconds:.3f} s: {what}")

    def unexpected(self, process: Process, thread: str, error: BaseException) -> None:
        """A thread has died of an error that nobody handles. What a killed process does in its end does not count."""
        if process.dead:
            return
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        code = last.tb_frame.f_code if last is not None else None
        where = "" if code is None or last is None else f" ({code.co_filename.rpartition('/')[2]}:{last.tb_lineno})"
        if self.traced:
            import traceback

            self.trace.extend(traceback.format_exception(error))
        self.violate(f"{process.name}/{thread} died of {type(error).__name__}: {error}{where}")

    def close(self) -> None:
        """End every thread; what they do about it has no effect."""
        for process in self.processes:
            process.dead = True
            for thread in process.threads:
                self.end(thread)
        self._heap.clear()
        self._hub.throw(GreenletExit)  # suspended, it would keep this kernel and all its world for ever

    def end(self, thread: Thread) -> None:
        """End a thread of a dead process; what it does about it waits for nothing and has no effect."""
        if not thread.greenlet.dead:
            before, self.current = self.current, thread
            thread.greenlet.throw(GreenletExit)
            self.current = before
        thread.ended()


KERNEL: list[Kernel] = []
"""The kernel of the present run, last; none outside of one."""


def kernel() -> Kernel:
    """The kernel of the present run."""
    return KERNEL[-1]


# --- what product code finds under the names of the standard library -----------------------------------------------


class Time:
    """The module ``time``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)

    def time_ns(self) -> int:
        k = KERNEL[-1]
        return k.now_ns + k.wall_ns

    def time(self) -> float:
        k = KERNEL[-1]
        return (k.now_ns + k.wall_ns) / SECOND

    def monotonic_ns(self) -> int:
        return KERNEL[-1].now_ns

    def monotonic(self) -> float:
        return KERNEL[-1].now_ns / SECOND

    perf_counter, perf_counter_ns = monotonic, monotonic_ns

    def sleep(self, seconds: float) -> None:
        KERNEL[-1].sleep(seconds)


class SimThread:
    """``threading.Thread``."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name = name
        self._thread: Thread | None = None

    def start(self) -> None:
        k = KERNEL[-1]
        assert k.current is not None and self._target is not None
        target = self._target
        self._thread = k.spawn(k.current.process, lambda: target(*self._args, **self._kwargs), self.name)

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.alive

    def join(self, timeout: float | None = None) -> None:
        k = KERNEL[-1]
        if self._thread is not None and self._thread.alive and k.current is not None:
            joiners = self._thread.joiners
            joiners.append(k.current)
            k.park(None if timeout is None else round(timeout * SECOND))
            if k.current in joiners:
                joiners.remove(k.current)


class SimEvent:
    """``threading.Event``."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for thread in self._waiting:
            KERNEL[-1].wake(thread)
        self._waiting.clear()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        k = KERNEL[-1]
        if not self._set:
            assert k.current is not None
            self._waiting.append(k.current)
            k.park(None if timeout is None else round(timeout * SECOND))
            if k.current in self._waiting:
                self._waiting.remove(k.current)
        return self._set


class SimLock:
    """``threading.Lock`` and ``threading.RLock``."""

    def __init__(self, *, again: bool = False) -> None:
        self._owner: Thread | None = None
        self._depth = 0
        self._again = again
        self._waiting: deque[Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        k = KERNEL[-1]
        me = k.current
        if me is None:  # the checks look in between two steps
            return True
        while self._owner is not None and not (self._again and self._owner is me):
            if self._owner.process.dead:
                break
            if not blocking:
                return False
            self._waiting.append(me)
            k.park()
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        if KERNEL[-1].current is None or self._owner is None:
            return
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            if self._waiting:
                KERNEL[-1].wake(self._waiting.popleft())

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> "SimLock":
        if self._owner is None and (me := KERNEL[-1].current) is not None:  # as nearly always
            self._owner, self._depth = me, self._depth + 1
        else:
            self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Threading:
    """The module ``threading``."""

    Thread, Event, Lock = SimThread, SimEvent, SimLock

    def __getattr__(self, name: str) -> Any:
        return getattr(real_threading, name)

    def RLock(self) -> SimLock:  # noqa: N802
        return SimLock(again=True)


class SimQueue:
    """``queue.SimpleQueue`` and ``queue.Queue``."""

    def __init__(self, maxsize: int = 0) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Thread] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        if self._waiting:
            KERNEL[-1].wake(self._waiting.popleft())

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        k = KERNEL[-1]
        while not self._items:
            if not block:
                raise real_queue.Empty
            assert k.current is not None
            self._waiting.append(k.current)
            if k.park(None if timeout is None else round(timeout * SECOND)) is None:
                self._waiting.remove(k.current)
                raise real_queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Queues:
    """The module ``queue``."""

    SimpleQueue, Queue, Empty, Full = SimQueue, SimQueue, real_queue.Empty, real_queue.Full


class SimExecutor:
    """``concurrent.futures.ThreadPoolExecutor``, with a thread for each task."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self._name = thread_name_prefix
        self._threads: list[SimThread] = []

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "SimFuture":
        future = SimFuture()

        def run() -> None:
            try:
                future.finish(work(*arguments), None)
            except Exception as error:
                future.finish(None, error)

        thread = SimThread(target=run, name=self._name)
        thread.start()
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is ever queued here, so that there is nothing to cancel."""
        for thread in self._threads if wait else ():
            thread.join()


class SimFuture:
    """The result of a task."""

    def __init__(self) -> None:
        self._done = SimEvent()
        self._value: Any = None
        self._error: Exception | None = None

    def finish(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error
        self._done.set()

    def result(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise concurrent.futures.TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class SimLoop(asyncio.BaseEventLoop):
    """An event loop of a simulated process, in one of its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._bell = SimEvent()
        self._abandoned = False

    def abandon(self) -> None:
        """Its process was killed. Coroutines are left in the middle; what they ask for when they are collected is taken
        and has no effect.
        """
        self._abandoned = True
        self.close()

    def _check_closed(self) -> None:
        if not self._abandoned:
            super()._check_closed()  # type: ignore[misc]

    def time(self) -> float:
        return KERNEL[-1].now_ns / SECOND

    def select(self, timeout: float | None) -> list[Any]:
        """What a selector does: wait until something comes."""
        if timeout is None or timeout > 0:
            self._bell.wait(timeout if timeout is None else timeout + 1e-9)
            self._bell.clear()
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        return

    def _write_to_self(self) -> None:
        if not self._abandoned:
            self._bell.set()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            value = func(*args)
            if not self.is_closed():
                self.call_soon_threadsafe(lambda: None if future.done() else future.set_result(value))

        SimThread(target=run, name="executor").start()
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not KERNEL:  # what is collected later
            return
        k = KERNEL[-1]
        error = context.get("exception")
        if k.current is not None and error is not None and not k.current.process.dead:
            k.unexpected(k.current.process, "event loop", error)


def run_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """``asyncio.run``."""
    loop = SimLoop()
    try:
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        return result
    except GreenletExit:
        loop.abandon()
        raise
    finally:
        if not loop.is_running():
            loop.close()


class Asyncio:
    """The module ``asyncio``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return run_loop(main)


MODULES: dict[Any, Any] = {
    real_time: Time(),
    real_threading: Threading(),
    real_queue: Queues(),
    asyncio: Asyncio(),
    concurrent.futures.ThreadPoolExecutor: SimExecutor,
}
"""What product modules have under these names, and what they get."""
