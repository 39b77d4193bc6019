"""The live clocks keep what every world's clock must."""

import signal
import threading
import time

from controller.main import StoppableClock
from penstock.clock import Clock, WallClock
from tests.conformance.ports import ClockConformance


class TestWallClock(ClockConformance):
    def make_clock(self) -> Clock:
        return WallClock()


class TestStoppableClock(ClockConformance):
    def make_clock(self) -> Clock:
        return StoppableClock()


def test_a_sleep_ends_at_once_when_the_controller_is_told_to_stop() -> None:
    clock = StoppableClock()
    threading.Timer(0.05, clock.stop, (signal.SIGTERM, None)).start()
    clock.sleep_until(time.time() + 3600)
    assert clock.stopped
    clock.sleep_until(time.time() + 3600)
