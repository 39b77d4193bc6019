"""The OpenFaaS provider API over HTTP, with Penstock's additions. HAProxy serves the requests to functions."""

import base64
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from functions.gateway.control_plane import ControlPlane, TakenNameError, UnknownNameError
from functions.gateway.haproxy import DataPlaneAwayError
from functions.gateway.meters import exposition
from functions.gateway.replica_set import MOST_DIGITS
from functions.pod import FunctionIdentity
from penstock import __version__
from penstock.adapters.http_server import read_body
from penstock.errors import PenstockError
from penstock.function_messages import ReplicaEvents
from penstock.openfaas import (
    NAMESPACE,
    DeleteRequest,
    FunctionDeployment,
    ScaleRequest,
    check_namespace,
    function_of,
)
from penstock.records import read_record

USER = "admin"
LONGEST_WAIT_S = 60.0
LARGEST_BODY_BYTES = 1_048_576
"""Of requests about functions."""
LARGEST_CALL_BYTES = 64 * 1_048_576
"""Of an asynchronous invocation, which waits in memory."""
VERSION = {"sha": "", "release": __version__}
INFO = {
    "provider": {"provider": "penstock", "orchestration": "processes", "version": VERSION},
    "version": {**VERSION, "commit_message": ""},
    "arch": "",
}

STATUS: Mapping[type[Exception], int] = {UnknownNameError: 404, TakenNameError: 409, DataPlaneAwayError: 503}
"""Of a PenstockError; of others 400."""
Answer = Callable[[Request], Awaitable[Any]]
"""What answers a request: a Response, or what is sent as JSON; None is 202 without a body."""
T = TypeVar("T")


