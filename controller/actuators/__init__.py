"""Actuators: each carries decisions out on one kind of fleet."""
