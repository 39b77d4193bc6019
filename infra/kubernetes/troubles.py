"""Which troubles of pods end the wait for them, and which are reported while it lasts."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from penstock.adapters.kubernetes.pods import Pod
from penstock.world import Progress

REFUSED: Final = ("CreateContainerConfigError", "CreateContainerError", "forbidden")  # by a quota, an admission policy
CATCHING_UP: Final = ("failed to sync", "status unknown for quota", "error looking up service account")
"""Messages of a cluster that has not observed a new object yet."""
IMAGE: Final = ("ErrImage", "ImagePull", "InvalidImageName")
NO_SUCH_IMAGE: Final = ("InvalidImageName", "ErrImageNeverPull", "not found", "denied", "manifest unknown")
"""What a registry answers, and not a network."""
PULL_S: Final = 60.0
"""A pull that has failed for this long is final: the kubelet has tried three times by then."""
UNSCHEDULABLE: Final = "Unschedulable"
REPORT_AFTER_S: Final = 5.0
"""A volume that is being made holds its pod up for a moment."""


class Troubles:
    """The troubles of the pods that are waited for. ``tell`` receives a line once a pod lacks a node for 5 s; a cluster
    may still add one. ``now_s``: seconds from any origin.
    """

    def __init__(self, tell: Progress, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._now_s = now_s
        self._since_s: dict[str, float] = {}
        self._pulls: dict[str, str] = {}
        self._told: set[str] = set()

    def final(self, troubles: Mapping[str, str]) -> list[str]:
        """Lines of those that waiting does not resolve. ``troubles``: text by object."""
        return [line for name, text in troubles.items() if (line := self._final(name, text))]

    def report(self, pods: Iterable[Pod]) -> None:
        """Tell of those that fit on no node, once each, with the scheduler's reason."""
        for pod in pods:
            if not pod.trouble.startswith(UNSCHEDULABLE) or pod.ending or pod.name in self._told:
                continue
            if self._age_s(f"node {pod.name}") >= REPORT_AFTER_S:
                self._told.add(pod.name)
                self._tell(f"cluster: pod {pod.name} waits for a node: {' '.join(pod.trouble.split())}")

    def _final(self, name: str, text: str) -> str:
        if any(word in text for word in IMAGE):
            # A later `Back-off` may leave out the reason that an earlier `ErrImagePull` gave.
            text = self._pulls[name] = max(self._pulls.get(name, ""), text, key=len)
            late = self._age_s(f"pull {name}") >= PULL_S
            return f"{name}: {text}" if late or any(word in text for word in NO_SUCH_IMAGE) else ""
        refused = any(word in text for word in REFUSED) and not any(word in text for word in CATCHING_UP)
        return f"{name}: {text}" if refused else ""

    def _age_s(self, key: str) -> float:
        """Time since it was first seen."""
        return self._now_s() - self._since_s.setdefault(key, self._now_s())
