"""A pytest plugin: tests are collected once, and then run in ``--forks`` processes that begin as copies of this one.

``python -m pytest -p tests.support.forked --forks 4``. Each process takes one test file after the other from a pipe, so
that a file's fixtures are made once. Files that took long the last time come first, so that all processes end together.
Why not pytest-xdist: each of its processes imports all modules, and rewrites the
assertions of all tests when no compiled files are there yet: three seconds of CPU time each, and ten the first time.
"""

import atexit
import itertools
import os
import pickle
import selectors
import signal
import struct
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

import pytest

DURATIONS: Final = "forked/durations"
"""Key in pytest's cache: seconds that each file took when it was run last."""
INDEX: Final = struct.Struct("<I")
"""A message of the pipe of files: position of its first test. Far smaller than what one read or write may split."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--forks``."""
    parser.addoption("--forks", type=int, default=1, metavar="N", help="run the collected tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all items in processes of their own, and report here."""
    if session.config.option.forks < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    Forks(session).run()
    return True


class Forks:
    """The processes of one session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._files = dict(_by_file(session.items))
        self._unreported = {item.nodeid: item for item in session.items}
        self._running: dict[int, str | None] = {}
        self._took_s: dict[str, float] = {}

    def run(self) -> None:
        """Until every process has ended. A test that no process has reported failed."""
        # One folder for temporary files, made before there are several who would make it.
        base = self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        queue, fill = os.pipe()
        known_s = self._session.config.cache.get(DURATIONS, {})
        longest_first = sorted(self._files, key=lambda first: -known_s.get(_file_of(self._files[first][0].nodeid), 0))
        os.write(fill, b"".join(map(INDEX.pack, longest_first)))
        os.close(fill)
        sys.stdout.flush()
        sys.stderr.flush()
        with selectors.DefaultSelector() as streams:
            for number in range(self._session.config.option.forks):
                reading, writing = os.pipe()
                if (pid := os.fork()) == 0:
                    os.close(reading)
                    _Worker(
                        self._session, self._files, queue, writing, base / str(number)
                    ).end()  # short: sockets lie in it
                os.close(writing)
                self._running[pid] = None
                streams.register(os.fdopen(reading, "rb"), selectors.EVENT_READ, pid)
            os.close(queue)
            try:
                while streams.get_map():
                    for key, _ in streams.select():
                        if not self._receive(key.fileobj, key.data):  # type: ignore[arg-type]
                            streams.unregister(key.fileobj)
                            key.fileobj.close()  # type: ignore[union-attr]
                            self._ended(key.data)
            finally:
                for pid in self._running:  # interrupted: each tears its fixtures down, as one process alone does
                    os.kill(pid, signal.SIGINT)
                    os.waitpid(pid, 0)
        for item in self._unreported.values():
            self._fail(item, "its process ended before its turn")
        self._session.config.cache.set(DURATIONS, {**known_s, **self._took_s})
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)

    def _receive(self, stream: BinaryIO, pid: int) -> bool:
        """One message; False at the end of the stream."""
        try:
            message = pickle.load(stream)
        except EOFError:
            return False
        if isinstance(message, str):
            self._running[pid] = message
            return True
        for each in message:
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=each)
            file = _file_of(report.nodeid)
            self._took_s[file] = self._took_s.get(file, 0) + report.duration
            if report.when == "teardown":
                self._unreported.pop(report.nodeid, None)
                self._running[pid] = None
            self._hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail:  # the others end with the test that they are at
            for other in self._running:
                os.kill(other, signal.SIGINT)
        return True

    def _ended(self, pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        if (nodeid := self._running.pop(pid)) is not None and not self._session.shouldfail:
            self._fail(self._unreported.pop(nodeid), f"its process ended with {os.waitstatus_to_exitcode(status)}")

    def _fail(self, item: pytest.Item, reason: str) -> None:
        if not self._session.shouldfail:
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")
            self._hook.pytest_runtest_logreport(report=report)


class _Worker:
    """One of the processes, right after the fork."""

    def __init__(
        self,
        session: pytest.Session,
        files: dict[int, list[pytest.Item]],
        queue: int,
        reports: int,
        folder: Any,
    ) -> None:
        self._session, self._files, self._queue = session, files, queue
        self._reports = os.fdopen(reports, "wb")
        self._folder = folder
        self._of_test: list[dict[str, Any]] = []

    def end(self) -> None:
        """Run the tests, and never return."""
        code = 0
        try:
            self._take_over()
            items = self._items()
            item = next(items, None)
            while item is not None:
                following = next(items, None)
                self._send(item.nodeid)
                self._session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                item = following
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
            code = 70
        finally:
            try:
                self._session._setupstate.teardown_exact(None)
            except BaseException:
                traceback.print_exc()
                code = 70
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _take_over(self) -> None:
        """What the parent goes on using becomes this process' own."""
        atexit._clear()  # what was registered so far is the parent's to do
        plugins = self._session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()  # its file is the parent's too
        capture.start_global_capturing()
        capture.resume_global_capture()
        self._folder.mkdir(mode=0o700)
        self._session.config._tmp_path_factory._basetemp = self._folder  # type: ignore[attr-defined]
        plugins.register(self, "forked-reports")

    def _items(self) -> Iterator[pytest.Item]:
        while len(first := os.read(self._queue, INDEX.size)) == INDEX.size:
            yield from self._files[INDEX.unpack(first)[0]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell the parent: a test's reports together, or those before a failure at once."""
        config = self._session.config
        self._of_test.append(config.hook.pytest_report_to_serializable(config=config, report=report))
        if report.when == "teardown" or report.failed:
            self._send(self._of_test)
            self._of_test = []

    def _send(self, message: str | list[dict[str, Any]]) -> None:
        """The name of a test that starts, or reports."""
        pickle.dump(message, self._reports)
        self._reports.flush()


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _by_file(items: Sequence[pytest.Item]) -> Iterator[tuple[int, list[pytest.Item]]]:
    """The tests of each file, with the position of the first."""
    first = 0
    for _, tests in itertools.groupby(items, lambda item: item.path):
        found = list(tests)
        yield first, found
        first += len(found)
