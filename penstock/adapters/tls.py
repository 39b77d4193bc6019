"""One TLS context for all HTTP clients of a process."""

import ssl
from functools import cache

import httpx


@cache
def tls_context() -> ssl.SSLContext:
    """The trusted certificates, loaded once: httpx loads them for each client, which takes 25 ms."""
    return httpx.create_ssl_context(trust_env=False)
