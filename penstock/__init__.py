"""The kernel: wire records, contracts, measures, settings and the run directory.

It imports no other package. They register commands, scalers and fleet kinds as entry points (``penstock.commands``,
``penstock.scalers``, ``penstock.fleets``).
"""

from importlib.metadata import version

from penstock import checkout_names

__version__ = version("penstock")
checkout_names.install()
