"""Matrix 3, right branch: its products are added up."""

from functools import partial

from arrays import add_up

handle = partial(add_up, "right")