class Provider:
    """The application. ``password``: of the user admin, for /system; empty: no authentication."""

    def __init__(self, control: ControlPlane, password: str) -> None:
        self._control = control
        self._password = password
        answers: dict[tuple[str, str], Answer] = {
            ("GET", "/system/functions"): lambda _: control.functions(),
            ("POST", "/system/functions"): self._deploy,
            ("PUT", "/system/functions"): self._update,
            ("DELETE", "/system/functions"): self._delete,
            ("GET", "/system/function/{name}"): lambda request: control.function(_name(request)),
            ("POST", "/system/scale-function/{name}"): self._scale,
            ("GET", "/system/info"): _constant(INFO),
            ("GET", "/system/namespaces"): _constant([NAMESPACE]),
            ("GET", "/system/namespace/{name}"): self._refuse_namespaces,
            ("POST", "/system/namespace/{name}"): self._refuse_namespaces,
            ("GET", "/system/secrets"): self._secrets,
            **{(method, "/system/secrets"): self._refuse_secrets for method in ("POST", "PUT", "DELETE")},
            ("GET", "/system/logs"): self._refuse_logs,
            ("POST", "/async-function/{path:path}"): self._invoke_later,
            ("GET", "/penstock/functions"): lambda _: control.reports(),
            ("GET", "/penstock/pods/{pod}"): self._introduce,
            ("GET", "/penstock/events"): self._events,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/healthz"): self._health,
        }
        self.application = Starlette(
            routes=[
                Route(path, self._answered(answer, guarded=path.startswith("/system/")), methods=[method])
                for (method, path), answer in answers.items()
            ],
            exception_handlers={PenstockError: _refuse},
        )

    # --- functions ---------------------------------------------------------------------------------------------------

    async def _deploy(self, request: Request) -> None:
        await self._control.deploy(await _read(request, FunctionDeployment))

    async def _update(self, request: Request) -> None:
        await self._control.update(await _read(request, FunctionDeployment))

    async def _delete(self, request: Request) -> None:
        await self._control.delete((await _read(request, DeleteRequest)).function_name)

    async def _scale(self, request: Request) -> None:
        wanted = await _read(request, ScaleRequest)
        if wanted.replicas < 0:
            raise PenstockError(f"replicas {wanted.replicas}: expected 0 or more")
        self._control.scale(_name(request), wanted.replicas)

    async def _invoke_later(self, request: Request) -> Response:
        path: str = request.path_params["path"]
        name = function_of(path.partition("/")[0])
        if not self._control.knows(name):
            raise UnknownNameError(f"there is no function {name!r}")
        if request.url.query:
            path = f"{path}?{request.url.query}"
        body = await read_body(request, LARGEST_CALL_BYTES)
        call_id = self._control.invoker.submit(name, path, body, request.headers)
        if call_id is None:
            return _text(429, "too many asynchronous invocations wait: try again later")
        return Response(status_code=202, headers={"X-Call-Id": call_id})

    async def _refuse_namespaces(self, _request: Request) -> Response:
        return _text(501, f"there is one namespace, {NAMESPACE}")

    async def _secrets(self, _request: Request) -> list[dict[str, str]]:
        return [{"name": name, "namespace": NAMESPACE} for name in self._control.secrets]

    async def _refuse_secrets(self, _request: Request) -> Response:
        return _text(501, "secrets are set when the gateway starts; set variables of the function (envVars) instead")

    async def _refuse_logs(self, _request: Request) -> Response:
        return _text(501, f"logs are files in {self._control.state / 'logs'}, or the pods' logs on Kubernetes")

    # --- about the gateway -------------------------------------------------------------------------------------------

    async def _health(self, _request: Request) -> Response:
        return _text(200, "OK") if self._control.plane.runs() else _text(503, "haproxy has died; it is being started")

    async def _metrics(self, _request: Request) -> Response:
        await self._control.reports()
        return Response(exposition(self._control.registry), media_type="text/plain; version=0.0.4")

    async def _introduce(self, request: Request) -> FunctionIdentity:
        text = request.query_params.get("wait_s", "0")
        if not (text.replace(".", "", 1).isdecimal() and float(text) <= LONGEST_WAIT_S):
            raise PenstockError(f"wait_s={text!r}: expected seconds, at most {LONGEST_WAIT_S:g}")
        return await self._control.introduce(request.path_params["pod"], float(text))

    async def _events(self, request: Request) -> ReplicaEvents:
        text = request.query_params.get("since", "0")
        if not text.isdecimal():
            raise PenstockError(f"since={text!r}: expected the number of an event")
        return self._control.events.since(int(text[:MOST_DIGITS]))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _answered(self, answer: Answer, *, guarded: bool) -> Callable[[Request], Awaitable[Response]]:
        """The answer as a Response, behind basic authentication if it is ``guarded``."""

        async def answered(request: Request) -> Response:
            if guarded and self._password and not self._admits(request.headers.get("authorization", "")):
                asked = {"WWW-Authenticate": 'Basic realm="Restricted"'}
                return Response("not authorised\n", 401, headers=asked, media_type="text/plain")
            check_namespace(request.query_params.get("namespace", "") if guarded else "")
            found = await answer(request)
            if isinstance(found, Response):
                return found
            if found is None:
                return Response(status_code=202)
            return Response(msgspec.json.encode(found), media_type="application/json")

        return answered

    def _admits(self, authorization: str) -> bool:
        scheme, _, encoded = authorization.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except ValueError:
            return False
        return scheme.lower() == "basic" and secrets.compare_digest(given, f"{USER}:{self._password}".encode())


async def _refuse(_request: Request, error: Exception) -> Response:
    """An error as OpenFaaS' status code with one line."""
    return _text(STATUS.get(type(error), 400), str(error))


async def _read(request: Request, kind: type[T]) -> T:
    try:
        found = read_record(msgspec.json.Decoder(kind), await read_body(request, LARGEST_BODY_BYTES))
    except msgspec.DecodeError as error:
        raise PenstockError(f"not a {kind.__name__}: {error}") from None
    check_namespace(getattr(found, "namespace", ""))
    return found


def _name(request: Request) -> str:
    return function_of(request.path_params["name"])


def _constant(value: Any) -> Answer:
    async def answer(_request: Request) -> Any:
        return value

    return answer


def _text(status: int, message: str) -> Response:
    return Response(message + "\n", status, media_type="text/plain")
