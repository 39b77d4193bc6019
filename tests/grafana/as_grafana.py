"""Boards as Grafana opens them: variables by id and in order, then instant and range queries of one time range."""

import json
import math
import re
from typing import Any, NamedTuple

import httpx

from grafana import generate

SCRAPE_S = 1
"""Interval of the local Prometheus."""
WIDTH_PX = 900
"""Of a panel: a query has at most a point per pixel."""


class Series(NamedTuple):
    """One series of an answer; ``samples``: (seconds since the epoch, value)."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]


class Asked:
    """Prometheus' HTTP API. An answer that is an error fails the test."""

    def __init__(self, url: str) -> None:
        self._url = url

    def over(self, query: str, from_s: float, to_s: float, step_s: float = 1) -> list[Series]:
        """A range query, second by second unless told otherwise."""
        return _ranges(self._get("query_range", query=query, start=from_s, end=to_s, step=step_s)["result"])

    def instant(self, query: str, at_s: float) -> list[Series]:
        """Series with one sample each."""
        found = self._get("query", query=query, time=at_s)["result"]
        return [Series(each["metric"], [(float(each["value"][0]), float(each["value"][1]))]) for each in found]

    def at(self, query: str, at_s: float) -> list[float]:
        """The values of all series at a time."""
        return [each.samples[0][1] for each in self.instant(query, at_s)]

    def raw(self, selector: str, from_s: float, to_s: float) -> list[Series]:
        """As scraped, with the times of the scrapes."""
        return _ranges(self._get("query", query=f"{selector}[{math.ceil(to_s - from_s)}s]", time=to_s)["result"])

    def label(self, name: str, selector: str, from_s: float, to_s: float) -> list[str]:
        """Values of a label among the series of a time range."""
        values: list[str] = self._get(f"label/{name}/values", **{"match[]": selector}, start=from_s, end=to_s)
        return values

    def rules(self) -> dict[str, str]:
        """Alert → how its last evaluation went."""
        groups = self._get("rules")["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def _get(self, what: str, **parameters: Any) -> Any:
        answer = httpx.get(f"{self._url}/api/v1/{what}", params=parameters, trust_env=False, timeout=30).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]


def _ranges(found: list[Any]) -> list[Series]:
    return [Series(each["metric"], [(float(at_s), float(value)) for at_s, value in each["values"]]) for each in found]


class Opened:
    """A board with a time range. Variables that are not ``chosen`` are as they are at first."""

    def __init__(self, asked: Asked, board: str, from_s: float, to_s: float, **chosen: str) -> None:
        self.name, self.from_s, self.to_s = board, from_s, to_s
        self._asked = asked
        self._made: dict[str, Any] = json.loads((generate.FOLDER / f"{board}.json").read_text())
        self.step_s = max(SCRAPE_S, math.ceil((to_s - from_s) / WIDTH_PX))
        self.values = {
            "__interval": f"{self.step_s}s",
            "__rate_interval": f"{max(self.step_s + SCRAPE_S, 4 * SCRAPE_S)}s",
            "__range": f"{round(to_s - from_s)}s",
        }
        by_id = {each.get("id") or each["name"]: each for each in self._made["templating"]["list"]}  # before Grafana 11
        for variable in by_id.values():
            if variable["type"] == "query":
                self.values[variable["name"]] = chosen.get(variable["name"]) or self._value(variable)

    def _value(self, variable: dict[str, Any]) -> str:
        found = self._options(self.filled(variable["query"]), variable.get("regex", ""))
        if variable.get("includeAll") and variable["current"]["value"] == "$__all":
            if variable.get("allValue"):
                return self.filled(variable["allValue"])
            return found[0] if len(found) == 1 else f"({'|'.join(map(re.escape, found))})"
        return found[0] if found else ""

    def _options(self, query: str, regex: str) -> list[str]:
        if labels := re.fullmatch(r"label_values\((.+), (\w+)\)", query):
            return self._asked.label(labels[2], labels[1], self.from_s, self.to_s)
        asked = re.fullmatch(r"query_result\((.+)\)", query)
        assert asked, query
        texts = [
            "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + f"}} {value:.0f} {at_s * 1000:.0f}"
            for labels, samples in self._asked.instant(asked[1], self.to_s)
            for at_s, value in samples
        ]
        return [found[1] for text in texts if (found := re.search(regex.strip("/"), text))]

    def filled(self, text: str) -> str:
        """With the values of the variables; Grafana leaves what it does not know."""
        return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: self.values.get(found[1] or found[2], found[0]), text)

    def queries(self) -> dict[str, str]:
        """Board, title of the panel and letter of the query → the query as it is sent; annotations are one."""
        asked = {title: query for title, query, _ in self._targets()}
        marks = " or ".join(each["expr"] for each in self._made["annotations"]["list"])
        return {**asked, f"{self.name}: Scale actions": self.filled(marks)}

    def answers(self) -> dict[str, list[Series]]:
        """Title of the panel and letter of the query → what is shown: at the end of the range, or over it."""
        return {
            title: self._asked.instant(query, self.to_s)
            if at_end
            else self._asked.over(query, self.from_s, self.to_s, self.step_s)
            for title, query, at_end in self._targets()
        }

    def _targets(self) -> list[tuple[str, str, bool]]:
        return [
            (
                f"{self.name}: {panel['title']} {target['refId']}",
                self.filled(target["expr"]),
                target.get("instant", False),
            )
            for panel in self._made["panels"]
            for target in panel.get("targets", [])
        ]
