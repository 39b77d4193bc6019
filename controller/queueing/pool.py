"""Algorithm 3 of Elastic Multi-M/M/s/K: keep a pool of provisioned queues."""


def queues_to_create(available: int, min_queues: int = 2) -> int:
    """One run of the pre-provisioner: one queue if the pool has fewer than ``min_queues``, else none."""
    return int(available < min_queues)
