"""The numbers of a run against cases small enough to be done by hand, and the rules of the verdict."""

import gc
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.journal import DecisionsFile, ReplicasFile, TickRecord
from penstock.contracts import (
    Accepted,
    Action,
    Decision,
    FleetObservation,
    Groups,
    ReplicaCounts,
    ReplicaEvent,
    StreamObservation,
    hold,
)
from penstock.errors import ChangedRunError, PenstockError
from penstock.measures import NEVER, Distribution, bucket_of
from penstock.results import RESULT_SCHEMA
from penstock.rundir import Manifest, RunDirectory
from penstock.runspec import Fault, RunSpec, ScalerSpec
from penstock.schedule import Schedule
from report.analysis.measurement import UNFINISHED, _slowest, analyse, summary_of
from report.analysis.outcomes import events_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.analysis.verdict import judge
from tests.experiments.synthetic import START_NS, Toy, write_delivery, write_ledger, write_results, write_run

MS = 1_000_000
SECOND = 1_000_000_000


def nanos(values: list[int]) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def tick(
    number: int,
    decision: Decision,
    *,
    replicas: int = 1,
    accepted: int | None = None,
    plan: Groups = (),
    **more: object,
) -> TickRecord:
    observation = StreamObservation(
        time_s=number + 0.1, fleet="payments", replicas=ReplicaCounts(joined=replicas), plan=plan
    )
    record = TickRecord(
        tick=number,
        time_s=number + 0.1,
        at_ns=START_NS + number * SECOND + 102 * MS,
        phase_s=0.102,
        decide_us=80.0,
        observation=observation,
        decisions={"linear": decision},
        acting="linear",
        accepted=Accepted({"payments": accepted}) if accepted is not None else None,
    )
    return msgspec.structs.replace(record, **more)


def scale(action: Action, to: int) -> Decision:
    return Decision(action=action, targets={"payments": to})


def small_run(path: Path, records: list[TickRecord], *, faults: tuple[Fault, ...] = ()) -> RunDirectory:
    """Four events, two a second: latencies 10, 20, 600 and 30 ms, of which sending 1, queueing the rest, service 5."""
    directory = RunDirectory(path)
    for folder in (directory.path, directory.results_folder, directory.metrics_folder):
        folder.mkdir()
    spec = RunSpec(
        run=directory.name,
        experiment="hand-made",
        world="local",
        scaler=ScalerSpec(name="linear"),
        duration_s=2.0,
        start_ns=START_NS,
        replica_price_per_hour=0.6,
        faults=faults,
    )
    directory.write(directory.spec_file, spec)
    offsets = nanos([0, 0, SECOND, SECOND])
    Schedule(offsets, np.zeros(4, dtype=np.int16), 2.0).write(directory.schedule_file)
    ids, intended = np.arange(4), START_NS + offsets
    finished = intended + nanos([10, 20, 600, 30]) * MS
    write_delivery(directory, ids, intended, intended + MS)
    write_ledger(directory, ids)
    write_results(directory, ids, intended, intended + MS, finished - 5 * MS, finished)
    journal = DecisionsFile(directory)
    for record in records:
        journal.tick(record)
    journal.close()
    replicas = ReplicasFile(directory)
    replicas.append(
        [
            ReplicaEvent("payments", "a", "requested", START_NS - 5 * SECOND),
            ReplicaEvent("payments", "b", "requested", START_NS + SECOND),
            ReplicaEvent("payments", "b", "gone", START_NS + SECOND + 500 * MS),
            ReplicaEvent("payments", "a", "gone", START_NS + 9 * SECOND),
        ]
    )
    replicas.close()
    return directory


QUIET = [tick(0, Decision(action="none")), tick(1, Decision(action="none"))]


def test_latency_share_and_split_are_those_computed_by_hand(tmp_path: Path) -> None:
    summary = analyse(RunData(small_run(tmp_path / "run", QUIET)))
    assert summary.verdict == "VALID", summary.reasons
    assert summary.slo_share == 0.75
    assert summary.latency.mean_s == pytest.approx(0.165)
    assert (summary.latency.p50_s, summary.latency.p90_s, summary.latency.max_s) == (0.020, 0.600, 0.600)
    assert summary.send_delay.p99_s == pytest.approx(0.001)
    assert summary.service.p50_s == pytest.approx(0.005)
    assert summary.queueing.mean_s == pytest.approx(0.165 - 0.006)
    assert summary.mean.queueing_s == pytest.approx(0.159)
    assert summary.slowest_mean.queueing_s == pytest.approx(0.594)
    assert (summary.arrival_rate_mean_per_s, summary.arrival_rate_peak_per_s) == (2.0, 2.0)


