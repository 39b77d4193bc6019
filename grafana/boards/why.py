"""Why did it scale, or why did it not: the acting scaler's arithmetic beside what the shadows would have done."""

from typing import Any

from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

from grafana.panels import (
    EVENTS,
    EVENTS_PER_S,
    GREEN,
    NUMBER,
    REPLICAS,
    SECONDS,
    YELLOW,
    changes,
    lines,
    make_board,
    newest_values,
    states,
)
from grafana.promql import CURRENT_REPLICAS, FLEET, RUN, Query, increase, newest
from penstock import metrics

DRAWN_TERMS = f'{FLEET}, term=~"$term"'


def wanted_by(*, acting: bool) -> str:
    """Replicas that a scaler last asked for: the acting one's, or the shadows'."""
    role = f"{newest(metrics.SCALER_ACTING, 'scaler', where=RUN)} == {int(acting)}"
    return f"{newest(metrics.REPLICAS_DESIRED, 'fleet', 'scaler')} and on (scaler) ({role})"


terms = (
    lines(
        "Terms of the acting scaler",
        "short",
        newest(metrics.SCALER_TERM, "fleet", "term", where=DRAWN_TERMS),
        width=24,
        steps=True,
    )
    .repeat("fleet")
    .description(
        "The numbers in its newest decision under the paper's names, each in the unit its name ends in; a gap is a "
        "tick at which it held. `penstock explain RUN --at SECOND` prints the whole decision."
    )
)
for ending, unit in ((r"/_per_s$/", EVENTS_PER_S), (r"/(?<!_per)_s$/", SECONDS)):
    value: Any = unit
    terms = terms.override_by_regexp(ending, [DynamicConfigValue(id_val="unit", value=value)])

BOARD = make_board(
    "why",
    "why did it scale",
    "What each scaler wanted, the arithmetic of the one that acts, and why it held. Shadows advise on the system as it "
    "is; they are not what would have happened under them.",
    {
        "Opinions": [
            lines(
                "What each scaler wants",
                REPLICAS,
                Query(wanted_by(acting=True), "{{fleet}}: {{scaler}} (acts)"),
                Query(wanted_by(acting=False), "{{fleet}}: {{scaler}} (shadow)"),
                CURRENT_REPLICAS.named("{{fleet}}: replicas there are"),
                steps=True,
            ).description(
                "The acting scaler is carried out; a shadow's line is its advice on the same observation. Where they "
                "part, the terms below say why the acting one did not follow."
            ),
            changes(
                "Decisions that change something",
                increase(metrics.SCALE_ACTIONS, "scaler", "action", where=f'{RUN}, action=~"up|down|reassign"'),
            ).description(
                "Decisions to scale or reassign since the point before, acting scaler and shadows. A shadow repeats "
                "its decision; an acting scaler repeats one only if it is not executed."
            ),
        ],
        "Arithmetic": [terms],
        "What it saw and what held it back": [
            newest_values(
                "Newest terms",
                NUMBER,
                newest(metrics.SCALER_TERM, "fleet", "scaler", "term", where=DRAWN_TERMS).named("{{term}}"),
            ).description(
                "The same numbers at the newest decision, one row a term: a term's unit is the ending of its name."
            ),
            states(
                "Holding",
                newest(metrics.HOLDING, "scaler", "cause", where=RUN).named("{{scaler}}: {{cause}}"),
                (0, "decides", GREEN),
                (1, "holds", YELLOW),
            ).description(
                "Yellow while a scaler leaves everything as it is: `scaler` by its own choice (a hold time), `unknown` "
                "because it could not read something, `error` because something failed."
            ),
            states(
                "Decision and its reason",
                newest(metrics.SCALER_DECISION, "fleet", "decision").named("{{fleet}}: {{decision}}"),
                (1, "decided", YELLOW),
            ).description(
                "What the acting scaler decided at each tick and the reason it gave; a reason that has not been "
                "followed by another one is still in force."
            ),
            lines("Lag that it saw", EVENTS, newest(metrics.FLEET_BACKLOG, "fleet")).description(
                "What each decision was made on. A step of the replicas that comes late shows here as a hill."
            ),
            states(
                "Cut by the cap", newest(metrics.SCALER_CLAMPED, "fleet"), (0, "granted", GREEN), (1, "cut", YELLOW)
            ).description(
                "Yellow at ticks whose target the actuator had to cut to what it may grant: the scaler wanted more "
                "than the run allows."
            ),
        ],
    },
    choices={"term": (metrics.SCALER_TERM, f"{{{FLEET}}}")},
)
