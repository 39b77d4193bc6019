"""Log a trouble once, however often it is met."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


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

    @contextmanager
    def skipping(self, *errors: type[Exception]) -> Iterator[None]:
        """The block ends at one of these errors, which is noted; otherwise the trouble is over."""
        try:
            yield
        except errors as error:
            self.note(str(error) or type(error).__name__)
        else:
            self.clear()

    def clear(self) -> None:
        """The trouble is over."""
        self.note("")
