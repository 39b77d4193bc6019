"""Enough of OpenAPI v3 to hold a manifest to a CustomResourceDefinition's schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parents[1] / "cluster" / "crds"
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
}  # fmt: skip


def crd_schema(file: str) -> dict[str, Any]:
    (version,) = yaml.safe_load((CRDS / file).read_text())["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def violations(document: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """What an API server would refuse, and the fields that it would drop because its schema does not know them."""
    if (kind := schema.get("type")) and not isinstance(document, TYPES[kind]):
        yield f"{path}: {document!r} is no {kind}"
        return
    if isinstance(document, list):
        for number, each in enumerate(document):
            yield from violations(each, schema.get("items", {}), f"{path}[{number}]")
    if not isinstance(document, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in document)
    for name, value in document.items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        if name not in known and others is None:
            yield f"{path}.{name} is unknown"
        yield from violations(value, known.get(name, others or {}), f"{path}.{name}")
