"""Queueing formulas. Rates and times may be in any one unit of time; scalers pass seconds and events per second."""
