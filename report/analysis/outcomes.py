"""The balance of a run's events, from delivery reports, ledger and results."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import (
    NEVER,
    NO_IDS,
    Bools,
    Completions,
    Conservation,
    Floats,
    Ints,
    conservation,
    missed_seconds,
)
from penstock.schedule import Schedule
from report.analysis.run_data import RunData, completions_among, ints


@dataclass(frozen=True, slots=True, eq=False)
class RunEvents:
    """The balance of a run. ``issued`` counts distinct ids the sender tried, ``stage`` is where events end.
    ``missed_seconds``: for each second of the run whether it missed the SLO. ``unanswered``: (intended, ended) of the
    acknowledged events that did not complete, ns, shape (2, events); ``NEVER`` ended without any result.
    """

    stage: str
    completed: Completions
    missed_seconds: Bools
    balance: Conservation
    issued: int
    send_delay_s: Floats
    unsuccessful_by_reason: dict[str, int]
    unanswered: Ints


def events_of(run: RunData, schedule: Schedule, in_flight: int) -> RunEvents:
    """The balance of a run's events. ``in_flight``: events that were still waiting when the run was given up."""
    scheduled = len(schedule)
    results = run.results()
    known = run.outcomes_among(results)
    outcomes = {
        outcome: ints(known["id"].filter(pc.equal(known["outcome"], outcome)))
        for outcome in pc.unique(known["outcome"]).to_pylist()
    }
    if run.spec.world == "sim":  # every event is there when it was intended, and a ledger has what completed
        acknowledged, issued, send_delay_s = np.arange(scheduled), scheduled, np.array([])
        booked = outcomes.get("completed", NO_IDS)
    else:
        delivery, booked = run.deliveries(), run.booked()
        no_error = pc.equal(pc.fill_null(delivery["error"], ""), "")
        acknowledged = ints(delivery.filter(pc.and_(pc.is_valid(delivery["acked_ns"]), no_error))["id"])
        sent = delivery.filter(pc.is_valid(delivery["sent_ns"]))
        issued = int(pc.count_distinct(sent["id"]).as_py())
        send_delay_s = (ints(sent["sent_ns"]) - ints(sent["intended_ns"])) / NANOS_PER_SECOND
    terminal = int(pc.sum(results["terminal"]).as_py() or 0)
    balance = conservation(
        scheduled=scheduled,
        acknowledged=acknowledged,
        booked=booked,
        results=outcomes,
        result_rows=known.num_rows,
        foreign=terminal - known.num_rows,
        in_flight=in_flight,
    )
    completed = completions_among(known)
    unanswered = _unanswered(run, schedule, known, acknowledged, completed)
    return RunEvents(
        stage="+".join(sorted(pc.unique(known["stage"]).to_pylist())),
        completed=completed,
        missed_seconds=missed_seconds(
            completed,
            unanswered,
            slo_s=run.spec.slo_s,
            start_ns=run.spec.start_ns,
            duration_s=run.spec.duration_s,
        ),
        balance=balance,
        issued=issued,
        send_delay_s=send_delay_s,
        unsuccessful_by_reason=_unsuccessful(results),
        unanswered=unanswered,
    )


def _unanswered(run: RunData, schedule: Schedule, known: pa.Table, acknowledged: Ints, completed: Completions) -> Ints:
    """(intended, ended) of the acknowledged events that did not complete, ns; ``NEVER`` ended without any result."""
    ended_ns = np.full(len(schedule), NEVER)
    ended_ns[ints(known["id"])] = ints(known["finished_ns"])
    missing = np.zeros(len(schedule), dtype=bool)
    missing[acknowledged] = True
    missing[completed.event_id] = False
    event_id = np.flatnonzero(missing)
    return np.stack([run.spec.start_ns + schedule.intended_offset_ns[event_id], ended_ns[event_id]])


def _unsuccessful(results: pa.Table) -> dict[str, int]:
    """Terminal results that are no completions, by "outcome: reason"; those of no scheduled event are among them."""
    others = results.filter(pc.and_(results["terminal"], pc.not_equal(results["outcome"], "completed")))
    counts = Counter(
        f"{outcome}: {reason or 'no reason given'}"
        for outcome, reason in zip(others["outcome"].to_pylist(), others["reason"].to_pylist(), strict=True)
    )
    return dict(counts.most_common())
