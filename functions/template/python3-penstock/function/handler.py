"""A function to begin with: it answers what it was sent."""

from typing import Any


def handle(event: Any, context: Any) -> dict[str, Any]:
    """Answer the request's body."""
    del context
    return {"statusCode": 200, "body": event.body}
