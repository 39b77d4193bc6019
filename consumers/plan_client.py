"""Client of the controller's plan service. Standard library only, so that the assignor can be used without Penstock's
other dependencies and a worker starts fast. The interface is described in ``penstock.plan``.
"""

import http.client
import threading
from urllib.parse import quote, urlsplit

import msgspec

from penstock.plan import MemberReport, PlanNotice, ReplicaName

SLACK_S = 2.0
"""How much longer than the asked wait an answer may take."""

_notice_decoder = msgspec.json.Decoder(PlanNotice)
_name_decoder = msgspec.json.Decoder(ReplicaName)


class PlanServiceError(Exception):
    """The plan service is away or refuses; the text says which and why."""


class PlanRefusedError(PlanServiceError):
    """The plan service was there and said no: asking again gives the same answer."""


class PlanClient:
    """Talks to the plan service at ``url`` about one group. One kept connection; calls are serialised."""

    def __init__(self, url: str, group: str, timeout_s: float = 0.25) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"plan service URL {url!r}: expected http://host:port")
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = f"/groups/{quote(group, safe='')}"
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def notice(self, after: int | None = None, wait_s: float = 0.0) -> PlanNotice:
        """The plan in force; with ``after`` once the serial is another one or ``wait_s`` has passed.

        Raises PlanServiceError if the service is away or does not know the group.
        """
        query = "" if after is None else f"?after={after}&wait_s={wait_s:g}"
        timeout_s = self._timeout_s if after is None else wait_s + SLACK_S
        return _notice_decoder.decode(self._request("GET", f"{self._path}/plan{query}", None, timeout_s))

    def replica(self, process: str, wait_s: float) -> str:
        """Which replica a process is that does not choose its own name, waiting ``wait_s`` until it is one.

        Raises PlanRefusedError if it is none by then, PlanServiceError if the service is away.
        """
        path = f"{self._path}/replicas/{quote(process, safe='')}?wait_s={wait_s:g}"
        return _name_decoder.decode(self._request("GET", path, None, wait_s + SLACK_S)).replica

    def report(self, replica: str, report: MemberReport) -> None:
        """Tell where a member is. Raises PlanServiceError if the service is away or refuses."""
        path = f"{self._path}/members/{quote(replica, safe='')}"
        self._request("POST", path, msgspec.json.encode(report), self._timeout_s)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _request(self, method: str, path: str, body: bytes | None, timeout_s: float) -> bytes:
        with self._lock:
            while True:
                kept = self._connection is not None
                try:
                    status, answer = self._exchange(method, path, body, timeout_s)
                    break
                except (OSError, http.client.HTTPException) as error:
                    self._drop()
                    # The service may have closed a connection that was kept; a fresh one tells whether it is away.
                    if not kept or isinstance(error, TimeoutError):
                        url, what = f"http://{self._host}:{self._port}", error or type(error).__name__
                        raise PlanServiceError(f"plan service {url} is away: {what}") from None
        if status >= 300:
            raise PlanRefusedError(f"plan service: {status} {answer.decode(errors='replace').strip()}")
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
        connection = self._connection
        if connection is None:
            connection = self._connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
