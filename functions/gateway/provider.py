"""The OpenFaaS provider API over HTTP, and what Penstock adds to it. Requests to functions do not come through here."""

import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from functions.gateway.control import ControlPlane, TakenNameError, UnknownFunctionError, UnknownPodError
from penstock import __version__
from penstock.errors import PenstockError
from penstock.openfaas import DeleteRequest, FunctionDeployment, ScaleRequest

USER = "admin"
LONGEST_WAIT_S = 60.0
INFO = {
    "provider": {
        "provider": "penstock",
        "orchestration": "processes",
        "version": {"sha": "", "release": __version__},
    },
    "version": {"sha": "", "release": __version__, "commit_message": ""},
    "arch": "",
}

Answer = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Provider:
    """The application. ``password``: of the user admin, for /system; empty lets everybody in."""

    def __init__(self, control: ControlPlane, password: str) -> None:
        self._control = control
        self._password = password
        self.application = Starlette(
            routes=[
                Route("/system/functions", self._guarded(self._list), methods=["GET"]),
                Route("/system/functions", self._guarded(self._deploy), methods=["POST"]),
                Route("/system/functions", self._guarded(self._update), methods=["PUT"]),
                Route("/system/functions", self._guarded(self._delete), methods=["DELETE"]),
                Route("/system/function/{name}", self._guarded(self._status), methods=["GET"]),
                Route("/system/scale-function/{name}", self._guarded(self._scale), methods=["POST"]),
                Route("/system/info", self._guarded(self._info), methods=["GET"]),
                Route("/system/namespaces", self._guarded(self._namespaces), methods=["GET"]),
                Route("/async-function/{path:path}", self._answering(self._invoke_later), methods=["POST"]),
                Route("/penstock/functions", self._answering(self._reports), methods=["GET"]),
                Route("/penstock/pods/{pod}", self._answering(self._introduce), methods=["GET"]),
                Route("/penstock/events", self._answering(self._events), methods=["GET"]),
                Route("/metrics", self._answering(self._metrics), methods=["GET"]),
                Route("/healthz", self._answering(self._health), methods=["GET"]),
            ]
        )

    # --- functions ---------------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        del request
        return _json(await self._control.functions())

    async def _deploy(self, request: Request) -> Response:
        await self._control.deploy(await _read(request, FunctionDeployment))
        return Response(status_code=202)

    async def _update(self, request: Request) -> Response:
        await self._control.update(await _read(request, FunctionDeployment))
        return Response(status_code=202)

    async def _delete(self, request: Request) -> Response:
        await self._control.delete((await _read(request, DeleteRequest)).function_name)
        return Response(status_code=202)

    async def _status(self, request: Request) -> Response:
        return _json(await self._control.function(request.path_params["name"]))

    async def _scale(self, request: Request) -> Response:
        wanted = await _read(request, ScaleRequest)
        if wanted.replicas < 0:
            raise PenstockError(f"replicas {wanted.replicas}: expected 0 or more")
        self._control.scale(request.path_params["name"], wanted.replicas)
        return Response(status_code=202)

    async def _invoke_later(self, request: Request) -> Response:
        path: str = request.path_params["path"]
        name = path.partition("/")[0]
        if not self._control.knows(name):
            raise UnknownFunctionError(f"there is no function {name!r}")
        if request.url.query:
            path = f"{path}?{request.url.query}"
        callback_url = request.headers.get("x-callback-url", "")
        call_id = self._control.invoker.submit(name, path, await request.body(), dict(request.headers), callback_url)
        if call_id is None:
            return _text(429, "too many asynchronous invocations wait: try again later")
        return Response(status_code=202, headers={"X-Call-Id": call_id})

    # --- about the gateway -------------------------------------------------------------------------------------------

    async def _info(self, request: Request) -> Response:
        del request
        return _json(INFO)

    async def _namespaces(self, request: Request) -> Response:
        del request
        return _json([""])

    async def _health(self, request: Request) -> Response:
        del request
        return _text(200, "OK") if self._control.plane.runs() else _text(503, "haproxy has died; it is being started")

    async def _metrics(self, request: Request) -> Response:
        del request
        await self._control.reports()
        return Response(generate_latest(self._control.registry), media_type="text/plain; version=0.0.4")

    async def _reports(self, request: Request) -> Response:
        del request
        return _json(await self._control.reports())

    async def _introduce(self, request: Request) -> Response:
        text = request.query_params.get("wait_s", "0")
        if not (text.replace(".", "", 1).isdecimal() and float(text) <= LONGEST_WAIT_S):
            raise PenstockError(f"wait_s={text}: expected seconds, at most {LONGEST_WAIT_S:g}")
        return _json(await self._control.introduce(request.path_params["pod"], float(text)))

    async def _events(self, request: Request) -> Response:
        text = request.query_params.get("since", "0")
        if not text.isdecimal():
            raise PenstockError(f"since={text}: expected the number of an event")
        return _json(self._control.events.since(int(text)))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _guarded(self, answer: Answer) -> Answer:
        """Basic authentication first."""
        answering = self._answering(answer)

        async def guarded(request: Request) -> Response:
            if self._password and not self._admits(request.headers.get("authorization", "")):
                return Response(
                    "not authorised\n",
                    401,
                    headers={"WWW-Authenticate": 'Basic realm="Restricted"'},
                    media_type="text/plain",
                )
            return await answering(request)

        return guarded

    @staticmethod
    def _answering(answer: Answer) -> Answer:
        """Errors as OpenFaaS' status codes, in one line."""

        async def answering(request: Request) -> Response:
            try:
                return await answer(request)
            except (UnknownFunctionError, UnknownPodError) as error:
                return _text(404, str(error))
            except TakenNameError as error:
                return _text(409, str(error))
            except PenstockError as error:
                return _text(400, str(error))

        return answering

    def _admits(self, authorization: str) -> bool:
        scheme, _, encoded = authorization.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return False
        return scheme.lower() == "basic" and secrets.compare_digest(given, f"{USER}:{self._password}".encode())


async def _read(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.DecodeError as error:
        raise PenstockError(f"not a {kind.__name__}: {error}") from None


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _text(status: int, message: str) -> Response:
    return Response(message + "\n", status, media_type="text/plain")
