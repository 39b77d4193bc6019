"""The external scaler by TLS, with real certificates: who is admitted, who is not, and renewed certificates."""

from pathlib import Path

import grpc
from typer.testing import CliRunner

from controller.keda.tls import TlsFiles
from penstock.command import build
from penstock.errors import PenstockError
from tests.controller.keda.keda_client import Trigger
from tests.controller.keda.scaler_service import frozen_broker, serving
from tests.support.certificates import Authority

METADATA = {"topic": "orders", "group": "shop", "scaler": "linear", "enableTLS": "true"}


def written(folder: Path, authority: Authority) -> tuple[Path, Path]:
    """Files of a server's certificate and key."""
    paths = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(paths, authority.issue("penstock-keda.default"), strict=True):
        path.write_bytes(content)
    return paths


def target(address: str, credentials: grpc.ChannelCredentials | None) -> float | None:
    """Target of the metric's spec, as KEDA asks for it; None where there is no connection."""
    channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    with channel:
        try:
            return Trigger(channel, "orders", **METADATA).spec()[1]
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            return None


def test_keda_that_knows_the_ca_is_served_and_nobody_else_without_tls_or_with_another(tmp_path: Path) -> None:
    authority = Authority()
    with frozen_broker() as broker, serving(broker, TlsFiles(*written(tmp_path, authority), None)) as address:
        assert target(address, grpc.ssl_channel_credentials(authority.pem)) == 1.0
        assert target(address, grpc.ssl_channel_credentials(Authority("another").pem)) is None
        assert target(address, None) is None


def test_with_a_client_ca_only_its_clients_are_admitted(tmp_path: Path) -> None:
    authority, clients = Authority(), Authority("clients")
    (tmp_path / "ca.crt").write_bytes(clients.pem)

    def client(of: Authority) -> grpc.ChannelCredentials:
        cert, key = of.issue("keda-operator")
        return grpc.ssl_channel_credentials(authority.pem, key, cert)

    with (
        frozen_broker() as broker,
        serving(broker, TlsFiles(*written(tmp_path, authority), tmp_path / "ca.crt")) as address,
    ):
        assert target(address, client(clients)) == 1.0
        assert target(address, client(authority)) is None
        assert target(address, grpc.ssl_channel_credentials(authority.pem)) is None


def test_a_renewed_certificate_is_served_and_a_broken_one_leaves_the_last(tmp_path: Path) -> None:
    first, second = Authority("first"), Authority("second")
    with frozen_broker() as broker, serving(broker, TlsFiles(*written(tmp_path, first), None)) as address:
        assert target(address, grpc.ssl_channel_credentials(first.pem)) == 1.0
        written(tmp_path, second)
        assert target(address, grpc.ssl_channel_credentials(second.pem)) == 1.0
        assert target(address, grpc.ssl_channel_credentials(first.pem)) is None
        (tmp_path / "tls.key").write_text("half a")
        assert target(address, grpc.ssl_channel_credentials(second.pem)) == 1.0
        (tmp_path / "tls.key").unlink()
        assert target(address, grpc.ssl_channel_credentials(second.pem)) == 1.0


def test_wrong_files_and_half_the_options_are_told_in_one_line(tmp_path: Path) -> None:
    authority = Authority()
    cert, key = written(tmp_path, authority)
    other = tmp_path / "other.key"
    other.write_bytes(authority.issue("other")[1])

    def told(*arguments: object) -> str:
        command = ["keda", "--kafka", "127.0.0.1:1", *map(str, arguments)]
        error = CliRunner().invoke(build(), command).exception
        assert isinstance(error, PenstockError) and "\n" not in str(error)
        return str(error)

    assert "TLS takes --tls-cert and --tls-key" in told("--tls-cert", cert)
    assert "TLS takes --tls-cert and --tls-key" in told("--tls-client-ca", cert)
    assert f"{tmp_path / 'none'}: No such file" in told("--tls-cert", cert, "--tls-key", tmp_path / "none")
    assert "are no certificate and its key" in told("--tls-cert", cert, "--tls-key", other)
    assert "is no CA" in told("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", other)
