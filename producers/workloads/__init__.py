"""Workloads: rates over time, published ones, traces and formulas; any of them can be named by one line of text."""

from producers.workloads.catalogue import WORKLOADS, describe, parse_workload
from producers.workloads.contract import Playback, Workload, rates_per_s
from producers.workloads.published import BinpackWorkload1, NycTaxi
from producers.workloads.synthetic import Constant, OnOff, Poisson, Sinusoid, Step
from producers.workloads.trace import Trace

__all__ = [
    "WORKLOADS",
    "BinpackWorkload1",
    "Constant",
    "NycTaxi",
    "OnOff",
    "Playback",
    "Poisson",
    "Sinusoid",
    "Step",
    "Trace",
    "Workload",
    "describe",
    "parse_workload",
    "rates_per_s",
]
