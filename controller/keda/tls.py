"""TLS of the external scaler: its certificate, and the CA of the clients that it admits."""

import logging
import ssl
from pathlib import Path

import grpc

from penstock.errors import PenstockError
from penstock.log_once import LogOnce

log = logging.getLogger(__name__)


class TlsFiles:
    """PEM files: certificate chain, its key, and the CA that clients' certificates are of; without ``client_ca`` any
    client is admitted. PenstockError if they cannot be used. They are read again when they have changed, as renewed
    certificates do in a mounted Secret; wrong ones are logged, and the last good ones stay.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._trouble = LogOnce(log, "TLS: the certificate of before stays: %s")
        self._read = self._content()
        self._check()

    def credentials(self) -> grpc.ServerCredentials:
        """For the server's port."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._changed,  # type: ignore[arg-type]  # None, too, says its documentation
            require_client_authentication=self._client_ca is not None,
        )

    def _content(self) -> tuple[bytes, ...]:
        try:
            return tuple(each.read_bytes() for each in (self._cert, self._key, self._client_ca) if each is not None)
        except OSError as error:
            raise PenstockError(f"TLS: {error.filename}: {error.strerror}") from None

    def _check(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key, password="")  # a question for a password would wait for ever
        except (ssl.SSLError, ValueError) as error:
            raise PenstockError(f"TLS: {self._cert} and {self._key} are no certificate and its key: {error}") from None
        try:
            context.load_verify_locations(self._client_ca) if self._client_ca is not None else None
        except ssl.SSLError as error:
            raise PenstockError(f"TLS: {self._client_ca} is no CA: {error}") from None

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        cert, key, *client_ca = self._read
        return grpc.ssl_server_certificate_configuration([(key, cert)], client_ca[0] if client_ca else None)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called at each handshake: the new configuration, None if it is the one before."""
        with self._trouble.skipping(PenstockError):
            content = self._content()
            if content != self._read:
                self._check()
                self._read = content
                log.info("TLS: the certificate was read again")
                return self._configuration()
        return None
