"""Objects of a Kubernetes API kept up to date by list and watch, so that one can look ten times a second.

The client library has an informer, too; it asks again without a pause while the API server is away.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
import urllib3
from kubernetes.client import ApiException
from kubernetes.watch import Watch

from penstock.adapters.kubernetes.pods import ApiObject, Metadata
from penstock.errors import PenstockError
from penstock.log_once import LogOnce

log = logging.getLogger(__name__)

WATCH_S: Final = 30
"""A watch ends after this long and begins again where it was: then at the latest a dead connection is noticed."""
REQUEST_TIMEOUT_S: Final = (3.0, 5.0)
"""To connect, to answer."""
RETRY_S: Final = 0.5
NOT_FOUND: Final = 404
CONFLICT: Final = 409
GONE: Final = 410


class KubernetesError(PenstockError):
    """The API server is away or refuses; the text says what and why."""


class ConflictError(KubernetesError):
    """The object has changed since it was read."""


class NotFoundError(KubernetesError):
    """There is no such object, or none any more."""


REFUSALS: Final[Mapping[int, type[KubernetesError]]] = {CONFLICT: ConflictError, NOT_FOUND: NotFoundError}
"""Errors that callers handle, by HTTP status."""


T = TypeVar("T", bound=ApiObject)


class _Listing(msgspec.Struct, Generic[T], frozen=True):
    metadata: Metadata
    items: list[T]


class _Refusal(msgspec.Struct, frozen=True):
    """The API's ``Status``."""

    message: str = ""


def call(what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    """The API's answer as JSON. KubernetesError that names ``what``; for a status in ``REFUSALS`` its kind."""
    try:
        # as it is: making the library's objects of it costs more than the call, and nothing here needs them
        response = function(*arguments, **options, _preload_content=False, _request_timeout=REQUEST_TIMEOUT_S)
        return bytes(response.data)
    except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        raise away(what, error) from None


def refusal(body: bytes) -> str:
    """The reason in the API's answer."""
    try:
        return msgspec.json.decode(body, type=_Refusal).message
    except msgspec.DecodeError:
        return body.decode(errors="replace").strip()[:200]


def away(what: str, error: Exception) -> KubernetesError:
    """The error for a call that had no answer, or a watch that was refused."""
    if isinstance(error, KubernetesError):
        return error
    if isinstance(error, ApiException):
        kind = REFUSALS.get(error.status, KubernetesError)
        return kind(f"{what}: {refusal((error.body or '').encode()) or error.reason or error.status}")
    reason = getattr(error, "reason", None) or error
    return KubernetesError(f"{what}: the API server is away: {reason}")


class Informer(Generic[T]):
    """The objects that ``listing`` lists, by name, as ``kind``. ``changed`` is called from the watch's thread after
    each change. ``listing`` takes the list call's options.
    """

    def __init__(self, what: str, listing: Callable[..., Any], kind: type[T], changed: Callable[[], None]) -> None:
        self._what, self._listing, self._kind, self._changed = what, listing, kind, changed
        self._objects: dict[str, T] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watch: Watch | None = None
        self._version = ""
        self._thread = threading.Thread(target=self._work, name=f"watch-{what}", daemon=True)

    def start(self) -> None:
        """Return once the objects were listed. Raises KubernetesError if they can't be."""
        self._list()
        self._thread.start()

    def stop(self) -> None:
        """End the watch; what was seen last stays readable."""
        self._stopping.set()
        while self._thread.is_alive():
            if self._watch is not None:
                self._watch.stop()
            self._thread.join(0.1)

    def objects(self) -> Mapping[str, T]:
        """As last seen, by name."""
        with self._lock:
            return dict(self._objects)

    def _work(self) -> None:
        """Watch on, list again when the watch was torn. What is wrong is said once."""
        torn, trouble = False, LogOnce(log, f"%s; tried again every {RETRY_S:g} s")
        while not self._stopping.is_set():
            try:
                if torn:
                    self._list()
                    self._changed()
                    torn = False
                self._follow()
                trouble.clear()
            except (
                KubernetesError,
                ApiException,
                urllib3.exceptions.HTTPError,
                OSError,
                msgspec.MsgspecError,
            ) as error:
                if self._stopping.is_set():
                    return
                torn = True
                if not (isinstance(error, ApiException) and error.status == GONE):
                    trouble.note(away(self._what, error))
                self._stopping.wait(RETRY_S)

    def _list(self) -> None:
        listing: _Listing[T] = msgspec.json.decode(call(self._what, self._listing), type=_Listing[self._kind])  # type: ignore[name-defined]
        with self._lock:
            self._objects = {each.metadata.name: each for each in listing.items}
        self._version = listing.metadata.resource_version

    def _follow(self) -> None:
        """One watch, until its time is up. ApiException of status 410 if the version is too old by now."""

        def listing(**options: Any) -> Any:
            # the client library leaves events as they are where no return type is declared
            return self._listing(**options)

        self._watch = watch = Watch()
        timeout = (REQUEST_TIMEOUT_S[0], WATCH_S + REQUEST_TIMEOUT_S[1])
        options = {"timeout_seconds": WATCH_S, "allow_watch_bookmarks": True, "_request_timeout": timeout}
        for event in watch.stream(listing, resource_version=self._version, **options):
            if self._stopping.is_set():
                return
            change, raw = event["type"], event["raw_object"]
            self._version = raw["metadata"]["resourceVersion"]
            if change == "BOOKMARK":
                continue
            seen = msgspec.convert(raw, self._kind)
            with self._lock:
                if change == "DELETED":
                    self._objects.pop(seen.metadata.name, None)
                else:
                    self._objects[seen.metadata.name] = seen
            self._changed()
