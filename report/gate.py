"""``verdict.json``: verdicts for scripts, and the exit code that they lead to."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import EXIT_INVALID, EXIT_MISSED
from report.analysis.summary import RunSummary
from report.wording import share

FIELDS = ("run", "experiment", "world", "scaler", "seed", "verdict", "reasons", "slo_s", "slo_share", "missed_seconds",
          "replica_minutes")  # fmt: skip


class Gate(msgspec.Struct, frozen=True):
    """``failures`` says in words why ``exit_code`` is not 0: an INVALID run, or one below ``fail_under``. ``runs`` has
    ``FIELDS`` of each summary.
    """

    exit_code: int
    fail_under: float | None
    failures: tuple[str, ...]
    runs: tuple[dict[str, Any], ...]


def gate(summaries: Sequence[RunSummary], fail_under: float | None) -> Gate:
    """Verdicts of these runs. ``fail_under``: least share of events within the SLO of each of them."""
    invalid = [f"{each.run}: INVALID: {'; '.join(each.reasons)}" for each in summaries if each.verdict == "INVALID"]
    missed = [
        f"{each.run}: {share(each.slo_share)} of events within the SLO, less than {share(fail_under)} (--fail-under)"
        for each in summaries
        if fail_under is not None and (each.slo_share or 0.0) < fail_under
    ]
    code = EXIT_INVALID if invalid else EXIT_MISSED if missed else 0
    runs = tuple({name: getattr(each, name) for name in FIELDS} for each in summaries)
    return Gate(code, fail_under, (*invalid, *missed), runs)
