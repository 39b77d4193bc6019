"""Calls of a Deployment that the API server refuses."""

from types import SimpleNamespace

import pytest
from kubernetes.client import ApiException

from penstock.adapters.kubernetes.deployment import Deployment
from penstock.adapters.kubernetes.informer import KubernetesError


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> tuple[Deployment, ApiException]:
    deployment, error = Deployment("ns", "pay", client=SimpleNamespace()), ApiException(status=404, reason="Not Found")

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(deployment, "_core", SimpleNamespace(patch_namespaced_pod=refuse))
    return deployment, error


def test_an_annotation_of_a_pod_that_is_gone_is_nothing_to_do(refused: tuple[Deployment, ApiException]) -> None:
    refused[0].annotate("pay-0001", {"a": "b"})


def test_an_annotation_that_is_refused_for_another_reason_is_an_error(
    refused: tuple[Deployment, ApiException],
) -> None:
    refused[1].status = 403
    with pytest.raises(KubernetesError, match="annotate pod pay-0001"):
        refused[0].annotate("pay-0001", {"a": "b"})
