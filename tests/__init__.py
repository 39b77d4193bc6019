"""Tests, as a package of their own: another package of this name may be installed."""
