"""Reading a group where there is no broker that answers; with one: ``tests/controller/keda/test_service_live.py``."""

import gc
import socket
import threading
from types import SimpleNamespace

import pytest
from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    NotCoordinatorError,
)

from controller.fleets.stream.group_members import GroupReader


# kafka-python leaves a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("frozen", [False, True])
def test_an_attempt_without_an_answer_leaves_no_thread_behind(frozen: bool) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if frozen:
            listener.listen()
        reader = GroupReader(bootstrap=f"127.0.0.1:{listener.getsockname()[1]}", topic="orders", group="shop")
        before = set(threading.enumerate())
        assert reader.read() is None
        assert reader.count() is None
        # Threads of earlier tests may end during this test; it starts none that stays.
        assert set(threading.enumerate()) <= before
        assert "KafkaTimeoutError" in reader.trouble
        gc.collect()


class Refusing(SimpleNamespace):
    """An admin client whose broker refuses, as a real one does: the group's state is "Dead" whatever the refusal."""

    error: str | None
    closed = False

    def describe_groups(self, groups: list[str]) -> dict[str, dict[str, object]]:
        return {each: {"group_state": "Dead", "error": self.error, "members": []} for each in groups}

    def close(self) -> None:
        self.closed = True


def refused(refusal: BrokerResponseError | None) -> tuple[GroupReader, Refusing]:
    """A reader of group "shop" and its client, whose broker answers with this refusal, or with none."""
    reader = GroupReader(bootstrap="a-broker:9092", topic="orders", group="shop")
    client = reader._admin = Refusing(error=None if refusal is None else str(refusal))
    return reader, client


@pytest.mark.parametrize(
    ("refusal", "members"),
    [
        (None, ()),  # of brokers before 4.0
        (GroupIdNotFoundError("Group shop not found."), ()),
        (GroupIdNotFoundError("Group shop is not a classic group."), None),
        (CoordinatorLoadInProgressError(), None),
        (CoordinatorNotAvailableError(), None),
        (NotCoordinatorError(), None),
        (GroupAuthorizationFailedError(), None),
    ],
    ids=repr,
)
def test_a_group_is_without_members_only_where_its_coordinator_says_so(
    refusal: BrokerResponseError | None, members: tuple[()] | None
) -> None:
    reader, client = refused(refusal)
    assert reader.read() == members
    assert client.closed == (members is None), "the next one asks for the coordinator again"


def test_a_group_that_may_not_be_described_names_the_right() -> None:
    reader, _ = refused(GroupAuthorizationFailedError())
    assert reader.read() is None
    assert "needs DESCRIBE on topic orders and group shop" in reader.trouble
