"""The control plane's loops go on after HAProxy, the disk and the API server were away, and do what they could not."""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from functions.fork_protocol import BackendReplica, BackendState
from functions.gateway import control_plane, function_replicas, haproxy
from functions.gateway.control_plane import ControlPlane
from functions.gateway.events import EventLog
from functions.gateway.function_replicas import FunctionReplicas
from functions.gateway.haproxy import DataPlaneAwayError, HAProxy, Slot
from functions.gateway.replica_set import FunctionRecord, GatewayRecord
from penstock.adapters.kubernetes.informer import KubernetesError
from penstock.errors import PenstockError
from penstock.openfaas import FunctionDeployment

FULL = OSError(errno.ENOSPC, "No space left on device")


class MemoryPlane(HAProxy):
    """HAProxy without a process. ``failures``: raised by the next calls of a method, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1)
        self.up = True
        self.servers: set[str] = set()
        self.routes: dict[str, tuple[str, int, int]] = {}
        self.failures: dict[str, list[Exception]] = {}

    def _fail(self, method: str) -> None:
        if waiting := self.failures.get(method):
            raise waiting.pop(0)

    def die(self) -> None:
        self.up = False
        self.servers.clear()
        self.routes.clear()

    def runs(self) -> bool:
        return self.up

    async def start(self) -> None:
        self._fail("start before its process")
        self.up = True
        self._fail("start")

    async def ask(self, command: str) -> str:
        raise DataPlaneAwayError("haproxy does not answer")

    async def route(self, routes: Mapping[str, tuple[str, int, int]]) -> None:
        self._fail("route")
        self.routes = dict(routes)

    async def add(self, slot: str, server: str, address: str, port: int) -> None:
        if not self.up:
            raise DataPlaneAwayError("haproxy does not answer")
        self.servers.add(server)

    async def slots(self, wanted: Any) -> dict[str, Slot]:
        return {slot: Slot(in_server=dict.fromkeys(self.servers, 0)) for slot in wanted}


class MemoryBackend:
    """Replicas that are ready as soon as they are asked for. ``failures``: raised by the next adoptions."""

    def __init__(self, failures: list[Exception]) -> None:
        self.failures = failures
        self.there = False
        self.replicas: dict[str, BackendReplica] = {}
        self.state = BackendState(answers=-1, pid=0, replicas=self.replicas)

    async def adopt(self) -> bool:
        if self.failures:
            raise self.failures.pop(0)
        self.there = True
        return True

    start = adopt

    async def ask(self, *, start: str = "", requested_ns: int = 0, end: str = "") -> BackendState:
        if start:
            self.replicas[start] = BackendReplica(pid=1, address="10.0.0.1", port=1, phase="ready", started_ns=2)
        return self.state

    async def quit(self, timeout_s: float) -> None:
        self.there = False

    def leave(self) -> None:
        """Nothing."""


class Scene:
    """A control plane in ``folder`` with its loops and one function, ``f`` with ``f-1``."""

    def __init__(self, folder: Path) -> None:
        self.control = ControlPlane(folder, 1, environment={})
        self.control.plane = self.plane = MemoryPlane(folder)
        self.control.events = EventLog(folder / "events.jsonl", fresh=True)
        self.backend = MemoryBackend([])
        self.record = FunctionRecord(
            fleet="f",
            deployment=FunctionDeployment(service="f", image="penstock/f"),
            slot="slot-0",
            target=1,
            created_ns=0,
        )
        make: Any = lambda *_: self.backend  # noqa: E731
        self.fleet = FunctionReplicas(self.record, self.plane, self.control.events, self.control._changed.set, make)
        self.control._record.functions["f"], self.control._fleets["f"] = self.record, self.fleet
        self.tasks: list[asyncio.Task[None]] = []

    def work(self) -> None:
        """As ``ControlPlane.start`` does."""
        self.control._run(self.fleet)
        loops = self.control._keep_saving(), self.control._watch_plane()
        self.tasks = [asyncio.create_task(loop) for loop in loops]

    async def until(self, condition: Callable[[], bool]) -> None:
        """It holds; no loop may end before."""
        while not condition():
            for task in self.tasks:
                assert not task.done(), task.exception()
            await asyncio.sleep(0.005)

    def saved(self) -> GatewayRecord:
        return msgspec.json.decode((self.control.state / "gateway.json").read_bytes(), type=GatewayRecord)

    def serves(self) -> bool:
        return self.plane.up and self.plane.servers == {"f-1"} and "f" in self.plane.routes


def play(folder: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        scene = Scene(folder)
        async with asyncio.timeout(60):
            try:
                await story(scene)
            finally:
                scene.control._tasks.update(scene.tasks)
                await scene.control._end_background()
                scene.control.events.close()

    asyncio.run(told())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals that a test can wait for."""
    for module, name in (
        *((control_plane, each) for each in ("WATCH_S", "SAVE_S", "SAVE_AGAIN_S")),
        (function_replicas, "LOOK_S"),
    ):
        monkeypatch.setattr(module, name, 0.01)


