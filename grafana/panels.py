"""Builders of panels and boards in one style: every panel has a unit, and needs a ``description``."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from grafana.promql import RUN, Query, newest
from penstock import metrics

DATASOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The chosen one, so that the boards can be imported into any Grafana."""

EVENTS: Final = "suffix:events"
EVENTS_PER_S: Final = "suffix:events/s"
REPLICAS: Final = "suffix:replicas"
CORES: Final = "suffix:cores"
SECONDS: Final = "s"
SHARE: Final = "percentunit"
BYTES: Final = "bytes"
NUMBER: Final = "none"
"""Grafana's names of units."""

WIDTH: Final = 24
"""Columns of Grafana's grid."""

GREEN, YELLOW, RED = "green", "yellow", "red"

LIMITS: Final = r"/(SLO|at most|limit)$/"
"""Names of lines that are limits."""
NEWEST_RUN: Final = f"max by (run) (min_over_time(timestamp({metrics.TICKS})[$__range:5s]))"
"""When each run was first seen within the time range."""
NO_RUN: Final = "no run in this time range"

Panel = Builder[models.Panel]
P = TypeVar("P", timeseries.Panel, stat.Panel, statetimeline.Panel, table.Panel)


LIMIT_LINE: Final = {
    "color": {"mode": "fixed", "fixedColor": RED},
    "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
    "custom.fillOpacity": 0,
}

# --- panels ----------------------------------------------------------------------------------------------------------


def lines(title: str, unit: str, *queries: Query, width: int = WIDTH // 2, steps: bool = False) -> timeseries.Panel:
    """Lines over time, from zero up; limits are dashed and red. ``steps``: for numbers that change at an instant."""
    interpolation = common_models.LineInterpolation
    panel = (
        _framed(timeseries.Panel(), title, unit, height=8, width=width)
        .axis_soft_min(0)
        .fill_opacity(0 if steps else 8)
        .line_interpolation(interpolation.STEP_AFTER if steps else interpolation.LINEAR)
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(_legend(common_models.LegendDisplayMode.TABLE, "lastNotNull", "max"))
        .override_by_regexp(LIMITS, _options(LIMIT_LINE))
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    if steps:
        panel = panel.axis_soft_max(1)
        if unit in {NUMBER, REPLICAS}:
            panel = panel.decimals(0)
    for number, query in enumerate(queries):
        panel = panel.with_target(_target(query, number).range())
    return panel


def changes(title: str, query: Query) -> timeseries.Panel:
    """How often something happened, as bars."""
    return lines(title, NUMBER, query, steps=True).draw_style(common_models.GraphDrawStyle.BARS).fill_opacity(80)


def number(
    title: str, unit: str, query: Query, *thresholds: tuple[float | None, str], at_end: bool = False
) -> stat.Panel:
    """The newest value within the time range, or what ``query`` is at its end. ``thresholds``: (lowest value, colour),
    the first with None.
    """
    target = _target(query)
    steps = [models.Threshold(value=value, color=color) for value, color in thresholds or ((None, "text"),)]
    return (
        _framed(stat.Panel(), title, unit, height=4, width=WIDTH // 8)
        .no_value(NO_RUN)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(target.instant() if at_end else target.range())
    )


def states(title: str, query: Query, *named: tuple[int, str, str]) -> statetimeline.Panel:
    """One band per series, in the colour of its value. ``named``: (value, name, colour)."""
    mapping = models.ValueMap(
        options={
            str(value): models.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, text, color) in enumerate(named)
        }
    )
    return (
        _framed(statetimeline.Panel(), title, NUMBER, height=8)
        .mappings([mapping])
        .show_value(common_models.VisibilityMode.NEVER)
        .merge_values(True)
        .legend(_legend(common_models.LegendDisplayMode.LIST))
        .with_target(_target(query).range())
    )


def newest_values(title: str, unit: str, query: Query) -> table.Panel:
    """A table of the newest values within the time range, one row per series and one column per label."""
    return (
        _framed(table.Panel(), title, unit, height=10)
        .show_header(True)
        .with_target(_target(query).range())
        .with_transformation(
            models.DataTransformerConfig(
                id_val="reduce",
                options={"reducers": ["lastNotNull"], "mode": "seriesToRows", "labelsToFields": True},
            )
        )
        .with_transformation(
            models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Field": True}})
        )
    )


def _framed(panel: P, title: str, unit: str, *, height: int, width: int = WIDTH // 2) -> P:
    return panel.title(title).datasource(DATASOURCE).unit(unit).height(height).span(width)


def _target(query: Query, number: int = 0) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))


def _options(options: Mapping[str, Any]) -> list[models.DynamicConfigValue]:
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in options.items()]


