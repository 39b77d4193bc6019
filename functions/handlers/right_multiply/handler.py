"""Matrix 2, right branch: the products of its pairs."""

from functools import partial

from arrays import multiply

handle = partial(multiply, "right")
