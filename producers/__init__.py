"""Workloads, the schedule made from them, and the open-loop sender."""