@pytest.mark.parametrize(
    ("method", "failure", "times"),
    [
        ("route", DataPlaneAwayError("haproxy does not answer (TimeoutError)"), 3),
        ("route", FULL, 3),
        ("start", PenstockError("haproxy does not start on port 1"), 1),  # it runs, but answers too late
        ("start before its process", FULL, 3),
    ],
)
def test_replicas_are_servers_again_though_a_restart_of_haproxy_failed_half_way(
    state_folder: Path, caplog: pytest.LogCaptureFixture, method: str, failure: Exception, times: int
) -> None:
    async def story(scene: Scene) -> None:
        scene.work()
        await scene.until(scene.serves)
        scene.plane.failures = {method: [failure] * times}
        with caplog.at_level(logging.ERROR, "gateway"):
            scene.plane.die()
            await scene.until(lambda: scene.serves() and not scene.plane.failures[method])
        assert [record.getMessage() for record in caplog.records if record.name == "gateway"] == [
            "haproxy has died; starting it again",
            f"haproxy is not restored, retried: {failure}",
        ]

    play(state_folder, story)


def test_an_haproxy_that_answers_too_late_is_known_by_its_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With which the gateway ends it; that of the one before may be another process by then."""
    (tmp_path / "haproxy").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "haproxy").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(haproxy, "START_S", 0.0)

    async def story() -> None:
        plane = HAProxy(tmp_path, 1)
        with pytest.raises(PenstockError, match="haproxy does not start on port 1"):
            await plane.start()
        assert plane._process is not None
        try:
            assert plane.runs() and plane.pid == plane._process.pid
            await plane.stop()
            assert not plane.runs()
        finally:
            plane._process.kill()
            plane._process.wait()

    asyncio.run(story())


def test_an_haproxy_that_answers_too_late_at_the_very_first_start_is_ended(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway process ends, too: HAProxy would run without it."""
    (state_folder / "haproxy").write_text("#!/bin/sh\nexec sleep 600\n")
    (state_folder / "haproxy").chmod(0o755)
    monkeypatch.setenv("PATH", str(state_folder), prepend=os.pathsep)
    monkeypatch.setattr(haproxy, "START_S", 0.0)
    control = ControlPlane(state_folder, 1, environment={})
    with pytest.raises(PenstockError, match="haproxy does not start on port 1"):
        asyncio.run(control.start())
    assert control.plane._process is not None and control.plane._process.poll() is not None


def test_a_start_that_failed_after_haproxys_is_no_other_gateway_to_the_next_one(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise DataPlaneAwayError("haproxy does not answer")

    monkeypatch.setattr(control_plane, "read_request_log", fail)
    for there_before in (False, True):
        control = ControlPlane(state_folder, 1, environment={})
        control.plane = plane = MemoryPlane(state_folder)
        plane.up = there_before

        async def adopt(plane: MemoryPlane = plane) -> bool:
            return plane.up

        monkeypatch.setattr(plane, "adopt", adopt)
        try:
            with pytest.raises(DataPlaneAwayError, match="haproxy does not answer"):
                asyncio.run(control.start())
        finally:
            control.events.close()


def test_a_route_that_could_not_be_taken_back_is_taken_back_later(state_folder: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.work()
        await scene.until(scene.serves)
        scene.plane.failures = {"route": [DataPlaneAwayError("haproxy does not answer")]}
        with pytest.raises(DataPlaneAwayError):
            await scene.control.delete("f")
        await scene.until(lambda: not scene.plane.routes)

    play(state_folder, story)


def test_changes_are_saved_once_the_disk_has_space_again(state_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(scene: Scene) -> None:
        save, attempts = scene.control._save, 0

        def full_at_first() -> None:
            nonlocal attempts
            attempts += 1
            if attempts <= 3:
                raise FULL
            save()

        scene.control._save = full_at_first  # type: ignore[method-assign]
        scene.tasks = [asyncio.create_task(scene.control._keep_saving())]
        scene.record.target = 7
        scene.control._changed.set()
        await scene.until(lambda: attempts > 3)
        assert scene.saved().functions["f"].target == 7
        assert [record.getMessage() for record in caplog.records] == [f"the record is not saved, retried: {FULL}"]

    play(state_folder, story)


def test_a_function_is_reconciled_once_the_api_server_is_back(state_folder: Path) -> None:
    """And its replicas are not taken for gone before."""

    async def story(scene: Scene) -> None:
        name = scene.record.add(1)
        scene.record.enter(name, "started", 2)
        await scene.backend.ask(start=name)
        away = KubernetesError("deployment function-f: the API server is away: connection refused")
        scene.backend.failures = [away] * 3
        told: list[str] = []
        scene.control._run(scene.fleet)
        while scene.plane.servers != {name}:
            told.append(scene.fleet.trouble)
            await asyncio.sleep(0.005)
        assert str(away) in told and scene.backend.failures == []
        assert [event.replica for event in scene.control.events.since(0).events if event.phase == "gone"] == []

    play(state_folder, story)


def test_the_gateway_ends_haproxy_though_the_api_server_is_away(
    state_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(scene: Scene) -> None:
        ended: list[bool] = []

        async def stop() -> None:
            ended.append(True)

        scene.plane.stop = stop  # type: ignore[method-assign]
        scene.record.add(1)
        scene.backend.failures = [KubernetesError("the API server is away")]
        await scene.control.stop()
        assert ended == [True]
        assert "f: replicas may be left: the API server is away" in caplog.text

    play(state_folder, story)


@pytest.mark.parametrize("ticks", range(4))
def test_the_gateway_ends_though_a_replica_changes_at_that_moment(state_folder: Path, ticks: int) -> None:
    async def story(scene: Scene) -> None:
        running = asyncio.create_task(scene.fleet.run())
        await scene.until(lambda: scene.plane.servers == {"f-1"})
        scene.fleet.wake()
        for _ in range(ticks):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running}, timeout=30)
        assert running.cancelled()

    play(state_folder, story)
