"""Matrix 4: the sums of both branches make the product."""

from typing import Any

from arrays import pack_array, unpack_array
from claim_check import FunctionError, field, read_json


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """``{"left-reduce": {"left": parcel}, "right-reduce": {"right": parcel}}`` → ``{"product": parcel, "rows",
    "columns"}``.
    """
    request = read_json(event)
    halves = [field(field(request, f"{side}-reduce"), side) for side in ("left", "right")]
    try:
        product = unpack_array(halves[0]) + unpack_array(halves[1])
        rows, columns = product.shape
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"halves that make no matrix: {error}") from None
    return {"body": {"product": pack_array(product), "rows": rows, "columns": columns}}
