"""Panels and boards in one look: what every panel must have (a unit, a sentence that says how to read it) it is asked
for here, so that none can be made without.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.promql import FLEET, RUN, newest
from penstock import metrics
from penstock.metrics import SCALER_LAST_ACTION, SCALER_TERM

DATASOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="penstock-prometheus")
"""As ``provisioning/datasources`` calls it."""

EVENTS: Final = "suffix: events"
EVENTS_PER_S: Final = "suffix: events/s"
REPLICAS: Final = "suffix: replicas"
CORES: Final = "suffix: cores"
SECONDS: Final = "s"
SHARE: Final = "percentunit"
BYTES: Final = "bytes"
NUMBER: Final = "none"
"""Units, as Grafana names them."""

WIDTH: Final = 24
"""Columns of Grafana's grid."""

GREEN, YELLOW, RED = "green", "yellow", "red"

Panel = Builder[models.Panel]


class Query(NamedTuple):
    """One query of a panel; ``legend`` is a template over the labels of its series."""

    expr: str
    legend: str


# --- panels ----------------------------------------------------------------------------------------------------------


def lines(
    title: str, unit: str, description: str, *queries: Query, width: int = WIDTH // 2, steps: bool = False
) -> timeseries.Panel:
    """Lines over time, from zero up. ``steps``: for what is a whole number and changes at an instant."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .axis_soft_min(0)
        .height(8)
        .span(width)
        .fill_opacity(0 if steps else 8)
        .line_interpolation(
            common_models.LineInterpolation.STEP_AFTER if steps else common_models.LineInterpolation.LINEAR
        )
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    for number, query in enumerate(queries):
        panel = panel.with_target(_target(query, number).range())
    return panel


def number(
    title: str,
    unit: str,
    description: str,
    query: Query,
    *thresholds: tuple[float | None, str],
    width: int = WIDTH // 6,
) -> stat.Panel:
    """The newest value, large. ``thresholds``: (from this value on, colour), the first from None."""
    steps = [models.Threshold(value=value, color=color) for value, color in thresholds or ((None, "text"),)]
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .height(4)
        .span(width)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(_target(query, 0).range())
    )


def states(
    title: str, description: str, query: Query, *named: tuple[int, str, str], width: int = WIDTH // 2
) -> statetimeline.Panel:
    """A band a series, in the colour of its value. ``named``: (value, how it is called, colour)."""
    mapping = models.ValueMap(
        options={
            str(value): models.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, text, color) in enumerate(named)
        }
    )
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(NUMBER)
        .height(8)
        .span(width)
        .mappings([mapping])
        .show_value(common_models.VisibilityMode.NEVER)
        .merge_values(True)
        .legend(_legend())
        .with_target(_target(query, 0).range())
    )


def newest_values(title: str, unit: str, description: str, query: Query, width: int = WIDTH // 2) -> table.Panel:
    """A table of the newest values, a row a series and a column a label."""
    return (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .height(10)
        .span(width)
        .show_header(True)
        .with_target(_target(query, 0).instant().format(PromQueryFormat.TABLE))
        .with_transformation(models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}}))
    )


def _target(query: Query, number: int) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )


# --- boards ----------------------------------------------------------------------------------------------------------


def make_board(
    name: str,
    title: str,
    description: str,
    *rows: tuple[str, Sequence[Panel]],
    variables: Sequence[dashboard.QueryVariable] = (),
) -> models.Dashboard:
    """A board with the variables run and fleet, the acting scaler's actions as annotations and links to the others.

    ``rows``: (title, panels from left to right). ``variables``: those of this board alone.
    """
    board = (
        dashboard.Dashboard(f"Penstock: {title}")
        .uid(f"penstock-{name}")
        .description(description)
        .tags(["penstock"])
        .timezone("browser")
        .time("now-10m", "now")
        .refresh("5s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(_variable("run", metrics.TICKS, "").label("Run").sort(models.VariableSort.ALPHABETICAL_DESC))
        .with_variable(_choice("fleet", metrics.REPLICAS, '{run="$run"}').label("Fleet"))
        .annotation(ActionAnnotations())
        .link(
            dashboard.DashboardLink("Penstock")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["penstock"])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in variables:
        board = board.with_variable(variable)
    for title_of_row, panels in rows:
        board = board.with_row(dashboard.Row(title_of_row))
        for panel in panels:
            board = board.with_panel(panel)
    made = board.build()
    for number, panel_made in enumerate(made.panels or (), start=1):
        panel_made.id_val = number
    return made


def term_variable() -> dashboard.QueryVariable:
    """Which terms of the acting scaler's arithmetic are drawn."""
    return _choice("term", SCALER_TERM, f"{{{FLEET}}}").label("Term")


def _variable(label: str, metric: str, matchers: str) -> dashboard.QueryVariable:
    """The values that a label has; looked up again when the time range changes."""
    return (
        dashboard.QueryVariable(label)
        .datasource(DATASOURCE)
        .query(f"label_values({metric}{matchers}, {label})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _choice(label: str, metric: str, matchers: str) -> dashboard.QueryVariable:
    """Several of the values, or all of them, which is what one begins with."""
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return (
        _variable(label, metric, matchers)
        .multi(True)
        .include_all(True)
        .current(everything)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


class ActionAnnotations(dashboard.AnnotationQuery):
    """A mark at each action of the acting scaler. The series' value is the time at which it acted, in ms."""

    def build(self) -> models.AnnotationQuery:
        """With the fields of Prometheus' annotations, which the library's model does not have."""
        made = _PrometheusAnnotation(name="Scale actions", datasource=DATASOURCE, enable=True, icon_color="blue")
        made.expr = f"1000 * {newest(SCALER_LAST_ACTION, 'scaler', 'action', where=RUN)}"
        return made


class _PrometheusAnnotation(models.AnnotationQuery):
    def to_json(self) -> dict[str, object]:
        return {
            **super().to_json(),
            "step": "1s",
            "titleFormat": "{{scaler}}: {{action}}",
            "tagKeys": "action",
            "useValueForTime": True,
        }
