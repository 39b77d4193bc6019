"""Matrix 3, right branch: its products are added up."""

from typing import Any

from arrays import pack_array, unpack_array
from parcels import FunctionError, field, read_json

SIDE = "right"


def handle(event: Any, context: Any) -> dict[str, Any]:
    """``{"right": products}`` → ``{"right": parcel with their sum}``."""
    del context
    try:
        first, *others = [unpack_array(product) for product in field(read_json(event), SIDE)]
        for other in others:
            first = first + other
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"products that cannot be added: {error}") from None
    return {"body": {SIDE: pack_array(first)}}