def test_the_three_parts_of_the_time_add_up_to_the_mean_latency(tmp_path: Path) -> None:
    summary = analyse(RunData(write_run(tmp_path, Toy(seconds=20))))
    parts = (summary.mean.send_delay_s, summary.mean.queueing_s, summary.mean.service_s)
    assert sum(part or 0.0 for part in parts) == pytest.approx(summary.latency.mean_s)


def test_replica_time_is_counted_within_the_schedule_only(tmp_path: Path) -> None:
    summary = analyse(RunData(small_run(tmp_path / "run", QUIET)))
    assert summary.replica_minutes == pytest.approx(2.5 / 60)
    assert summary.money == pytest.approx(2.5 / 3600 * 0.6)


def test_only_decisions_that_were_carried_out_count(tmp_path: Path) -> None:
    grouping: Groups = ((0, 1), (2,))
    records = [
        tick(0, scale("up", 3), replicas=1, accepted=3),
        tick(0, scale("up", 5), replicas=3, accepted=3),
        tick(1, scale("down", 1), replicas=3, accepted=2),
        tick(1, scale("up", 4), replicas=2),
        tick(1, Decision(action="reassign", assignment=((2,), (1, 0))), accepted=2, replicas=2, plan=grouping),
        tick(1, Decision(action="reassign", assignment=((0,), (1, 2))), accepted=2, replicas=2, plan=grouping),
    ]
    scale_counts = analyse(RunData(small_run(tmp_path / "run", records))).scale
    assert (scale_counts.up_actions, scale_counts.replicas_added) == (1, 2)
    assert (scale_counts.down_actions, scale_counts.replicas_removed) == (1, 1)
    assert scale_counts.reassignments == 1


def test_holds_are_counted_by_reason_and_numbers_that_vary_do_not_split_them(tmp_path: Path) -> None:
    records = [
        tick(0, hold("payments", "hold time: 1 s since the last scale, more than 10 s must pass")),
        tick(0, hold("payments", "hold time: 2.5 s since the last scale, more than 10 s must pass")),
        tick(1, hold("payments", "lag of partition 3 is unknown")),
    ]
    assert analyse(RunData(small_run(tmp_path / "run", records))).holds == {
        "hold time: … s since the last scale, more than 10 s must pass": 2,
        "lag of partition 3 is unknown": 1,
    }


def test_a_tick_without_observation_is_read_too(tmp_path: Path) -> None:
    blind = tick(0, hold("payments", "no observation: timeout"))
    fleet_only = FleetObservation(time_s=0.1, fleet="payments", replicas=ReplicaCounts(joined=1))
    summary = analyse(RunData(small_run(tmp_path / "run", [msgspec.structs.replace(blind, observation=fleet_only)])))
    assert summary.holds == {"no observation: timeout": 1}


def test_run_data_is_read_once_and_read_again_by_the_next(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "r", [tick(0, scale("none", 1))])
    run = RunData(directory)
    assert run.ticks is run.ticks
    journal = DecisionsFile(directory)
    journal.tick(tick(1, hold("payments", "waiting")))
    journal.close()
    assert [record.tick for record in run.ticks] == [0]
    assert [record.tick for record in RunData(directory).ticks] == [0, 1]
    assert analyse(RunData(directory)).ticks == 2


def test_the_garbage_collector_works_again_after_a_journal_that_cannot_be_read(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "r", [])
    directory.decisions_file.write_text('{"tick": "three"}\n')
    with pytest.raises(PenstockError, match=r"decisions.jsonl:1: not a TickRecord"):
        _ = RunData(directory).ticks
    assert gc.isenabled()


def test_rebalances_are_those_seen_after_the_start(tmp_path: Path) -> None:
    records = []
    for number, last_s in enumerate([-3.0, -3.0, 0.6, 0.6]):
        record = tick(0, Decision(action="none"))
        assert isinstance(record.observation, StreamObservation)
        seen = msgspec.structs.replace(record.observation, last_rebalance_s=last_s)
        records.append(msgspec.structs.replace(record, tick=number, observation=seen))
    assert analyse(RunData(small_run(tmp_path / "run", records))).rebalances == 1


