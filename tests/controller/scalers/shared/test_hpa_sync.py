"""One sync against the real one: series that the controller of Kubernetes 1.34.10 was given, and what it did.

``real_hpa.json`` has them as measured on a one-node cluster: an HPA with an external metric, average value 10, on a
Deployment. A row is a sync: its time in s, the metric, and the replicas that the HPA found. The replicas of a row are
what the HPA made of the row before.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controller.scalers.shared.hpa_sync import HpaHistory, HpaRules, recommend
from penstock.contracts import ReplicaCounts

SERIES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "real_hpa.json").read_text())


DELAY_S = 0.25
"""The controller takes the time of a sync after it has read the metric, on a busy machine so much later."""


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series["name"])
def test_every_sync_makes_the_replicas_that_the_real_hpa_made(series: dict[str, Any]) -> None:
    rules, history = HpaRules(**series["rules"]), HpaHistory()
    for (time_s, metric, replicas), (_, _, real) in pairwise(series["syncs"]):
        counts = ReplicaCounts(joined=replicas)
        made = [recommend(metric, 10.0, time_s + late_s, counts, rules, history) for late_s in (0.0, DELAY_S)]
        assert real in [each.replicas for each in made], f"at {time_s} s"
        history = next(each.history for each in made if each.replicas == real)


def test_there_are_ten_series_with_behavior_and_without() -> None:
    for behavior in (False, True):
        of_kind = [each for each in SERIES if each["rules"]["behavior"] is behavior]
        assert len(of_kind) >= 10
        assert all(len(each["syncs"]) >= 20 for each in of_kind)
