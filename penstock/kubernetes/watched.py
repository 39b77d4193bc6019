"""Objects of a Kubernetes API kept up to date by list and watch, so that one can look ten times a second.

The client library has an informer, too; it asks again without a pause while the API server is away.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import urllib3
from kubernetes.client import ApiException
from kubernetes.watch import Watch

from penstock.errors import PenstockError
from penstock.kubernetes.pods import Metadata

log = logging.getLogger(__name__)

WATCH_S: Final = 30
"""A watch ends after this long and begins again where it was: then at the latest a dead connection is noticed."""
REQUEST_TIMEOUT_S: Final = (3.0, 5.0)
"""To connect, to answer."""
RETRY_S: Final = 0.5
CONFLICT: Final = 409
GONE: Final = 410


class KubernetesError(PenstockError):
    """The API server is away or refuses; the text says what and why."""


class ConflictError(KubernetesError):
    """The object has changed since it was read."""


class Named(Protocol):
    """What all objects have."""

    @property
    def metadata(self) -> Metadata:
        """Which one it is."""
        ...


class _Versioned(msgspec.Struct, frozen=True):
    """Enough of an object to know its version."""

    metadata: Metadata


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Listing(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: list[msgspec.Raw]


class _Refusal(msgspec.Struct, frozen=True):
    """The API's ``Status``."""

    message: str = ""


def call(what: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    """The answer of one call to the API as JSON. Raises KubernetesError that names ``what`` was asked, ConflictError
    for 409.
    """
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
        kind = ConflictError if error.status == CONFLICT else KubernetesError
        return kind(f"{what}: {refusal((error.body or '').encode()) or error.reason or error.status}")
    reason = getattr(error, "reason", None) or error
    return KubernetesError(f"{what}: the API server is away: {reason}")


T = TypeVar("T", bound=Named)


class Watched(Generic[T]):
    """The objects that ``listing`` lists, by name, as ``kind``. ``changed`` is called from the watch's thread after
    each change. ``listing`` takes the list call's options.
    """

    def __init__(self, what: str, listing: Callable[..., Any], kind: type[T], changed: Callable[[], None]) -> None:
        self._what = what
        self._listing = listing
        self._decoder = msgspec.json.Decoder(kind)
        self._changed = changed
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
        torn, said = False, ""
        while not self._stopping.is_set():
            try:
                if torn:
                    self._list()
                    self._changed()
                    torn = False
                self._follow()
                said = ""
            except (KubernetesError, ApiException, urllib3.exceptions.HTTPError, OSError, msgspec.DecodeError) as error:
                if self._stopping.is_set():
                    return
                torn, reason = True, str(away(self._what, error))
                if reason != said and not (isinstance(error, ApiException) and error.status == GONE):
                    log.warning("%s; tried again every %g s", reason, RETRY_S)
                said = reason
                self._stopping.wait(RETRY_S)

    def _list(self) -> None:
        listed = msgspec.json.decode(call(self._what, self._listing), type=_Listing)
        objects = [self._decoder.decode(item) for item in listed.items]
        with self._lock:
            self._objects = {each.metadata.name: each for each in objects}
        self._version = listed.metadata.resource_version

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
            raw = msgspec.json.encode(event["raw_object"])
            self._version = msgspec.json.decode(raw, type=_Versioned).metadata.resource_version
            if event["type"] != "BOOKMARK":
                self._take(event["type"], self._decoder.decode(raw))

    def _take(self, change: str, seen: T) -> None:
        with self._lock:
            if change == "DELETED":
                self._objects.pop(seen.metadata.name, None)
            else:
                self._objects[seen.metadata.name] = seen
        self._changed()
