"""Which extra of the distribution has a module that is not installed: ``pip install 'penstock[live]'``."""

from typing import Final

MODULES: Final = {
    "fast": ("numba",),
    "functions": ("cryptography", "flask", "fpdf", "h11", "segno", "waitress"),
    "kubernetes": ("kubernetes",),
    "live": (
        "circus", "confluent_kafka", "google", "grpc", "httpx", "locust", "pika", "prometheus_client", "redis",
        "starlette", "uvicorn", "zmq",
    ),
    "spark": ("pandas", "pyspark"),
}  # fmt: skip
"""Top-level modules by extra: those of its packages, and zmq, which circus brings."""


def remedy(module: str) -> str | None:
    """How to install a missing module, in one line; None if no extra has it."""
    extra = next((extra for extra, modules in MODULES.items() if module.partition(".")[0] in modules), None)
    return None if extra is None else f"this needs {module}, which is not installed: pip install 'penstock[{extra}]'"
