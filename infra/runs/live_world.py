"""The end of a world on real services, which is the same on this machine and on a cluster."""

from contextlib import ExitStack, nullcontext, suppress
from types import TracebackType

from penstock.errors import PenstockError
from penstock.world import World


class LiveWorld(World):
    """``_ending`` undoes what ``__enter__`` has done: it stops what was started, and releases the state folder."""

    def __init__(self) -> None:
        self._ending = ExitStack()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ending, suppress(PenstockError) if error is not None else nullcontext():  # the first error counts
            self.close()
