"""Queueing formulas. Rates and times may be in any one unit of time; scalers hand in seconds and events per second."""