def test_a_lost_event_makes_a_run_invalid_and_is_a_miss(tmp_path: Path) -> None:
    summary = analyse(RunData(write_run(tmp_path, Toy(seconds=10, lose=(7, 8)))))
    assert summary.verdict == "INVALID"
    assert summary.conservation.lost == 2
    assert "2 lost" in summary.reasons[0]
    assert "first ids 7, 8" in summary.reasons[0]
    assert summary.slo_share is not None
    assert summary.slo_share <= 1 - 2 / summary.acknowledged_events


def test_a_booking_that_is_missing_in_the_ledger_makes_a_run_invalid(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    write_ledger(directory, nanos([0, 1, 3]))
    summary = analyse(RunData(directory))
    assert summary.verdict == "INVALID"
    assert "completed but not in the ledger: 1 (first ids 2)" in summary.reasons[0]


def test_the_earliest_of_repeated_results_counts(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    ids = nanos([0, 1, 2, 3, 2])
    intended = START_NS + nanos([0, 0, 1, 1, 1]) * SECOND
    finished = intended + nanos([10, 20, 600, 30, 40]) * MS
    write_results(directory, ids, intended, intended + MS, finished - 5 * MS, finished)
    summary = analyse(RunData(directory))
    assert summary.conservation.redelivered == 1
    assert summary.latency.max_s == pytest.approx(0.040)


def test_unsigned_payments_are_counted_with_their_reason_and_harm_nothing(tmp_path: Path) -> None:
    summary = analyse(RunData(write_run(tmp_path, Toy(seconds=10, unsigned=3))))
    assert summary.verdict == "VALID", summary.reasons
    assert summary.conservation.foreign == 3
    assert summary.unsuccessful_by_reason == {"failed: signature does not match": 3}


def test_events_still_waiting_when_a_run_is_given_up_are_not_lost_and_stay_known(tmp_path: Path) -> None:
    directory = write_run(tmp_path, Toy(seconds=10, lose=(1, 2, 3)))
    first = analyse(RunData(directory), in_flight=3)
    assert (first.verdict, first.conservation.lost, first.conservation.in_flight) == ("DEGRADED", 0, 3)
    assert analyse(RunData(directory)) == first


def drop_sends(directory: RunDirectory, kept: int) -> None:
    table = pq.read_table(directory.delivery_file)
    missing = pa.array([None if row >= kept else value for row, value in enumerate(table["sent_ns"].to_pylist())])
    late = pa.array([None if row >= kept else value for row, value in enumerate(table["acked_ns"].to_pylist())])
    for name, column in (("sent_ns", missing), ("acked_ns", late)):
        table = table.set_column(table.schema.get_field_index(name), name, column.cast(pa.int64()))
    pq.write_table(table, directory.delivery_file)
    write_ledger(directory, np.arange(kept))
    intended = START_NS + nanos([0, 0, SECOND, SECOND])[:kept]
    finished = intended + 10 * MS
    write_results(directory, np.arange(kept), intended, intended + MS, finished - 5 * MS, finished)


def test_a_generator_that_falls_short_is_invalid_and_with_a_fault_injected_degraded(tmp_path: Path) -> None:
    plain = small_run(tmp_path / "plain", QUIET)
    drop_sends(plain, kept=3)
    summary = analyse(RunData(plain))
    assert summary.issued_share == 0.75
    assert summary.conservation.never_sent == 1
    assert summary.verdict == "INVALID"
    broken = small_run(tmp_path / "broken", QUIET, faults=(Fault("stop-broker", 1.0, 0.5),))
    drop_sends(broken, kept=3)
    assert analyse(RunData(broken)).verdict == "DEGRADED"


def test_what_degrades_a_run(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    spec, good = directory.spec(), analyse(RunData(directory))

    def reasons_with(**changed: object) -> str:
        verdict, reasons = judge(msgspec.structs.replace(good, **changed), spec)
        assert verdict == "DEGRADED"
        return "; ".join(reasons)

    assert "off their phase" in reasons_with(tick_phase_error_p99_s=0.021)
    assert "missed 1 of 3 ticks" in reasons_with(missed_ticks=1)
    assert "90 % busy in 40 %" in reasons_with(cpu_saturation=0.4)
    assert "gave 12 %" in reasons_with(cpu_stolen=0.12)
    assert "clocks" in reasons_with(negative_latencies=1)
    late = msgspec.structs.replace(good.send_delay, p99_s=0.051)
    assert "sent late" in reasons_with(send_delay=late)


def test_ticks_that_a_killed_controller_missed_are_not_held_against_the_run(tmp_path: Path) -> None:
    killed = (Fault("kill-controller", 0.5),)
    records = [QUIET[0], tick(1, Decision(action="none"), skipped=5)]
    summary = analyse(RunData(small_run(tmp_path / "run", records, faults=killed)))
    assert (summary.missed_ticks, summary.verdict) == (5, "VALID")


def test_the_record_begins_with_the_first_replica_event_or_tick(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    assert analyse(RunData(directory)).record_from_s == -5.0
    directory.replicas_file.write_bytes(b"")
    assert analyse(RunData(directory)).record_from_s == RunData(directory).ticks[0].time_s


def test_how_busy_the_machine_was_and_what_was_stolen_of_it_during_the_run(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    at_ns = START_NS + nanos([-1, 1, 2, 3]) * SECOND
    busy = [1.0, 0.95, 0.5, 1.0]
    columns = {"at_ns": at_ns, "cpu_busy_share": busy}
    pq.write_table(pa.table(columns), directory.metrics_folder / "machine.parquet")
    summary = analyse(RunData(directory))
    assert (summary.cpu_saturation, summary.cpu_stolen) == (0.5, None)  # of an older Penstock
    columns["cpu_stolen_share"] = [0.9, 0.25, 0.0, 0.9]
    pq.write_table(pa.table(columns), directory.metrics_folder / "machine.parquet")
    summary = analyse(RunData(directory))
    assert (summary.cpu_saturation, summary.cpu_stolen) == (0.5, 0.125)


def test_all_cores_are_busy_above_nine_tenths(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    columns = {"at_ns": START_NS + nanos([1, 2]) * SECOND, "cpu_busy_share": [0.9, 0.901]}
    pq.write_table(pa.table(columns), directory.metrics_folder / "machine.parquet")
    assert analyse(RunData(directory)).cpu_saturation == 0.5


def test_time_of_processes_at_a_lower_priority_counts_as_busy(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    at_ns = START_NS + nanos([1, 2]) * SECOND
    columns = {"at_ns": at_ns, "cpu_busy_share": [0.55, 0.5], "cpu_niced_share": [0.4, 0.4]}
    pq.write_table(pa.table(columns), directory.metrics_folder / "machine.parquet")
    summary = analyse(RunData(directory))
    assert (summary.cpu_saturation, summary.verdict) == (0.5, "DEGRADED")


def with_interval(directory: RunDirectory, interval_s: float = 1.0, **changed: object) -> RunDirectory:
    scaler = ScalerSpec(name="linear", parameters={"decision_interval_s": interval_s})
    directory.write(directory.spec_file, msgspec.structs.replace(directory.spec(), scaler=scaler, **changed))
    return directory


def counted(directory: RunDirectory) -> tuple[int, int, int, int]:
    summary = analyse(RunData(directory))
    return summary.decisions, summary.due_decisions, summary.ticks, summary.missed_ticks


def test_ticks_after_the_last_one_are_missed_ticks(tmp_path: Path) -> None:
    assert counted(with_interval(small_run(tmp_path / "whole", QUIET))) == (2, 2, 2, 0)
    assert counted(with_interval(small_run(tmp_path / "ended", QUIET[:1]))) == (1, 2, 1, 1)
    assert counted(with_interval(small_run(tmp_path / "long", QUIET), duration_s=5.1)) == (2, 5, 2, 3)
    assert counted(with_interval(small_run(tmp_path / "longer", QUIET), duration_s=5.11)) == (2, 6, 2, 4)
    assert counted(with_interval(small_run(tmp_path / "at-its-end", QUIET), duration_s=1.1)) == (2, 1, 2, 0)
    slow = with_interval(small_run(tmp_path / "slow", QUIET[:1]), interval_s=2.0, duration_s=7.0)
    assert counted(slow) == (1, 4, 1, 3)
    skipping = [QUIET[0], tick(1, Decision(action="none"), skipped=3)]
    assert counted(small_run(tmp_path / "unknown-interval", skipping)) == (2, 2, 2, 3)


def test_a_run_whose_first_tick_was_due_after_its_end_is_invalid(tmp_path: Path) -> None:
    summary = analyse(RunData(with_interval(small_run(tmp_path / "run", []), tick_phase_s=99.0)))
    assert (summary.verdict, summary.decisions, summary.due_decisions, summary.missed_ticks) == ("INVALID", 0, 0, 0)
    assert summary.reasons == ("linear never decided: with a tick phase of 99 s no tick was due in 2 s",)


def test_ticks_that_failed_are_counted_by_what_failed(tmp_path: Path) -> None:
    stay = Decision(action="none")
    records = [
        tick(0, stay, errors={"linear": "ValueError: -5 replicas"}),
        tick(0, stay, errors={"linear": "ValueError: -6 replicas", "actuator": "away"}),
        tick(0, stay, errors={"monitor": "away"}, slow={"linear": 1.5, "hpa": 2.0}),
        tick(0, stay, errors={"hpa": "a shadow's"}, slow={"linear": 1.1}),
        msgspec.structs.replace(tick(1, stay), decisions={"hpa": stay}),
    ]
    summary = analyse(RunData(small_run(tmp_path / "run", records)))
    assert (summary.decisions, summary.due_decisions, summary.scaler_failures) == (1, 4, 2)
    assert summary.first_failure == "ValueError: -5 replicas"
    assert (summary.slow_decisions, summary.failed_actions) == ({"linear": 2, "hpa": 1}, 1)
    assert summary.decisions_of == {"linear": 4, "hpa": 1}


def test_missed_seconds_are_those_of_completed_rejected_and_lost_events(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    assert analyse(RunData(directory)).missed_seconds == 1
    intended = START_NS + nanos([0, 0, 1]) * SECOND
    write_results(directory, nanos([0, 1, 2]), intended, intended, intended, intended + 10 * MS)
    file = directory.results_folder / "part-0.parquet"
    table = pq.read_table(file)
    outcome = pa.array(["completed", "completed", "rejected"])
    pq.write_table(table.set_column(table.schema.get_field_index("outcome"), "outcome", outcome), file)
    assert analyse(RunData(directory)).missed_seconds == 1  # event 3 is lost in second 1
    write_ledger(directory, nanos([0, 1]))
    write_delivery(directory, nanos([0, 1, 2]), intended, intended)
    assert analyse(RunData(directory)).missed_seconds == 1  # event 2 is rejected in second 1
    write_delivery(directory, nanos([0, 1]), intended[:2], intended[:2])
    assert analyse(RunData(directory)).missed_seconds == 0  # neither was acknowledged


def test_an_event_that_is_lost_misses_no_second_before_its_own(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    intended = START_NS + nanos([1, 1]) * SECOND
    write_delivery(directory, nanos([2, 3]), intended, intended)
    write_ledger(directory, nanos([]))
    write_results(directory, nanos([99]), *[intended[:1]] * 4)  # of no event of this run
    summary = analyse(RunData(directory))
    assert (summary.missed_seconds, summary.conservation.lost, summary.completed_events) == (1, 2, 0)


def test_in_virtual_time_there_is_no_sender_and_the_ledger_has_what_completed(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    directory.write(directory.spec_file, msgspec.structs.replace(directory.spec(), world="sim"))
    directory.delivery_file.unlink()
    directory.ledger_file.unlink()
    summary = analyse(RunData(directory))
    assert (summary.verdict, summary.issued_share, summary.send_delay) == ("VALID", 1.0, Distribution())
    assert (summary.acknowledged_events, summary.conservation.booked) == (4, 4)


def test_the_stages_in_which_events_end_are_named_together(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    file = directory.results_folder / "part-0.parquet"
    table = pq.read_table(file)
    stages = pa.array(["b", "a", "b", "a"])
    pq.write_table(table.set_column(table.schema.get_field_index("stage"), "stage", stages), file)
    analyse(RunData(directory))
    assert set(pq.read_table(directory.latency_file)["stage"].to_pylist()) == {"a+b"}


@pytest.mark.parametrize(("needed", "minutes"), [([2, 1, 3], 0.1), ([], None)])
def test_needed_replica_minutes_are_unknown_without_a_second(
    tmp_path: Path, needed: list[int], minutes: float | None
) -> None:
    run = RunData(small_run(tmp_path / "run", QUIET))
    run.needed_replicas = np.asarray(needed, dtype=np.int64)
    assert analyse(run).needed_replica_minutes == minutes


def test_the_histogram_is_written_once_and_holds_every_completed_event(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    analyse(RunData(directory))
    table = pq.read_table(directory.latency_file)
    assert table["bucket"].to_pylist() == bucket_of([0.010, 0.020, 0.030, 0.600]).tolist()
    assert table["count"].to_pylist() == [1, 1, 1, 1]
    written = directory.latency_file.stat().st_mtime_ns
    analyse(RunData(directory))
    assert directory.latency_file.stat().st_mtime_ns == written


def test_the_summary_is_read_back_as_written_and_made_anew_where_it_cannot_be_read(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    with_manifest(directory, sums=False)
    summary = analyse(RunData(directory))
    assert summary_of(RunData(directory)) == summary
    directory.summary_file.write_text('{"from": "an older version"}')
    assert summary_of(RunData(directory)) == summary
    assert msgspec.json.decode(directory.summary_file.read_bytes(), type=RunSummary) == summary


@pytest.mark.parametrize("file", ["delivery.parquet", "ledger.parquet", "decisions.jsonl", "results/part-0.parquet"])
def test_an_incomplete_directory_ends_in_one_line_that_names_what_is_missing(tmp_path: Path, file: str) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    (directory.path / file).unlink()
    with pytest.raises(PenstockError, match=r"incomplete run directory, missing") as caught:
        analyse(RunData(directory))
    assert file.split("/")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_never_started_says_so(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    directory.write(directory.spec_file, msgspec.structs.replace(directory.spec(), start_ns=0))
    with pytest.raises(PenstockError, match="never started"):
        analyse(RunData(directory))


# --- found by mutants (docs/decisions/0020) --------------------------------------------------------------------------


def no_results(directory: RunDirectory) -> None:
    pq.write_table(RESULT_SCHEMA.empty_table(), directory.results_folder / "part-0.parquet")
    write_ledger(directory, nanos([]))


def test_a_run_without_any_result_has_lost_all_and_has_no_foreign_one(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    no_results(directory)
    summary = analyse(RunData(directory))
    assert (summary.verdict, summary.conservation.lost, summary.conservation.foreign) == ("INVALID", 4, 0)
    assert summary.slo_share == 0


def test_a_schedule_without_events_is_issued_whole_and_has_no_share(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    no_results(directory)
    Schedule(nanos([]), np.zeros(0, dtype=np.int16), 2.0).write(directory.schedule_file)
    write_delivery(directory, *[nanos([])] * 3)
    summary = analyse(RunData(directory))
    assert (summary.issued_share, summary.slo_share, summary.arrival_rate_peak_per_s) == (1.0, None, 0.0)
    assert summary.conservation.exact and summary.reasons == ("no event completed",)


@pytest.mark.parametrize(
    ("late", "periods", "longest_s"),
    [([], 0, 0.0), ([3], 1, 0.0), ([0, 1, 2], 1, 2.0), ([0, 2, 3], 2, 2.0), ([0, 1, 3], 2, 1.0)],
)
def test_the_longest_recovery_is_the_longest_time_in_which_events_came_late(
    tmp_path: Path, late: list[int], periods: int, longest_s: float
) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    directory.write(directory.spec_file, msgspec.structs.replace(directory.spec(), duration_s=10.0))
    offsets = nanos([2, 3, 4, 8]) * SECOND
    Schedule(offsets, np.zeros(4, dtype=np.int16), 10.0).write(directory.schedule_file)
    intended, waited = START_NS + offsets, nanos([10] * 4)
    waited[late] = 600
    write_delivery(directory, np.arange(4), intended, intended)
    write_results(directory, np.arange(4), intended, intended, intended, intended + waited * MS)
    summary = analyse(RunData(directory))
    assert (summary.late_periods, summary.longest_recovery_s) == (periods, longest_s)


def test_only_what_did_not_complete_is_unanswered(tmp_path: Path) -> None:
    run = RunData(small_run(tmp_path / "run", QUIET))
    assert events_of(run, run.schedule(), 0).unanswered.shape == (2, 0)
    write_results(run.directory, nanos([0, 2]), *[START_NS + nanos([0, SECOND])] * 4)
    assert events_of(run, run.schedule(), 0).unanswered.tolist() == [[START_NS, START_NS + SECOND], [NEVER, NEVER]]


def test_a_failure_without_a_reason_says_so(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    file = directory.results_folder / "part-0.parquet"
    table = pq.read_table(file)
    for name, values in (("outcome", ["completed", "completed", "failed", "failed"]), ("reason", ["", "", "", "full"])):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(table, file)
    assert analyse(RunData(directory)).unsuccessful_by_reason == {"failed: no reason given": 1, "failed: full": 1}


def test_a_latency_of_zero_is_not_negative(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    intended = START_NS + nanos([0, 0, SECOND, SECOND])
    finished = intended + nanos([0, -1, 1, 0])
    write_results(directory, np.arange(4), intended, intended, intended, finished)
    assert analyse(RunData(directory)).negative_latencies == 1


@pytest.mark.parametrize(("events", "slowest"), [(1, 1), (100, 1), (101, 2), (300, 3)])
def test_the_slowest_are_one_in_a_hundred_and_at_least_one(events: int, slowest: int) -> None:
    chosen = _slowest(np.arange(events, dtype=np.float64)[::-1])
    assert np.flatnonzero(chosen).tolist() == list(range(slowest))


def test_conditions_have_dotted_names_and_long_series_their_length(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    series = {"short": [1] * 24, "long": [1] * 25}
    scaler = ScalerSpec(name="linear", parameters=series)
    directory.write(directory.spec_file, msgspec.structs.replace(directory.spec(), scaler=scaler))
    conditions = analyse(RunData(directory)).conditions
    assert (conditions["scaler.name"], conditions["duration_s"]) == ("linear", 2.0)
    assert conditions["scaler.parameters.short"] == [1] * 24
    assert conditions["scaler.parameters.long"] == "25 values"
    assert not {"run", "seed", "start_ns", "shadows", "scaler"} & conditions.keys()


def test_the_machine_is_judged_by_samples_of_the_run_only(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    file = directory.metrics_folder / "machine.parquet"
    pq.write_table(pa.table({"at_ns": START_NS + nanos([0, 2, 3]) * SECOND, "cpu_busy_share": [1.0, 0.0, 1.0]}), file)
    assert analyse(RunData(directory)).cpu_saturation == 0.0
    pq.write_table(pa.table({"at_ns": START_NS + nanos([0, 3]) * SECOND, "cpu_busy_share": [1.0, 1.0]}), file)
    assert analyse(RunData(directory)).cpu_saturation is None


@pytest.mark.parametrize("rows", [0, 1])
def test_a_histogram_without_rows_is_written_again_and_any_other_kept(tmp_path: Path, rows: int) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    table = {"stage": ["x"] * rows, "bucket": [1] * rows, "upper_s": [1.0] * rows, "count": [1] * rows}
    pq.write_table(pa.table(table), directory.latency_file)
    analyse(RunData(directory))
    assert pq.read_metadata(directory.latency_file).num_rows == (1 if rows else 4)


def with_manifest(directory: RunDirectory, *, sums: bool) -> None:
    manifest = Manifest(
        run="run", finished_at="", git_revision="", versions={}, machine={}, verdict="VALID", cpu_saturation=0.0,
        tick_phase_p50_s=0.1, tick_phase_p99_s=0.1, files=directory.file_sums() if sums else None,
    )  # fmt: skip
    directory.write(directory.manifest_file, manifest)


def test_the_files_of_a_finished_run_are_checked_before_its_summary_is_believed(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    analyse(RunData(directory))
    with_manifest(directory, sums=True)
    summary_of(RunData(directory))
    write_ledger(directory, nanos([0, 1, 2]))
    with pytest.raises(ChangedRunError):
        summary_of(RunData(directory))


def test_a_summary_that_is_made_anew_is_noted_in_the_manifest(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    directory.summary_file.write_text('{"from": "an older version"}')
    with_manifest(directory, sums=True)
    summary = summary_of(RunData(directory))
    assert summary_of(RunData(directory)) == summary
    assert directory.manifest().files == directory.file_sums()


def test_a_run_without_a_manifest_is_invalid_whatever_it_measured(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    measured = analyse(RunData(directory))
    found = summary_of(RunData(directory))
    assert found.verdict == "INVALID"
    assert found.reasons == (UNFINISHED, *measured.reasons)
    with_manifest(directory, sums=True)
    assert summary_of(RunData(directory)) == measured


@pytest.mark.parametrize("manifest", [True, False])
def test_a_run_without_checksums_gets_none(tmp_path: Path, manifest: bool) -> None:
    directory = small_run(tmp_path / "run", QUIET)
    if manifest:
        with_manifest(directory, sums=False)
    summary_of(RunData(directory))
    assert directory.manifest_file.exists() == manifest
    assert not manifest or directory.manifest().files is None
