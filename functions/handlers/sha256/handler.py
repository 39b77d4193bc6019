"""Document creation 1: the SHA-256 digest of the document."""

import hashlib
from typing import Any


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """Any body → ``{"sha256": hexadecimal, "bytes": its length}``."""
    return {"body": {"sha256": hashlib.sha256(event.body).hexdigest(), "bytes": len(event.body)}}
