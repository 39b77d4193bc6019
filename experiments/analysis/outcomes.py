"""What became of a run's events, by what sender, ledger and results say."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.measures import Completions, Conservation, Floats, Ints, completions, conservation
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec

RESULT_TIMES = ["intended_ns", "sent_ns", "started_ns", "finished_ns"]
RESULT_NAMES = ["run", "stage", "outcome", "reason"]
"""Few different texts in many rows: read as a dictionary, in a third of the time."""
RESULT_COLUMNS = ["id", "run", "stage", "outcome", "terminal", "reason", *RESULT_TIMES]


@dataclass(frozen=True, slots=True, eq=False)
class RunEvents:
    """What became of a run's events. ``issued`` counts distinct ids the sender tried, ``stage`` is where they end."""

    stage: str
    completed: Completions
    balance: Conservation
    issued: int
    send_delay_s: Floats
    unsuccessful_by_reason: dict[str, int]


def events_of(directory: RunDirectory, spec: RunSpec, in_flight: int) -> RunEvents:
    """All of it. ``in_flight``: events that were still waiting when the run was given up."""
    scheduled = pq.read_metadata(directory.schedule_file).num_rows
    results = _read_results(directory)
    known = _known_results(results, spec, scheduled)
    outcomes = {
        outcome: ints(known["id"].filter(pc.equal(known["outcome"], outcome)))
        for outcome in pc.unique(known["outcome"]).to_pylist()
    }
    sending = _sending(directory) if spec.world != "sim" else _nobody_sends(scheduled, outcomes)
    terminal = int(pc.sum(results["terminal"]).as_py() or 0)
    balance = conservation(
        scheduled=scheduled,
        acknowledged=sending.acknowledged,
        booked=sending.booked,
        results=outcomes,
        result_rows=known.num_rows,
        foreign=terminal - known.num_rows,
        in_flight=in_flight,
    )
    return RunEvents(
        stage="+".join(sorted(pc.unique(known["stage"]).to_pylist())),
        completed=_completed(known),
        balance=balance,
        issued=sending.issued,
        send_delay_s=sending.delay_s,
        unsuccessful_by_reason=_unsuccessful(results),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """What sender and ledger say: ids, the number of ids that the sender tried, and its delays."""

    acknowledged: Ints
    booked: Ints
    issued: int
    delay_s: Floats


def _sending(directory: RunDirectory) -> Sending:
    delivery = pq.read_table(directory.delivery_file, columns=["id", "intended_ns", "sent_ns", "acked_ns", "error"])
    sent = delivery.filter(pc.is_valid(delivery["sent_ns"]))
    return Sending(
        acknowledged=_acknowledged(delivery),
        booked=ints(pq.read_table(directory.ledger_file, columns=["id"])["id"]),
        issued=int(pc.count_distinct(sent["id"]).as_py()),
        delay_s=(ints(sent["sent_ns"]) - ints(sent["intended_ns"])) / NANOS_PER_SECOND,
    )


def _nobody_sends(scheduled: int, outcomes: Mapping[str, Ints]) -> Sending:
    """In virtual time every event is there when it was intended, and a ledger has what completed."""
    nothing = np.empty(0, dtype=np.int64)
    return Sending(np.arange(scheduled), outcomes.get("completed", nothing), scheduled, nothing / NANOS_PER_SECOND)


def read_completions(directory: RunDirectory) -> Completions:
    """Earliest terminal result of each completed event of a run, from the raw results."""
    return _completed(read_outcomes(directory))


def read_outcomes(directory: RunDirectory, *more: str) -> pa.Table:
    """Terminal results of a run's scheduled events, ``RESULT_COLUMNS`` and ``more`` of each; of a redelivered event
    there are several.
    """
    scheduled = pq.read_metadata(directory.schedule_file).num_rows
    return _known_results(_read_results(directory, *more), directory.spec(), scheduled)


def _read_results(directory: RunDirectory, *more: str) -> pa.Table:
    files = sorted(directory.results_folder.glob("*.parquet"))
    if not files:
        raise PenstockError(f"{directory.path}: incomplete run directory, missing results/*.parquet; run it again")
    columns = [*RESULT_COLUMNS, *more]
    parts = [pq.read_table(file, columns=columns, read_dictionary=RESULT_NAMES) for file in files]
    return pa.concat_tables(parts).unify_dictionaries()


def _known_results(results: pa.Table, spec: RunSpec, scheduled: int) -> pa.Table:
    """Terminal results of scheduled events of this run."""
    ids = results["id"]
    inside = pc.fill_null(pc.and_(pc.greater_equal(ids, 0), pc.less(ids, scheduled)), False)
    return results.filter(pc.and_(inside, pc.and_(pc.equal(results["run"], spec.run), results["terminal"])))


def _completed(known: pa.Table) -> Completions:
    rows = known.filter(pc.equal(known["outcome"], "completed"))
    return completions(
        event_id=ints(rows["id"]),
        intended_ns=ints(rows["intended_ns"]),
        sent_ns=ints(rows["sent_ns"]),
        started_ns=ints(rows["started_ns"]),
        finished_ns=ints(rows["finished_ns"]),
    )


def _acknowledged(delivery: pa.Table) -> Ints:
    """Ids that the broker acknowledged."""
    no_error = pc.equal(pc.fill_null(delivery["error"], ""), "")
    return ints(delivery.filter(pc.and_(pc.is_valid(delivery["acked_ns"]), no_error))["id"])


def _unsuccessful(results: pa.Table) -> dict[str, int]:
    """Terminal results that are no completions, by "outcome: reason"; those of no scheduled event are among them."""
    others = results.filter(pc.and_(results["terminal"], pc.not_equal(results["outcome"], "completed")))
    counts = Counter(
        f"{outcome}: {reason or 'no reason given'}"
        for outcome, reason in zip(others["outcome"].to_pylist(), others["reason"].to_pylist(), strict=True)
    )
    return dict(counts.most_common())


def ints(column: pa.ChunkedArray) -> Ints:
    """A column without nulls as numbers."""
    return np.asarray(column.to_numpy(), dtype=np.int64)
