"""The overlay ``cluster``, for runs on it."""

import pytest

from infra.kubernetes.services import ClusterServices
from tests.cluster.shared import SharedOverlay


@pytest.fixture(scope="module")
def brokers(shared_overlay: SharedOverlay) -> ClusterServices:
    """Up, with the supervisor of what runs here."""
    return shared_overlay.up()
