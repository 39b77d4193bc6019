"""The one exception that ends a command with a clear line instead of a traceback."""


class PenstockError(Exception):
    """An error that the user can correct: the message names the thing, the value and the remedy. Commands print it as
    one line on standard error and exit with ``exit_code``.
    """

    exit_code = 2


EXIT_INVALID = 98
"""Exit code of a command with a run whose verdict is INVALID, or whose files were changed."""
EXIT_MISSED = 99
"""Exit code of a command with a run that missed ``--fail-under``; k6 uses the same one."""


class ChangedRunError(PenstockError):
    """A run directory does not have the files that its manifest lists."""

    exit_code = EXIT_INVALID
