"""Matrix 2, left branch: the products of its pairs."""

from typing import Any

from arrays import pack_array, unpack_array
from parcels import FunctionError, field, read_json

SIDE = "left"


def handle(event: Any, context: Any) -> dict[str, Any]:
    """``{"left": pairs}`` → ``{"left": parcels, a product each}``."""
    del context
    pairs = field(read_json(event), SIDE)
    try:
        products = [unpack_array(field(pair, "a")) @ unpack_array(field(pair, "b")) for pair in pairs]
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"pairs that cannot be multiplied: {error}") from None
    return {"body": {SIDE: [pack_array(product) for product in products]}}
