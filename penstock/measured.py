"""What the live world measures, and the sim world therefore assumes: the defaults of ``penstock.systems.StreamSystem``.

Of six live runs of a consumer group on two shared cores (processes, one Kafka broker, eager rebalances), November 2026,
with ``python tests/bench/bench_live_delays.py RUN…``. A busy machine takes two to three times as long. For your own:
the same command, then ``--set system.<name>=<value>``.
"""

START_UP_S = 1.2
"""Seconds from the request of a replica until it has joined the group. Measured: 1.1 to 1.2 s on a quiet machine, 2.2 s
(p90 4.0 s) while all cores are busy. A pod: 2 to 10 s, with its image on the node. Later runs on quiet machines
have 0.68 s (p90 0.8 s) in ten minutes, and 1.03 s (p90 1.70 s) in a minute each: the default is that of short runs.
"""
REBALANCE_S = 0.03
"""Seconds of a rebalance, from the stop of the last member until all resume, when all members are notified at once.
Measured: 0.027 s from a new plan until all partitions are consumed again, the median of 120
(``tests/bench/bench_rebalance.py``, decision 0029). It was 0.09 s before (decision 0030).
"""
STOP_S = 0.7
"""Seconds from the release of a replica's last partition until it is gone. Measured: 0.7 to 1.4 s with busy cores,
0.3 and 0.54 s in later runs on quiet machines (decision 0030).
"""
RESTART_S = 3.0
"""Seconds from the kill of a controller or forwarder until it works again, for processes. Measured from the kill to the
next tick, while all cores are busy: median 3.0 s of eight, 1.9 to 6.6 s.
"""
READ_DELAY_S = 0.005
"""Age in seconds of the committed offsets that a monitor reads, besides ``worker.commit_interval_s``. Measured: the
reading is 16 ms behind the work, the commit interval explains 10 ms of it.
"""
SERVICE_SCV = 0.03
"""Squared coefficient of variation of a service time with a deterministic floor of 5 ms: operating system, ledger and
commit. Measured between the ends of two events that follow each other at once: 5.09 ms, standard deviation 0.85 ms.
"""
JOIN_TIMEOUT_S = 10.0
"""Seconds for which a new assignment waits for members that have not joined, for processes: twice the longest start-up
seen on a busy machine (5.1 s).
"""
POD_JOIN_TIMEOUT_S = 30.0
"""The same for pods."""
