"""The one exception that ends a command with a clear line instead of a traceback."""


class PenstockError(Exception):
    """Something the user can mend: the message names the thing, the value and the way out.

    Every command prints it as one line on standard error and exits with ``exit_code``.
    """

    exit_code = 2
