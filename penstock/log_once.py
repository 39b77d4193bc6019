"""Log a trouble once, however often it is met."""

import logging
from contextlib import AbstractContextManager


class LogOnce:
    """Logs a trouble (``%s`` in ``message``) when it is another than before. ``recovered``: logged when it is over."""

    def __init__(self, log: logging.Logger, message: str, *, level: int = logging.WARNING, recovered: str = "") -> None:
        self.trouble = ""
        """The present one, empty for none."""
        self._log, self._message, self._level, self._recovered = log, message, level, recovered

    def note(self, trouble: object) -> None:
        """Take note of the present trouble; empty: none, or it is over."""
        text = str(trouble)
        if text != self.trouble:
            if text:
                self._log.log(self._level, self._message, text)
            elif self._recovered:
                self._log.info(self._recovered)
        self.trouble = text

    def skipping(self, *errors: type[Exception]) -> AbstractContextManager[None, bool]:
        """The block ends at one of these errors, which is noted; otherwise the trouble is over."""
        return _Skipping(self, errors)

    def clear(self) -> None:
        """The trouble is over."""
        if self.trouble:
            self.note("")


class _Skipping(AbstractContextManager[None, bool]):
    """A class, because loops enter it several times a second: a generator takes three times as long."""

    __slots__ = ("_errors", "_trouble")

    def __init__(self, trouble: LogOnce, errors: tuple[type[Exception], ...]) -> None:
        self._trouble, self._errors = trouble, errors

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            self._trouble.clear()
        elif isinstance(error, self._errors):
            self._trouble.note(str(error) or type(error).__name__)
            return True
        return False
