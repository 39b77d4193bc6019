"""Several senders that play one schedule together: each event is one sender's, and is the same whoever sends it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import PenstockError
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from producers.delivery import DeliveryLog, figures_of
from producers.encoding import signed_records
from producers.schedule import make_schedule
from producers.shard import WHOLE, Shard
from producers.workloads.synthetic import Constant

KEY = b"a key for tests"
START_NS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return make_schedule(Constant(rate_per_s=101, duration_s=3), seed=4, partitions=5)


def spec() -> RunSpec:
    return RunSpec(
        run="r", experiment="e", world="local", scaler=ScalerSpec(name="none"), duration_s=3.0, start_ns=START_NS
    )


@pytest.mark.parametrize("of", [1, 2, 3, 400])
def test_every_event_is_in_one_shard_and_the_record_that_it_is_in_the_whole(schedule: Schedule, of: int) -> None:
    whole = list(signed_records(spec(), schedule, KEY))
    seen: dict[int, tuple[object, int, int]] = {}
    for number in range(of):
        shard = Shard(number, of)
        part = shard.part(schedule)
        records = list(signed_records(spec(), schedule, KEY, shard))
        assert len(records) == len(part)
        rows = zip(records, part.intended_offset_ns.tolist(), part.partition.tolist(), strict=True)
        found = dict(zip(shard.ids(len(part)), rows, strict=True))
        assert not found.keys() & seen.keys()
        seen |= found
    columns = zip(whole, schedule.intended_offset_ns.tolist(), schedule.partition.tolist(), strict=True)
    assert [seen[event_id] for event_id in range(len(schedule))] == list(columns)


def test_deliveries_of_all_shares_are_those_of_the_whole(schedule: Schedule, tmp_path: Path) -> None:
    whole = DeliveryLog(spec(), schedule)
    shards = [Shard(number, 3) for number in range(3)]
    logs = [DeliveryLog(spec(), schedule, shard) for shard in shards]
    for event_id in range(0, len(schedule), 2):
        row, number = divmod(event_id, 3)
        for log, place in ((whole, event_id), (logs[number], row)):
            log.sent_ns[place] = START_NS + int(schedule.intended_offset_ns[event_id]) + 1_000 * event_id
            log.acked_ns[place] = log.sent_ns[place] + 5
            log.offset[place] = event_id
    tables = []
    for number, log in enumerate([whole, *logs]):
        log.write(tmp_path / f"{number}.parquet", unsent="not sent")
        tables.append(pq.read_table(tmp_path / f"{number}.parquet"))
    together = pa.concat_tables(tables[1:]).sort_by("id")
    assert together.equals(tables[0])
    assert figures_of(together) == figures_of(whole.table(unsent="not sent"))


def test_senders_that_sent_nothing_know_no_delay(schedule: Schedule) -> None:
    logs = [DeliveryLog(spec(), schedule, Shard(number, 2)) for number in range(2)]
    tables = [log.table(unsent="not sent") for log in logs]
    assert figures_of(pa.concat_tables(tables)).send_delay_p99_s is None
    logs[1].sent_ns[0] = START_NS + int(np.max(schedule.intended_offset_ns))
    assert figures_of(pa.concat_tables([tables[0], logs[1].table(unsent="")])).send_delay_p99_s is not None


def test_a_share_is_written_as_it_is_read() -> None:
    assert Shard.parse("1/2") == Shard(1, 2)
    assert Shard.parse(str(WHOLE)) == WHOLE == Shard(0, 1)


@pytest.mark.parametrize("text", ["", "2", "2/2", "1/0", "-1/2", "a/2", "1/2/3"])
def test_what_is_no_share_is_told(text: str) -> None:
    with pytest.raises(PenstockError, match="shard"):
        Shard.parse(text)
