"""Fleets of live runs: one package per kind, and their common parts."""
