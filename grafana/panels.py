"""Builders of panels and boards in one style: every panel has a unit, and needs a ``description``."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from grafana.promql import RUN, Query, last_within_range, newest
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
OF_RUN: Final = '/run="([^"]+)"/'
"""The run in the text of a series."""
NO_RUN: Final = "no run in this time range"

Panel = Builder[models.Panel]
P = TypeVar("P", timeseries.Panel, stat.Panel, statetimeline.Panel, table.Panel)


LIMIT_LINE: Final = {
    "color": {"mode": "fixed", "fixedColor": RED},
    "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
    "custom.fillOpacity": 0,
}

# --- panels ----------------------------------------------------------------------------------------------------------


def lines(
    title: str,
    unit: str,
    *queries: Query,
    width: int = WIDTH // 2,
    steps: bool = False,
    limit: float | None = None,
) -> timeseries.Panel:
    """Lines over time, from zero up; limits are dashed and red. ``steps``: for numbers that change at an instant.
    ``limit``: a fixed limit.
    """
    interpolation = common_models.LineInterpolation
    panel = (
        _framed(timeseries.Panel(), title, unit, height=8, width=width)
        .axis_soft_min(0)
        .fill_opacity(0 if steps else 8)
        .line_interpolation(interpolation.STEP_AFTER if steps else interpolation.LINEAR)
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(_legend(common_models.LegendDisplayMode.TABLE, "lastNotNull", "max"))
        .override_by_regexp(LIMITS, options(LIMIT_LINE))
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    if steps or unit == EVENTS:
        panel = panel.axis_soft_max(1)
    if steps and unit in {NUMBER, REPLICAS}:
        panel = panel.decimals(0)
    if limit is not None:
        style = common.GraphThresholdsStyleConfig().mode(common_models.GraphTresholdsStyleMode.DASHED)
        steps_at = [models.Threshold(value=None, color="transparent"), models.Threshold(value=limit, color=RED)]
        config = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps_at)
        panel = panel.thresholds(config).thresholds_style(style)
    for number, query in enumerate(queries):
        panel = panel.with_target(as_target(query, number).range())
    return panel


def changes(title: str, query: Query) -> timeseries.Panel:
    """How often something happened, as bars."""
    return lines(title, NUMBER, query, steps=True).draw_style(common_models.GraphDrawStyle.BARS).fill_opacity(80)


def number(
    title: str,
    unit: str,
    query: Query,
    *thresholds: tuple[float | None, str],
    at_end: bool = False,
    none: str = NO_RUN,
) -> stat.Panel:
    """The newest value within the time range, or what ``query`` is at its end. ``thresholds``: (lowest value, colour),
    the first with None. ``none``: the text without a value.
    """
    target = as_target(query)
    steps = [models.Threshold(value=value, color=color) for value, color in thresholds or ((None, "text"),)]
    return (
        _framed(stat.Panel(), title, unit, height=4, width=WIDTH // 8)
        .no_value(none)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .mappings([_nothing(none)])
        .with_target(target.instant() if at_end else target.range())
    )


def _nothing(text: str) -> models.SpecialValueMap:
    """No value has a text and no colour of the thresholds: an empty tile is neither good nor bad."""
    result = models.ValueMappingResult(text=text, color="text", index=0)
    options = models.DashboardSpecialValueMapOptions(match=models.SpecialValueMatch.NULL_AND_NAN, result=result)
    return models.SpecialValueMap(options=options)


def names(title: str, *queries: Query) -> stat.Panel:
    """The names of the newest series of each query, over the whole width."""
    panel = name(title, queries[0], width=WIDTH)
    for number, query in enumerate(queries[1:], start=1):
        panel = panel.with_target(as_target(last_within_range(query), number).instant())
    return panel


def name(title: str, query: Query, *thresholds: tuple[float | None, str], width: int, none: str = NO_RUN) -> stat.Panel:
    """The name of the newest series within the time range, in the colour of its value."""
    panel = number(title, NUMBER, last_within_range(query), *thresholds, at_end=True, none=none)
    return panel.text_mode(common_models.BigValueTextMode.NAME).span(width)


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
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color("text"))
        .show_value(common_models.VisibilityMode.NEVER)
        .merge_values(True)
        .legend(_legend(common_models.LegendDisplayMode.LIST))
        .with_target(as_target(query).range())
    )


def newest_values(title: str, unit: str, query: Query) -> table.Panel:
    """A table of the newest values within the time range, one row per series and one column per label."""
    return (
        _framed(table.Panel(), title, unit, height=8)
        .show_header(True)
        .with_target(as_target(query).range())
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


def as_target(query: Query, number: int = 0) -> prometheus.Dataquery:
    """The ``number``-th query of a panel."""
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))


def options(values: Mapping[str, Any]) -> list[models.DynamicConfigValue]:
    """Field options of an override."""
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in values.items()]


def _legend(mode: common_models.LegendDisplayMode, *calcs: str) -> common.VizLegendOptions:
    placement = common_models.LegendPlacement.BOTTOM
    return common.VizLegendOptions().display_mode(mode).placement(placement).show_legend(True).calcs(list(calcs))


EVERYTHING: Final = models.VariableOption(selected=True, text="All", value="$__all")

# --- boards ----------------------------------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """A variable that is the first (hidden), or a chosen one, of what a query finds. ``regex`` takes the value out of
    the text of a series; ``all_is``: what All stands for.
    """

    name: str
    query: str
    regex: str
    label: str = ""
    all_is: str = ""

    def variable(self) -> dashboard.QueryVariable:
        """It is hidden without a label."""
        made = _variable(self.name, f"query_result({self.query})").regex(self.regex)
        if not self.label:
            return made.hide(models.VariableHide.HIDE_VARIABLE)
        return made.label(self.label).include_all(True).all_value(self.all_is).current(EVERYTHING)


def make_board(
    name: str,
    title: str,
    description: str,
    rows: Mapping[str, Sequence[Panel]],
    choices: Mapping[str, tuple[str, str]] | None = None,
    fleets: str = metrics.REPLICAS + '{run="$run"}',
    more: Sequence[Chosen] = (),
    of_runs: bool = True,
) -> models.Dashboard:
    """A board with the variables run and fleet, annotations of the acting scaler's actions, and links to other boards.
    ``rows``: panels from left to right, by title. ``choices``: (metric, matchers) of additional variables, by label.
    Run "All" is the newest run, so that an open board follows. ``fleets``: series of the fleets to choose from.
    ``more``: further variables, asked for after the run. ``of_runs``: whether the board is of one run at all.
    """
    shown = models.VariableHide.DONT_HIDE if of_runs else models.VariableHide.HIDE_VARIABLE
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
        .with_variable(Chosen("newest", f"topk(1, {NEWEST_RUN})", OF_RUN).variable())
        .with_variable(
            # The matcher matches every run; it tells Grafana to ask for the newest one first.
            _variable("run", f'label_values({metrics.TICKS}{{run=~"$newest|.*"}}, run)')
            .label("Run (All: the newest)")
            .include_all(True)
            .all_value("$newest")
            .current(EVERYTHING)
            .sort(models.VariableSort.ALPHABETICAL_DESC)
            .hide(shown)
        )
        .link(
            dashboard.DashboardLink("Boards")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["penstock"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for each in more:
        board = board.with_variable(each.variable())
    board = board.with_variable(_choice("fleet", fleets, "").hide(shown))
    for label, (metric, matchers) in (choices or {}).items():
        board = board.with_variable(_choice(label, metric, matchers))
    for title_of_row, panels in rows.items():
        board = board.with_row(dashboard.Row(title_of_row))
        for panel in _without_holes(panels):
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


def _without_holes(panels: Sequence[Panel]) -> Sequence[Panel]:
    """Of an odd number of panels of half a width, the last three share one."""
    half = [panel for panel in panels if panel.build().grid_pos.w == WIDTH // 2]  # type: ignore[union-attr]
    if len(half) % 2:
        for panel in half[-3:]:
            panel.span(WIDTH // len(half[-3:]))  # type: ignore[attr-defined]
    return panels


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

    tag_keys = "action,change"

    def times(self) -> Query:
        """The newest of each scaler."""
        where = f'{RUN}, action="{self.name}"'
        found = newest(metrics.SCALER_LAST_ACTION, "scaler", "action", "change", where=where)
        return found.named("{{scaler}}: {{action}} {{change}}")


class FaultAnnotations(Annotations):
    """A mark at each fault of ``--fault``."""

    tag_keys = "fault,detail"

    def times(self) -> Query:
        """By kind and by what was hit."""
        return newest(metrics.FAULT, "fault", "detail", where=RUN).named("{{fault}} {{detail}}")
