"""Is the SLO kept, at how many replicas, and if not, where do events wait?"""

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import (
    EVENTS,
    EVENTS_PER_S,
    GREEN,
    NUMBER,
    RED,
    REPLICAS,
    SECONDS,
    SHARE,
    YELLOW,
    Query,
    lines,
    make_board,
    number,
)
from grafana.promql import FLEET, RUN, current_replicas, newest, per_second
from penstock import metrics
from penstock.metrics import FLEET_ARRIVED, FLEET_BACKLOG, FLEET_COMPLETED, REPLICAS_MAX, SLO, UNKNOWN_FIELDS

WHOLE_RUN = f'{RUN}, scope="run"'
NEWEST_SECOND = f'{RUN}, scope="second"'


def stage_latency(quantile: str) -> str:
    """Of the newest complete second."""
    return newest(metrics.STAGE_LATENCY, "stage", where=f'{NEWEST_SECOND}, quantile="{quantile}"')


def board() -> Dashboard:
    """Made for a screen on the wall: one row of numbers, then what they come from."""
    slo = Query(newest(SLO, "fleet"), "SLO")
    return make_board(
        "overview",
        "overview",
        "Whether a run keeps its SLO, at how many replicas, and where events wait if it does not.",
        (
            "At a glance",
            (
                number(
                    "Within the SLO, whole run",
                    SHARE,
                    "Share of all events completed so far that kept the SLO. This is the figure of the run's report; "
                    "95 % and more is green.",
                    Query(newest(metrics.STAGE_SLO_SHARE, "stage", where=WHOLE_RUN), "{{stage}}"),
                    (None, RED),
                    (0.9, YELLOW),
                    (0.95, GREEN),
                ),
                number(
                    "p99, newest second",
                    SECONDS,
                    "Of the events that finished within the newest complete second, 99 % took at most this long from "
                    "the time at which they were meant to be sent. Compare it with the SLO.",
                    Query(stage_latency("0.99"), "{{stage}}"),
                ),
                number(
                    "SLO",
                    SECONDS,
                    "The latency that the run is to keep, from intended send time to the result.",
                    slo,
                ),
                number(
                    "Replicas",
                    REPLICAS,
                    "Those that exist or were asked for, without those on their way out: what the run pays for.",
                    Query(current_replicas(), "{{fleet}}"),
                ),
                number(
                    "Lag now",
                    EVENTS,
                    "Events that have arrived and have not been completed. What matters is whether it grows.",
                    Query(newest(FLEET_BACKLOG, "fleet"), "{{fleet}}"),
                ),
                number(
                    "Alerts",
                    NUMBER,
                    "Alert rules that fire for this run now; 0 is green. Prometheus' page Alerts says which.",
                    Query(f'count(ALERTS{{{RUN}, alertstate="firing"}}) or vector(0)', "firing"),
                    (None, GREEN),
                    (1, RED),
                ),
            ),
        ),
        (
            "Load and latency",
            (
                lines(
                    "Arrivals and completions",
                    EVENTS_PER_S,
                    "Where completions run below arrivals, lag grows by the difference.",
                    Query(per_second(FLEET_ARRIVED, "fleet"), "{{fleet}} arrive"),
                    Query(per_second(FLEET_COMPLETED, "fleet"), "{{fleet}} complete"),
                ),
                lines(
                    "Latency by second",
                    SECONDS,
                    "Percentiles of each second's events, from intended send time; the SLO is the level to stay under. "
                    "A rising p50 means that all events wait, a rising p99 alone that few do.",
                    Query(stage_latency("0.5"), "{{stage}} p50"),
                    Query(stage_latency("0.95"), "{{stage}} p95"),
                    Query(stage_latency("0.99"), "{{stage}} p99"),
                    slo,
                ),
                lines(
                    "Within the SLO by second",
                    SHARE,
                    "Share of the events completed in each second that kept the SLO, and of the whole run so far. "
                    "Dips right after a mark are the price of a rebalance.",
                    Query(newest(metrics.STAGE_SLO_SHARE, "stage", where=NEWEST_SECOND), "{{stage}} by second"),
                    Query(newest(metrics.STAGE_SLO_SHARE, "stage", where=WHOLE_RUN), "{{stage}} whole run"),
                ),
                lines(
                    "Lag",
                    EVENTS,
                    "Events that wait, as the scalers saw it at each tick. Bursts make a saw; a slope is overload.",
                    Query(newest(FLEET_BACKLOG, "fleet"), "{{fleet}}"),
                ),
            ),
        ),
        (
            "Replicas",
            (
                lines(
                    "Replicas, wanted and allowed",
                    REPLICAS,
                    "Where what the acting scaler wants lies above what there is, replicas are starting; where it lies "
                    "above the cap, the fleet is as large as it may be.",
                    Query(current_replicas(), "{{fleet}}"),
                    Query(newest(metrics.REPLICAS_DESIRED, "fleet", "scaler"), "{{fleet}} wanted by {{scaler}}"),
                    Query(newest(REPLICAS_MAX, "fleet"), "{{fleet}} at most"),
                    steps=True,
                ),
                lines(
                    "Replicas by phase",
                    REPLICAS,
                    "Requested and started ones cost and do not serve yet; draining ones still serve and will go.",
                    Query(newest(metrics.REPLICAS, "fleet", "phase", where=FLEET), "{{fleet}} {{phase}}"),
                    steps=True,
                ),
                lines(
                    "Unknown fields",
                    NUMBER,
                    "Fields of the newest observation that could not be read. Above 0 scalers hold: nothing scales.",
                    Query(newest(UNKNOWN_FIELDS, "fleet"), "{{fleet}}"),
                    steps=True,
                ),
            ),
        ),
    )
