"""Reading a group where there is no broker that answers; with one: ``tests/controller/keda/test_service_live.py``."""

import gc
import socket
import threading

import pytest

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
        threads = threading.active_count()
        assert reader.read() is None
        assert reader.count() is None
        assert threading.active_count() == threads
        assert "KafkaTimeoutError" in reader.trouble
        gc.collect()
