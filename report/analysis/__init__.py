"""The numbers of one run, computed from its directory alone: latency, cost, conservation, and whether to believe it."""
