"""What an event carries: seeded payments, a stable partition for each account, records that verify."""

import numpy as np
import pytest

from penstock.records import encode, event_decoder, payment_decoder
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.signing import Signer
from producers.encoding import signed_records
from producers.payments import CHUNK, payments
from producers.schedule import make_schedule
from producers.workloads.synthetic import Constant

KEY = b"a key for tests"


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return make_schedule(Constant(rate_per_s=500, duration_s=20), seed=4, partitions=5)


def spec() -> RunSpec:
    return RunSpec(
        run="a-run", experiment="e", world="local", scaler=ScalerSpec(name="none"), duration_s=20, slo_s=0.5,
        start_ns=1_700_000_000_000_000_000,
    )  # fmt: skip


def test_an_account_pays_on_one_partition_only(schedule: Schedule) -> None:
    partitions: dict[str, set[int]] = {}
    for partition, payment in zip(schedule.partition.tolist(), payments(schedule, 1), strict=True):
        partitions.setdefault(payment.account, set()).add(partition)
    assert len(partitions) > 1000
    assert all(len(seen) == 1 for seen in partitions.values())


def test_one_seed_gives_the_same_payments_and_a_shorter_schedule_their_beginning(schedule: Schedule) -> None:
    everything = list(payments(schedule, 1))
    assert everything == list(payments(schedule, 1))
    assert everything != list(payments(schedule, 2))
    cut = CHUNK + 17
    shorter = Schedule(schedule.intended_offset_ns[:cut], schedule.partition[:cut], 20.0)
    assert list(payments(shorter, 1)) == everything[:cut]


def test_amounts_are_whole_positive_cents_with_a_long_tail(schedule: Schedule) -> None:
    amounts = np.array([payment.amount_cents for payment in payments(schedule, 1)])
    assert amounts.min() >= 1
    assert np.median(amounts) == pytest.approx(3500, rel=0.1)
    assert np.percentile(amounts, 99) > 40_000


def test_a_record_is_the_kernel_s_event_with_the_time_of_sending_filled_in(schedule: Schedule) -> None:
    for event_id, record in enumerate(signed_records(spec(), schedule, KEY)):
        value = record.value(1_700_000_000_123_456_789)
        event = event_decoder.decode(value)
        assert encode(event) == value
        assert (event.id, event.key.encode(), event.sent_ns) == (event_id, record.key, 1_700_000_000_123_456_789)
        assert event.intended_ns == 1_700_000_000_000_000_000 + schedule.intended_offset_ns[event_id]
        assert event.deadline_ns == event.intended_ns + 500_000_000
        assert Signer(KEY, spec().run).verify(event)
        assert payment_decoder.decode(event.payload).account == event.key
