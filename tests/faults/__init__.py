"""Deterministic simulation of the control plane: its real code in virtual time, under faults that a seed draws.

``python -m tests.faults --fleet stream --seed 17`` replays a seed. The design: docs/decisions/0018-faults-by-seed.md.
"""
