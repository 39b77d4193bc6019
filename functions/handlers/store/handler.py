"""Document creation 4: the document is kept in Redis, under its digest, for a while."""

from typing import Any

from claim_check import field, keep, read_json, unpack


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """``{"sha256", "pdf"}`` → ``{"sha256", "document": Redis key, "bytes": of the PDF}``."""
    request = read_json(event)
    digest = str(field(request, "sha256"))
    pdf = unpack(field(request, "pdf"))
    key = f"penstock:document:{digest}"
    keep(key, pdf)
    return {"body": {"sha256": digest, "document": key, "bytes": len(pdf)}}
