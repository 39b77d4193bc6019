"""Claim checks of numpy arrays, and what both branches of the matrix pipeline do with them.

A module of its own, so that numpy is imported with the handler, once in the fork server of all replicas: an import at
the first request would cost each replica 0.15 s of a core right after its cold start.
"""

import io
from typing import Any

import numpy as np
from claim_check import FunctionError, Parcel, field, pack, read_json, unpack


def pack_array(array: Any) -> Parcel:
    """A parcel of a numpy array with its type and shape."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return pack(buffer.getvalue())


def unpack_array(parcel: Any) -> Any:
    """The numpy array of a parcel. Raises FunctionError as ``unpack``, 400 also if it is no array."""
    try:
        return np.load(io.BytesIO(unpack(parcel)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FunctionError(400, f"a parcel that is no array: {error}") from None


def multiply(side: str, event: Any, _context: Any) -> dict[str, Any]:
    """The products of one side's pairs: ``{side: pairs}`` → ``{side: claim checks, one product each}``."""
    pairs = field(read_json(event), side)
    try:
        products = [unpack_array(field(pair, "a")) @ unpack_array(field(pair, "b")) for pair in pairs]
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"pairs that cannot be multiplied: {error}") from None
    return {"body": {side: [pack_array(product) for product in products]}}


def add_up(side: str, event: Any, _context: Any) -> dict[str, Any]:
    """The sum of one side's products: ``{side: products}`` → ``{side: parcel}``."""
    try:
        first, *others = [unpack_array(product) for product in field(read_json(event), side)]
        return {"body": {side: pack_array(sum(others, start=first))}}
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"products that cannot be added: {error}") from None
