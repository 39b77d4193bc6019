"""Parcels of numpy arrays, for functions that have numpy among their requirements.

A module of its own, so that numpy is imported with the handler, once in the warm parent of all replicas: an import at
the first request would cost each replica 0.15 s of a core right after its cold start.
"""

import io
from typing import Any

import numpy as np
from parcels import FunctionError, Parcel, pack, unpack


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
