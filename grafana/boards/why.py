"""Why did it scale, or why did it not: the acting scaler's arithmetic beside what the shadows would have done."""

from typing import Any

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard, DynamicConfigValue

from grafana.panels import (
    EVENTS,
    EVENTS_PER_S,
    GREEN,
    NUMBER,
    REPLICAS,
    SECONDS,
    YELLOW,
    Query,
    lines,
    make_board,
    newest_values,
    states,
    term_variable,
)
from grafana.promql import FLEET, RUN, WINDOW, current_replicas, newest
from penstock import metrics
from penstock.metrics import FLEET_BACKLOG, SCALER_ACTING, SCALER_CLAMPED, SCALER_TERM

DRAWN_TERMS = f'{FLEET}, term=~"$term"'

UNIT_BY_ENDING = ((r"/_per_s$/", EVENTS_PER_S), (r"/(?<!_per)_s$/", SECONDS))
"""Terms carry their unit in their name."""


def wanted_by(acting: bool) -> str:
    """Replicas that a scaler last asked for: the acting one's, or the shadows'."""
    role = f"{newest(SCALER_ACTING, 'scaler', where=RUN)} == {int(acting)}"
    return f"{newest(metrics.REPLICAS_DESIRED, 'fleet', 'scaler')} and on (scaler) ({role})"


def terms() -> timeseries.Panel:
    """Each in the unit that its name ends in."""
    panel = lines(
        "Terms of the acting scaler",
        NUMBER,
        "The numbers in its newest decision under the paper's names, each in the unit its name ends in; a gap is a "
        "tick at which it held. `penstock explain RUN --at SECOND` prints the same decision with its lists and words.",
        Query(newest(SCALER_TERM, "fleet", "term", where=DRAWN_TERMS), "{{fleet}} {{term}}"),
        width=24,
        steps=True,
    )
    for ending, unit in UNIT_BY_ENDING:
        value: Any = unit
        panel = panel.override_by_regexp(ending, [DynamicConfigValue(id_val="unit", value=value)])
    return panel


def board() -> Dashboard:
    """Opinions first, then the arithmetic, then what kept it from acting."""
    return make_board(
        "why",
        "why did it scale",
        "What each scaler wanted, the arithmetic of the one that acts, and why it held. Shadows advise on the system "
        "as it is; they are not what would have happened under them.",
        (
            "Opinions",
            (
                lines(
                    "What each scaler wants",
                    REPLICAS,
                    "The acting scaler is carried out; a shadow's line is its advice on the same observation. Where "
                    "they part, the terms below say why the acting one did not follow.",
                    Query(wanted_by(acting=True), "{{fleet}}: {{scaler}} (acts)"),
                    Query(wanted_by(acting=False), "{{fleet}}: {{scaler}} (shadow)"),
                    Query(current_replicas(), "{{fleet}}: replicas there are"),
                    steps=True,
                ),
                lines(
                    "Decisions that change something",
                    NUMBER,
                    "Decisions to scale or reassign within the window, acting scaler and shadows. A shadow goes on "
                    "asking as long as nobody follows it; an acting scaler that does so is not being carried out.",
                    Query(
                        f"sum by (scaler, action) (increase({metrics.SCALE_ACTIONS}"
                        f'{{{RUN}, action=~"up|down|reassign"}}[{WINDOW}]))',
                        "{{scaler}} {{action}}",
                    ),
                ),
            ),
        ),
        ("Arithmetic", (terms(),)),
        (
            "What it saw and what held it back",
            (
                newest_values(
                    "Newest terms",
                    NUMBER,
                    "The same numbers now, one row a term: read a term's unit from the ending of its name.",
                    Query(newest(SCALER_TERM, "fleet", "scaler", "term", where=DRAWN_TERMS), "{{term}}"),
                ),
                states(
                    "Holding",
                    "Yellow while a scaler leaves everything as it is: `scaler` by its own choice (a hold time), "
                    "`unknown` because it could not read something, `error` because something failed.",
                    Query(newest(metrics.HOLDING, "scaler", "cause", where=RUN), "{{scaler}}: {{cause}}"),
                    (0, "decides", GREEN),
                    (1, "holds", YELLOW),
                ),
                lines(
                    "Lag that it saw",
                    EVENTS,
                    "What each decision was made on. A step of the replicas that comes late shows here as a hill.",
                    Query(newest(FLEET_BACKLOG, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Cut by the cap",
                    NUMBER,
                    "1 at ticks whose target the actuator had to cut to what it may grant: the scaler wanted more "
                    "than the run allows.",
                    Query(newest(SCALER_CLAMPED, "fleet"), "{{fleet}}"),
                    steps=True,
                ),
            ),
        ),
        variables=(term_variable(),),
    )