def _legend(mode: common_models.LegendDisplayMode, *calcs: str) -> common.VizLegendOptions:
    placement = common_models.LegendPlacement.BOTTOM
    return common.VizLegendOptions().display_mode(mode).placement(placement).show_legend(True).calcs(list(calcs))


EVERYTHING: Final = models.VariableOption(selected=True, text="All", value="$__all")

# --- boards ----------------------------------------------------------------------------------------------------------


def make_board(
    name: str,
    title: str,
    description: str,
    rows: Mapping[str, Sequence[Panel]],
    choices: Mapping[str, tuple[str, str]] | None = None,
    fleets: str = metrics.REPLICAS,
) -> models.Dashboard:
    """A board with the variables run and fleet, annotations of the acting scaler's actions, and links to other boards.
    ``rows``: panels from left to right, by title. ``choices``: (metric, matchers) of additional variables, by label.
    Run "All" is the newest run, so that an open board follows. ``fleets``: a metric of the fleets to choose from.
    """
    board = (
        dashboard.Dashboard(f"Penstock: {title}")
        .uid(f"penstock-{name}")
        .description(description)
        .tags(["penstock"])
        .timezone("browser")
        .time("now-5m", "now")
        .refresh("5s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(
            _variable("newest", f"query_result(topk(1, {NEWEST_RUN}))")
            .regex('/run="([^"]+)"/')
            .hide(models.VariableHide.HIDE_VARIABLE)
        )
        .with_variable(
            # The matcher matches every run; it tells Grafana to ask for the newest one first.
            _variable("run", f'label_values({metrics.TICKS}{{run=~"$newest|.*"}}, run)')
            .label("Run (All: the newest)")
            .include_all(True)
            .all_value("$newest")
            .current(EVERYTHING)
            .sort(models.VariableSort.ALPHABETICAL_DESC)
        )
        .with_variable(_choice("fleet", fleets, '{run="$run"}'))
        .link(
            dashboard.DashboardLink("Boards")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["penstock"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for label, (metric, matchers) in (choices or {}).items():
        board = board.with_variable(_choice(label, metric, matchers))
    for title_of_row, panels in rows.items():
        board = board.with_row(dashboard.Row(title_of_row))
        for panel in panels:
            board = board.with_panel(panel)
    made = board.build()
    for variable in made.templating.list_val or () if made.templating else ():
        variable.id_val = (
            variable.name
        )  # before version 11 Grafana knows variables by id, and the library gives all one
    made.annotations = models.AnnotationContainer(
        list_val=[
            ActionAnnotations(name=action, datasource=DATASOURCE, enable=shown, icon_color=color)
            for action, color, shown in (("up", "orange", True), ("down", "blue", True), ("reassign", "purple", False))
        ]
        + [FaultAnnotations(name="fault", datasource=DATASOURCE, enable=True, icon_color=RED)]
    )
    for number, panel_made in enumerate(made.panels or (), start=1):
        panel_made.id_val = number
    return made


def _variable(label: str, query: str) -> dashboard.QueryVariable:
    """Updated with the time range, that is, with each refresh."""
    return (
        dashboard.QueryVariable(label)
        .label(label.capitalize())
        .datasource(DATASOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _choice(label: str, metric: str, matchers: str) -> dashboard.QueryVariable:
    """Selection of several values of a label; the default is all."""
    return (
        _variable(label, f"label_values({metric}{matchers}, {label})")
        .multi(True)
        .include_all(True)
        .current(EVERYTHING)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


class Annotations(models.AnnotationQuery):
    """Marks at times in seconds that are the values of series. ``tag_keys``: labels that a mark shows, by commas."""

    tag_keys: ClassVar[str]

    def times(self) -> Query:
        """The series; its legend is the marks' title."""
        raise NotImplementedError

    def to_json(self) -> dict[str, object]:
        """With the fields of Prometheus' annotations, which the library's model lacks."""
        times = self.times()
        return {
            **super().to_json(),
            "expr": f"1000 * {times}",
            "step": "1s",
            "titleFormat": times.legend,
            "tagKeys": self.tag_keys,
            "useValueForTime": True,
        }


class ActionAnnotations(Annotations):
    """A mark at each action of the acting scaler, which is its name."""

    tag_keys = "action"

    def times(self) -> Query:
        """The newest of each scaler."""
        where = f'{RUN}, action="{self.name}"'
        return newest(metrics.SCALER_LAST_ACTION, "scaler", "action", where=where).named("{{scaler}}: {{action}}")


class FaultAnnotations(Annotations):
    """A mark at each fault of ``--fault``."""

    tag_keys = "fault,detail"

    def times(self) -> Query:
        """By kind and by what was hit."""
        return newest(metrics.FAULT, "fault", "detail", where=RUN).named("{{fault}} {{detail}}")
