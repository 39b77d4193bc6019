"""The kernel every room speaks: wire records, contracts, measures, settings and the run directory.

It imports no room. Rooms register sub-commands and scalers as entry points (``penstock.commands``,
``penstock.scalers``).
"""

from importlib.metadata import version

__version__ = version("penstock")
