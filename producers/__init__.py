"""Workloads (``producers.workloads``), schedules made from them (``producers.schedule``), the open-loop sender.

The sender runs as a process of its own: ``python -m producers.send --run DIR``.
"""
