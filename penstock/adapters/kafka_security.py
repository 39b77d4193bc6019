"""TLS and SASL of Kafka clients: one reading of ``PENSTOCK_KAFKA_*``, in the terms of both client libraries.

Every client of this package takes its settings from here. No function puts the password into a message.
"""

import os
import ssl
from pathlib import Path
from typing import Any, Final, NoReturn

from penstock.errors import PenstockError
from penstock.settings import KafkaSecurity

PREFIX: Final = "PENSTOCK_KAFKA_"
PLAIN_TEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAIN_TEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class ClientSecurity:
    """How clients reach Kafka, read from the environment and checked. PenstockError, in one line, for settings that
    contradict each other and for files that cannot be used.
    """

    def __init__(self) -> None:
        given = self._given = KafkaSecurity()
        self.protocol = _one_of("SECURITY_PROTOCOL", given.security_protocol or PLAIN_TEXT, PROTOCOLS)
        self.tls, self.sasl = self.protocol.endswith("SSL"), self.protocol.startswith("SASL")
        for kind, used, protocols in (("tls", self.tls, "SSL or SASL_SSL"), ("sasl", self.sasl, "SASL_SSL")):
            for name, value in given:
                if value and name.startswith(f"{kind}_") and not used:
                    chosen = f"{PREFIX}SECURITY_PROTOCOL={self.protocol}"
                    _refuse(name, f"has no effect with {chosen}; it takes {protocols}")
        self.mechanism, self.user, self._password = self._login() if self.sasl else ("", "", "")
        self._check_files()

    @property
    def plain(self) -> bool:
        """Whether there is neither TLS nor a login."""
        return self.protocol == PLAIN_TEXT

    def __str__(self) -> str:
        """For the log; without the password."""
        return f"{self.protocol}, {self.mechanism}, user {self.user}" if self.sasl else self.protocol

    __repr__ = __str__

    def librdkafka(self) -> dict[str, str]:
        """Settings of confluent-kafka."""
        if self.plain:
            return {}
        given = self._given
        settings = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self._password,
            "ssl.ca.location": given.tls_ca,
            "ssl.certificate.location": given.tls_certificate,
            "ssl.key.location": given.tls_key,
        }
        return {name: value for name, value in settings.items() if value}

    def kafka_python(self) -> dict[str, Any]:
        """Settings of kafka-python."""
        if self.plain:
            return {}
        given = self._given
        settings = {
            "security_protocol": self.protocol,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self._password,
            "ssl_cafile": given.tls_ca,
            "ssl_certfile": given.tls_certificate,
            "ssl_keyfile": given.tls_key,
        }
        return {name: value for name, value in settings.items() if value}

    def explain(self, said: str) -> str:
        """What an error of librdkafka's means for these settings; empty where it says nothing about TLS or a login."""
        if "handshake failed" in said and "supported mechanisms" in said:
            known = said.partition("supported mechanisms:")[2].partition("(")[0].strip()
            return f"its listener has {f'SASL mechanism {known}' if known else 'no SASL'}, not {self.mechanism}"
        if "SASL" in said and "uthentication" in said:
            password = PREFIX + ("SASL_PASSWORD_FILE" if self._given.sasl_password_file else "SASL_PASSWORD")
            return f"it refuses user {self.user!r} by {self.mechanism}: is the password in {password} right?"
        if "PLAINTEXT broker listener" in said or "wrong version number" in said:
            return f"its listener has no TLS; name the TLS port, or set {PREFIX}SECURITY_PROTOCOL"
        if "certificate verify failed" in said:
            ca = self._given.tls_ca or "not set, so the system's CAs count"
            return f"its certificate is not of a trusted CA, or is for another host name ({PREFIX}TLS_CA: {ca})"
        if "alert" in said and ("certificate" in said or "unknown ca" in said):
            mine = self._given.tls_certificate or "not set"
            return f"it refuses the client's certificate ({PREFIX}TLS_CERTIFICATE: {mine})"
        return ""

    def _login(self) -> tuple[str, str, str]:
        given = self._given
        mechanism = _one_of("SASL_MECHANISM", given.sasl_mechanism, MECHANISMS)
        password, file = given.sasl_password.get_secret_value(), given.sasl_password_file
        if not given.sasl_username:
            _refuse("sasl_username", f"is not set; {self.protocol} needs it")
        if bool(password) == bool(file):
            said = "both set" if file else "not set"
            _refuse("sasl_password", f"and {PREFIX}SASL_PASSWORD_FILE are {said}; one of them is needed")
        if file:
            try:
                password = Path(file).read_text().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                _refuse_file("sasl_password_file", file, error, "not UTF-8")
            if not password:
                _refuse("sasl_password_file", f"({file}): empty")
        return mechanism, given.sasl_username, password

    def _check_files(self) -> None:
        """The libraries name no file that they cannot use."""
        given, context = self._given, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if bool(given.tls_certificate) != bool(given.tls_key):
            _refuse("tls_certificate", f"and {PREFIX}TLS_KEY belong together")
        if given.tls_ca:
            try:
                context.load_verify_locations(given.tls_ca)
            except OSError as error:  # ssl.SSLError is one
                _refuse_file("tls_ca", given.tls_ca, error, "no certificate of a CA (PEM)")
        if given.tls_certificate:
            try:  # a question for a passphrase would wait for ever
                context.load_cert_chain(given.tls_certificate, given.tls_key, password="")
            except (OSError, ValueError) as error:
                files = f"{given.tls_certificate}, {given.tls_key}"
                _refuse_file("tls_certificate", files, error, "no certificate and its key (PEM, without passphrase)")


def librdkafka_settings(bootstrap: str) -> dict[str, str]:
    """Where Kafka is and how to get in, for confluent-kafka."""
    return {"bootstrap.servers": bootstrap, **ClientSecurity().librdkafka()}


def kafka_python_settings(bootstrap: str) -> dict[str, Any]:
    """Where Kafka is and how to get in, for kafka-python."""
    return {"bootstrap_servers": bootstrap, **ClientSecurity().kafka_python()}


def use_plain_text() -> None:
    """Have this process and those that it starts reach Kafka without TLS and login: the broker is Penstock's own, and
    the settings in the environment are for another one.
    """
    for name in KafkaSecurity.model_fields:
        os.environ.pop(f"{PREFIX}{name}".upper(), None)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.upper() not in choices:
        _refuse(name, f"{f'is {value!r}' if value else 'is not set'}; it takes {', '.join(choices)}")
    return value.upper()


def _refuse_file(name: str, path: str, error: Exception, otherwise: str) -> NoReturn:
    """``otherwise``: the reason, unless the system has one."""
    of_system = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    _refuse(name, f"({path}): {of_system or otherwise}")


def _refuse(name: str, reason: str) -> NoReturn:
    raise PenstockError(f"{PREFIX}{name.upper()} {reason}")
