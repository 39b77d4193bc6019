"""The template as a function's image runs it: index.py behind the watchdog, behind the gateway's data plane."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from functions.gateway.haproxy import HAProxy
from functions.loading import PACKAGE, TEMPLATE
from infra.local.ports import free_port
from tests.functions.gateway_process import TEST_HANDLERS
from tests.support.eventually import PATIENCE_S
from tests.support.watchdog import WatchdogPod, closing_all, lay_out

ROOT = Path(__file__).parents[2]
SLOT = "slot-0"
CALLERS = 8


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """Of ``probe``, whose import takes half a second."""
    made = lay_out(tmp_path / "context", TEST_HANDLERS / "probe")
    handler = made / "function" / "handler.py"
    handler.write_text(handler.read_text() + "\ntime.sleep(0.5)\n")
    return made


class Service:
    """Pods behind HAProxy, as a Service of Kubernetes has them: those that are ready get requests."""

    def __init__(self, plane: HAProxy, folder: Path, context: Path) -> None:
        self.plane, self.pods = plane, list[WatchdogPod]()
        self._folder, self._context = folder, context
        self.statuses: Counter[int | str] = Counter()
        self.served_by: Counter[str] = Counter()

    async def add(self, number: int) -> None:
        """Start pods; each gets requests as soon as its health probe passes."""
        started = range(len(self.pods), len(self.pods) + number)
        for i in started:
            folder = self._folder / f"{i}"
            self.pods.append(await asyncio.to_thread(WatchdogPod, folder, self._context, healthcheck_interval="5s"))
        await asyncio.gather(*(self._join(i) for i in started))

    async def _join(self, i: int) -> None:
        await until(lambda: self.pods[i].health() == 200)
        await self.plane.add(SLOT, f"probe-{i}", "127.0.0.1", self.pods[i].port)

    async def call(self, client: httpx.AsyncClient) -> None:
        """One request of ``callers``."""
        try:
            answer = await client.post("/function/probe.openfaas-fn", content=b"{}", headers={"X-Do": "sleep:0.2"})
        except httpx.TransportError as error:
            self.statuses[type(error).__name__] += 1
            return
        self.statuses[answer.status_code] += 1
        self.served_by[answer.headers.get("x-pid", "")] += 1

    @asynccontextmanager
    async def callers(self) -> AsyncIterator[None]:
        """Several, each with one request after the other."""
        stopping = asyncio.Event()

        async def calls() -> None:
            url = f"http://127.0.0.1:{self.plane.port}"
            async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
                while not stopping.is_set():
                    await self.call(client)

        running = [asyncio.create_task(calls()) for _ in range(CALLERS)]
        try:
            yield
        finally:
            stopping.set()
            await asyncio.gather(*running)


@asynccontextmanager
async def service(folder: Path, context: Path) -> AsyncIterator[Service]:
    (folder / "g").mkdir()
    plane = HAProxy(folder / "g", free_port())
    try:
        await plane.start()
        await plane.route({"probe": (SLOT, 100, 60_000)})
        made = Service(plane, folder, context)
        with closing_all(made.pods):
            yield made
    finally:
        await plane.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)


@pytest.mark.system
def test_scaling_4_to_1_loses_no_request(tmp_path: Path, context: Path) -> None:
    async def scenario() -> None:
        async with service(tmp_path, context) as made:
            await made.add(4)
            async with made.callers():
                await until(lambda: len(made.served_by) == 4)
                for pod in made.pods[1:]:  # each with a request in hand: there are twice as many callers
                    pod.terminate()
                await until(lambda: all(pod.health() != 200 for pod in made.pods[1:]))
                for i in (1, 2, 3):
                    await made.plane.close(SLOT, f"probe-{i}")
                served = made.statuses.total()
                await until(lambda: made.statuses.total() > served + 2 * CALLERS)
            assert set(made.statuses) == {200}
            for pod in made.pods[1:]:
                assert await asyncio.to_thread(pod.process.wait, PATIENCE_S) == 0, pod.log()
                assert pod.function is not None
                await until(lambda pod=pod: not pod.function.is_running())  # type: ignore[misc]

    asyncio.run(scenario())


@pytest.mark.system
def test_scaling_1_to_4_fails_no_request(tmp_path: Path, context: Path) -> None:
    async def scenario() -> None:
        async with service(tmp_path, context) as made:
            await made.add(1)
            async with made.callers():
                await made.add(3)
                await until(lambda: len(made.served_by) == 4)
            assert set(made.statuses) == {200}

    asyncio.run(scenario())


@pytest.mark.system
def test_probes_fail_until_the_function_listens(tmp_path: Path, context: Path) -> None:
    pod = WatchdogPod(tmp_path / "pod", context)
    with closing_all([pod]):
        assert (pod.health(), pod.health("/_/ready"), pod.lock.exists()) == (503, 503, False)
        pod.await_health()
        assert (pod.health("/_/ready"), pod.call().status_code, pod.lock.exists()) == (200, 200, True)


def test_the_repository_has_the_layout_of_a_template_repository() -> None:
    """`faas-cli template pull` looks for folders below template/, `faas-cli build` for template/ beside the stack."""
    for folder in (ROOT / "template", PACKAGE / "template"):
        languages = [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
        assert [each.name for each in languages] == [TEMPLATE.name]
        for language in languages:
            described = yaml.safe_load((language / "template.yml").read_text())
            assert described["language"] == language.name
            assert described.keys() <= {"language", "fprocess", "build_options", "welcome_message", "handler_folder"}
            assert (language / "function" / "handler.py").is_file()


def test_images_go_to_the_users_registry() -> None:
    stack = yaml.safe_load((PACKAGE / "stack.yaml").read_text())
    for name, function in stack["functions"].items():
        assert re.fullmatch(rf"\$\{{REGISTRY:-penstock\}}/{name}:[0-9.]+", function["image"])
