"""Workloads: rates over time, published ones, traces and formulas; any of them can be named by one line of text."""

from producers.workloads.catalogue import join_workload, parse_workload, split_workload
from producers.workloads.contract import Playback
from producers.workloads.trace import Trace

__all__ = ["Playback", "Trace", "join_workload", "parse_workload", "split_workload"]
