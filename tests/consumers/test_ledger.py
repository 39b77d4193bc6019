"""The ledger on a real Redis: exactly once, whoever books and however often."""

import resource
import secrets
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest
import redis

from consumers.ledger import Booking, Ledger, keys
from penstock.adapters.redis import REDIS_AWAY
from penstock.settings import Endpoints
from tests.consumers.observed_run import balance_cents
from tests.support.eventually import eventually

pytestmark = pytest.mark.live


@pytest.fixture
def ledger(services: Endpoints) -> Iterator[Ledger]:
    opened = Ledger(services.require("redis"), f"penstock:test-{secrets.token_hex(4)}:ledger")
    yield opened
    opened.erase()
    opened.close()


def booking(number: int, *, account: str = "a", cents: int = 100) -> Booking:
    return Booking(number, account, cents, "EUR", 0, False, "w", 1)


def balance(services: Endpoints, ledger: Ledger, account: str) -> int:
    return balance_cents(services.require("redis"), ledger._keys[0], account)


def test_a_payment_is_booked_once_and_its_account_charged_once(ledger: Ledger, services: Endpoints) -> None:
    assert ledger.book([booking(1, cents=250)]) == [1]
    assert ledger.book([booking(1, cents=250)]) == [2]
    assert ledger.book([booking(1, cents=999)]) == [3]
    assert ledger.booked_ids() == [1]
    assert balance(services, ledger, "a") == -250


def test_one_round_trip_books_a_chunk_in_order_with_its_repetitions(ledger: Ledger, services: Endpoints) -> None:
    assert ledger.book([booking(1), booking(2), booking(1), booking(3, account="b")]) == [1, 1, 2, 1]
    assert ledger.booked_ids() == [1, 2, 3]
    assert [balance(services, ledger, account) for account in "abc"] == [-200, -100, 0]
    assert ledger.book([]) == []


def test_many_at_once_book_every_payment_exactly_once(ledger: Ledger, services: Endpoints) -> None:
    key = f"penstock:test-{secrets.token_hex(4)}:ledger"
    first_attempts: list[int] = []

    def book_all() -> None:
        own = Ledger(services.require("redis"), key)
        for start in range(0, 200, 10):
            attempts = own.book([booking(number) for number in range(start, start + 10)])
            first_attempts.extend(start + index for index, attempt in enumerate(attempts) if attempt == 1)
        own.close()

    threads = [threading.Thread(target=book_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared = Ledger(services.require("redis"), key)
    try:
        assert sorted(first_attempts) == list(range(200)) == shared.booked_ids()
        assert balance(services, shared, "a") == -200 * 100
    finally:
        shared.erase()
        shared.close()


def test_booking_goes_on_after_redis_forgot_its_scripts(ledger: Ledger, services: Endpoints) -> None:
    ledger.book([booking(1)])
    with redis.Redis.from_url(services.require("redis")) as client:
        client.script_flush()
    assert ledger.book([booking(1), booking(2)]) == [2, 1]


def test_erasing_leaves_nothing(services: Endpoints) -> None:
    key = f"penstock:test-{secrets.token_hex(4)}:ledger"
    opened = Ledger(services.require("redis"), key)
    opened.book([booking(1), booking(1)])
    with redis.Redis.from_url(services.require("redis")) as client:
        assert client.exists(*keys(key)) == 3
        opened.erase()
        assert client.exists(*keys(key)) == 0
    opened.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The URL and the process of a Redis that writes all to its file, as the local world's does. Its limit for files is
    the size of its disk.
    """
    address = tmp_path / "socket"
    config = ("port 0", f"unixsocket {address}", f"dir {tmp_path}", "appendonly yes", "appendfsync everysec", 'save ""')
    (tmp_path / "redis.conf").write_text("\n".join(config))
    # The kernel refuses a write beyond the limit, and sends a signal.
    start = f"trap '' XFSZ; exec redis-server {tmp_path / 'redis.conf'} > /dev/null"
    process = subprocess.Popen(["sh", "-c", start])
    try:
        url = f"unix://{address}"
        eventually(lambda: answers(url), within_s=30)
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    with suppress(*REDIS_AWAY), redis.Redis.from_url(url) as client:
        return bool(client.ping())
    return False


def test_a_redis_whose_disk_or_memory_is_full_is_waited_for(own_redis: tuple[str, int]) -> None:
    url, pid = own_redis
    ledger = Ledger(url, "penstock:full:ledger")
    numbers = count()

    def refused() -> bool:
        try:
            ledger.book([booking(next(numbers))])
        except REDIS_AWAY:
            return True
        return False

    with closing(ledger), redis.Redis.from_url(url) as client:
        assert not refused()
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        eventually(refused, within_s=30)  # the write that finds the disk full is in memory all the same
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        eventually(lambda: not refused(), within_s=30)
        client.config_set("maxmemory", 1)
        assert refused()
        client.config_set("maxmemory", 0)
        assert not refused()


def test_an_absent_redis_is_told_at_once_so_that_the_worker_can_decide() -> None:
    ledger = Ledger("redis://127.0.0.1:1/0", "penstock:none:ledger")
    with pytest.raises(REDIS_AWAY):
        ledger.book([booking(1)])
    ledger.close()
