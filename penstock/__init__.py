"""The kernel: wire records, contracts, measures, settings and the run directory.

It imports no other package. They register commands, scalers and fleet kinds as entry points (``penstock.commands``,
``penstock.scalers``, ``penstock.fleets``).
"""

from importlib.metadata import version

__version__ = version("penstock")
