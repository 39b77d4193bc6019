"""Monitors: each reads one kind of fleet."""
