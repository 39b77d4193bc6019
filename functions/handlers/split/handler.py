"""Matrix 1: two matrices are cut along their common side, A = [A1 A2], B = [B1; B2], so that A·B = A1·B1 + A2·B2.

Each half is cut once more for its branch. A request that brings no ``a`` and ``b`` is given two drawn from its own
text. Environment: ``matrix_size``.
"""

import hashlib
import json
from typing import Any

import numpy as np
from arrays import pack_array
from claim_check import FunctionError, setting
from numpy.random import default_rng  # numpy imports its generators at first use

MATRIX_SIZE = 64


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """JSON, with ``a`` and ``b`` as lists of rows if they are given → ``{"left": pairs, "right": pairs}``, each pair
    two claim checks of arrays to multiply.
    """
    a, b = matrices(event.body)
    cuts = np.array_split(np.arange(a.shape[1]), 4)
    pairs = [{"a": pack_array(a[:, cut]), "b": pack_array(b[cut])} for cut in cuts]
    return {"body": {"left": pairs[:2], "right": pairs[2:]}}


def matrices(body: bytes) -> tuple[Any, Any]:
    """A and B. Raises FunctionError 400 if the body is not JSON or they cannot be multiplied."""
    try:
        request = json.loads(body)
    except ValueError as error:
        raise FunctionError(400, f"the body is not JSON: {error}") from None
    if not (isinstance(request, dict) and {"a", "b"} <= request.keys()):
        size = setting("matrix_size", MATRIX_SIZE)
        rng = default_rng(int.from_bytes(hashlib.sha256(body).digest()))
        return rng.standard_normal((size, size)), rng.standard_normal((size, size))
    try:
        a, b = (np.array(request[name], dtype=np.float64) for name in ("a", "b"))
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"a and b have to be lists of rows of numbers: {error}") from None
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or not a.size or not b.size:
        raise FunctionError(400, f"a {a.shape} and b {b.shape} cannot be multiplied")
    return a, b
